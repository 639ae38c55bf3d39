"""A line of `make bench`: measurements of the broker and of its limit, and their ratios.

    Series   the rounds of one measurement
    Line     one kind of work, with the ratios that the table shows
    median_ratio   of two series that were measured alternately

Not here: the lines themselves (table.py, tier.py, compaction.py).
"""

from dataclasses import dataclass, field
from statistics import median

from quipu.bench.measured import Measured
from quipu.bench.report import Ratio, ratio


@dataclass(slots=True)
class Series:
    """Rounds of one measurement; the best one counts."""

    rounds: list[Measured] = field(default_factory=list)

    @property
    def megabytes(self) -> float:
        return max(each.megabytes_per_second for each in self.rounds)

    @property
    def requests(self) -> float:
        return max(each.requests_per_second for each in self.rounds)

    @property
    def cpu_per_gigabyte(self) -> float | None:
        return _least([each.cpu_seconds_per_gigabyte for each in self.rounds])

    @property
    def cpu_per_1000_requests(self) -> float | None:
        return _least([each.cpu_seconds_per_1000_requests for each in self.rounds])

    @property
    def p99_us(self) -> float | None:
        return _least([each.latency.p99_us for each in self.rounds if each.latency])

    @property
    def p50_us(self) -> float:
        return min(each.latency.p50_us for each in self.rounds if each.latency)

    @property
    def best(self) -> Measured:
        return max(self.rounds, key=lambda each: each.megabytes_per_second)


@dataclass(slots=True)
class Line:
    """One kind of work: the broker, its limit, and the ratios between them."""

    name: str
    broker: Series
    limit: Series
    ratios: list[Ratio]


def _least(values: list[float | None]) -> float | None:
    return min((each for each in values if each is not None), default=None)


def median_ratio(found: Series, limit: Series) -> float | None:
    """The median of the ratios of throughput of rounds that were measured one after the other."""
    assert len(found.rounds) == len(limit.rounds)
    ratios = [ratio(one.megabytes_per_second, other.megabytes_per_second)
              for one, other in zip(found.rounds, limit.rounds, strict=True)]
    known = [each for each in ratios if each is not None]
    return median(known) if known else None
