"""Draws a report: throughput and its limits as bars, and the distribution of latencies."""

from pathlib import Path
from typing import Any, Final

from quipu.bench.errors import BenchError
from quipu.bench.measured import Measured
from quipu.bench.report import Report

SUFFIXES: Final = (".png", ".svg", ".pdf")
INK: Final = "#1f4e5f"
LIMIT_INK: Final = "#c9b79c"


def check_plot(path: Path | None) -> None:
    """Raise `BenchError` before a run if its report could not be drawn to this file."""
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES:
        raise BenchError(f"--plot {path}: the name must end in one of {', '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise BenchError(f"--plot {path}: there is no directory {path.absolute().parent}")
    figure_class()


def draw(report: Report, path: Path) -> None:
    """Draw `report` to a file."""
    figure = figure_class()(figsize=(11, 4.5), layout="constrained")
    bars, curves = figure.subplots(1, 2)
    figure.suptitle(report.title, fontsize=9)
    _draw_bars(bars, report)
    _draw_curves(curves, report)
    figure.savefig(path, dpi=150)


def figure_class() -> Any:  # noqa: ANN401 matplotlib has no types
    """The class of figures; raises `BenchError` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 an extra: most runs need no picture
    except ImportError:
        raise BenchError(
            "--plot needs matplotlib: install it with `pip install 'quipu[plot]'`"
        ) from None
    return Figure


def _draw_bars(axes: Any, report: Report) -> None:  # noqa: ANN401
    rows = [(name, each, INK) for name, each in report.broker.items()]
    rows += [(name, each, LIMIT_INK) for name, each in report.limits.items()]
    rows = [row for row in rows if row[1].size > 0][::-1]
    axes.barh([row[0] for row in rows], [row[1].megabytes_per_second for row in rows],
              color=[row[2] for row in rows])
    axes.set_xlabel("MB/s")
    axes.set_xscale("log")
    axes.set_title("throughput, and the limits of the machine", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_curves(axes: Any, report: Report) -> None:  # noqa: ANN401
    for group, style in ((report.broker, "-"), (report.limits, ":")):
        for name, measured in group.items():
            if (points := _curve(measured)) is not None:
                axes.plot(*points, style, label=name, marker=".", markersize=4)
    axes.set_yscale("log")
    axes.set_xlabel("share of requests")
    axes.set_xticks([0, 1, 2, 3, 4], ["0", "90 %", "99 %", "99.9 %", "99.99 %"])
    axes.set_ylabel("at most, in microseconds")
    axes.set_title("latency", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(fontsize=8, frameon=False)


def _curve(measured: Measured) -> tuple[list[float], list[float]] | None:
    """Shares as nines: 0.9 lies at 1, 0.99 at 2, 0.999 at 3."""
    from math import log10  # noqa: PLC0415 used by pictures only

    if measured.latency is None:
        return None
    points = [(share, value) for share, value in measured.latency.curve_us if share < 1]
    return [-log10(1 - share) for share, _ in points], [value for _, value in points]
