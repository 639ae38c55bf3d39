"""Draws the costs of events over the size of the cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quipu.bench.placement.events import EVENTS, EventCost
from quipu.bench.plot import figure_class


def draw(costs: Sequence[EventCost], path: Path) -> None:
    """Draw CPU time and memory over the number of partitions, on logarithmic axes."""
    figure = figure_class()(figsize=(11, 4.5), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for event in EVENTS:
        found = [each for each in costs if each.event == event]
        counts = [each.size.partitions for each in found]
        times.plot(counts, [max(each.cpu_seconds, 0.001) for each in found], marker=".",
                   label=event)
    largest = max(costs, key=lambda each: (each.size.partitions, each.cpu_seconds))
    counts = sorted({each.size.partitions for each in costs})
    times.plot(counts, [max(largest.cpu_seconds, 0.001) * count / largest.size.partitions
                        for count in counts], ":", color="grey", label="linear")
    memory.plot(counts, [max(each.peak_bytes for each in costs
                             if each.size.partitions == count) / (1 << 20) for count in counts],
                marker=".")
    _label(times, "CPU seconds", "time of an event")
    _label(memory, "MiB", "peak memory of the process")
    times.legend(fontsize=8, frameon=False)
    figure.suptitle(f"quipu bench placement: up to {largest.size.partitions:,} partitions, "
                    f"{largest.size.brokers:,} brokers, {largest.size.racks:,} racks", fontsize=9)
    figure.savefig(path, dpi=150)


def _label(axes: Any, unit: str, title: str) -> None:  # noqa: ANN401 matplotlib has no types
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("partitions (brokers in proportion, racks the same)")
    axes.set_ylabel(unit)
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
