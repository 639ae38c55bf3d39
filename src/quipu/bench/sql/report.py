"""The report of `quipu bench sql`: rows a second of each way, and their ratios."""

from dataclasses import dataclass, field
from statistics import median
from typing import Final

from quipu.bench.machine import machine
from quipu.bench.measured import Latency, Measured
from quipu.bench.report import Ratio, as_dict, machine_line, ratio, show_ratios
from quipu.cli.output import plain_table, print_json

COLUMNS: Final = ("what", "rows/s", "median", "MB/s", "rows/core s", "CPU s/GB", "p50 ms", "p99 ms")


@dataclass(slots=True)
class Rounds:
    """The measurements of one way; the best counts, as other load can only make one worse."""

    found: list[Measured] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """Rows a second in the best round."""
        return max(each.records_per_second for each in self.found)

    @property
    def rows_per_core_second(self) -> float | None:
        """Rows for each second of CPU, in the round that took the least."""
        return max((each.records / each.server_cpu_seconds for each in self.found
                    if each.server_cpu_seconds), default=None)

    def row(self, name: str) -> dict[str, object]:
        best = max(self.found, key=lambda each: each.records_per_second)
        costs = [each.cpu_seconds_per_gigabyte for each in self.found]
        cost = min((each for each in costs if each), default=None)
        per_core = self.rows_per_core_second
        return {
            "what": name,
            "rows/s": round(best.records_per_second),
            "median": round(median(each.records_per_second for each in self.found)),
            "MB/s": round(best.megabytes_per_second, 1),
            "rows/core s": None if per_core is None else round(per_core),
            "CPU s/GB": None if cost is None else round(cost, 2),
            "p50 ms": _milliseconds(best.latency, "p50_us"),
            "p99 ms": _milliseconds(best.latency, "p99_us"),
        }


@dataclass(slots=True)
class SqlPart:
    """One part: the measurements of each way, and their ratios."""

    name: str
    ways: dict[str, Rounds]
    ratios: list[Ratio] = field(default_factory=list)

    def compare(
        self, one: str, other: str, *, number: str = "", aim: float | None = None
    ) -> "SqlPart":
        """Add the ratio of two ways by their best rounds, and by the CPU that each row cost."""
        first, second = self.ways[one], self.ways[other]
        about = f"{self.name}: {one} / {other}"
        by_cpu = ratio(first.rows_per_core_second, second.rows_per_core_second)
        self.ratios += [
            Ratio(number=number, about=about, aim=aim,
                  value=ratio(first.rows_per_second, second.rows_per_second)),
            Ratio(number="", about=f"{about}, rows per core second", value=by_cpu),
        ]
        return self

    def rows(self) -> list[dict[str, object]]:
        return [way.row(f"{self.name}: {name}") for name, way in self.ways.items()]


@dataclass(slots=True)
class SqlReport:
    """The parts of one run of `quipu bench sql`."""

    load: dict[str, object]
    parts: list[SqlPart]

    def show(self, *, as_json: bool) -> None:
        """Print the report as tables, or as one JSON object."""
        if as_json:
            print_json(self.as_json())
            return
        print(plain_table([row for part in self.parts for row in part.rows()], COLUMNS), end="")
        show_ratios(each for part in self.parts for each in part.ratios)
        print(machine_line(machine()))

    def as_json(self) -> dict[str, object]:
        return {
            "load": self.load, "machine": machine(),
            "table": [row for part in self.parts for row in part.rows()],
            "parts": [
                {"name": part.name,
                 "rounds": {name: [as_dict(each) for each in way.found]
                            for name, way in part.ways.items()}}
                for part in self.parts
            ],
            "ratios": [each.row() for part in self.parts for each in part.ratios],
        }


def _milliseconds(latency: Latency | None, name: str) -> float | None:
    return None if latency is None else round(getattr(latency, name) / 1000, 1)
