"""One measurement: counts, time, the distribution of latencies, and the server's CPU and memory."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

CURVE: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The distribution of the latencies of requests, in microseconds."""

    count: int
    mean_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    curve_us: tuple[tuple[float, float], ...]  # (share of requests, their highest latency)

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self | None:
        """The distribution of some durations; None if there are none."""
        ordered = array("d", sorted(seconds))
        if not ordered:
            return None

        def at(share: float) -> float:
            index = min(len(ordered) - 1, int(share * len(ordered)))
            return ordered[index] * 1e6

        return cls(
            count=len(ordered), mean_us=sum(ordered) / len(ordered) * 1e6, p50_us=at(0.5),
            p99_us=at(0.99), p999_us=at(0.999), max_us=at(1.0),
            curve_us=tuple((share, at(share)) for share in CURVE),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The counts of one window of load, and the server's CPU and memory."""

    seconds: float
    requests: int
    records: int
    size: int  # bytes of record batches
    latency: Latency | None
    server_cpu_seconds: float | None = None  # None for a server on another machine
    server_resident_bytes: int | None = None
    generator_cpu_seconds: float = 0.0

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Megabytes of 10^6 bytes in each second."""
        return self.size / self.seconds / 1e6

    @property
    def cpu_seconds_per_gigabyte(self) -> float | None:
        """CPU seconds that the server used for 10^9 bytes."""
        if self.server_cpu_seconds is None or self.size == 0:
            return None
        return self.server_cpu_seconds / self.size * 1e9

    @property
    def cpu_seconds_per_1000_requests(self) -> float | None:
        """CPU seconds that the server used for 1000 requests."""
        if self.server_cpu_seconds is None or self.requests == 0:
            return None
        return self.server_cpu_seconds / self.requests * 1000
