"""Prometheus' text format: the lines of a metric, in pieces of bounded size."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from quipu.broker.observing.metric_tables import Family
from quipu.broker.observing.stats import LATENCY_BOUNDS, Histogram

PIECE_LINES_MAX: Final = 500  # about 40 KB, and about 0.3 ms of the loop


def head(family: Family) -> str:
    """What a metric means, and its type."""
    return f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n"


def single(family: Family, value: float) -> str:
    """A metric without labels."""
    return f"{head(family)}{family.name} {value}\n"


def labelled(family: Family, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """One family with labelled samples, in pieces."""
    name = family.name
    lines = [head(family)]
    for names, value in samples:
        lines.append(f"{name}{names} {value}\n")
        if len(lines) >= PIECE_LINES_MAX:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def histogram_lines(name: str, histogram: Histogram, label: str = "") -> str:
    """The text of a histogram; each bucket includes those below it."""
    sums = list(accumulate(histogram.buckets))
    bounds = (*(str(bound) for bound in LATENCY_BOUNDS), "+Inf")
    lines = [
        f'{name}_bucket{{{label}le="{bound}"}} {count}\n'
        for bound, count in zip(bounds, sums, strict=True)
    ]
    labels = f"{{{label.rstrip(',')}}}" if label else ""
    lines.append(f"{name}_sum{labels} {histogram.seconds}\n")
    lines.append(f"{name}_count{labels} {sums[-1]}\n")
    return "".join(lines)


def labels_of(**values: str | int) -> str:
    """The labels of a sample."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str | int) -> str:
    """A label's value, escaped: clients choose the names of groups."""
    text = str(value)
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
