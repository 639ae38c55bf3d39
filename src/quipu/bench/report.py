"""The report of a run: measurements of the broker, the machine's limits, and their ratios."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from quipu.bench.machine import machine
from quipu.bench.measured import Latency, Measured
from quipu.cli.output import plain_table, print_json, show

COLUMNS = (
    "what", "MB/s", "messages/s", "requests/s", "p50 us", "p99 us", "p99.9 us", "CPU s/GB",
    "CPU s/1000 req",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The ratio of a measurement of the broker to a limit of the machine."""

    number: str  # P1, P2 ... as docs/operating/benchmarks.md numbers them; "" for no aim
    about: str
    value: float | None  # None if one side could not be measured
    aim: float | None = None
    better: Literal["higher", "lower"] = "higher"

    @property
    def is_met(self) -> bool | None:
        """Is the aim reached?  None if there is no aim or no value."""
        if self.value is None or self.aim is None:
            return None
        return self.value >= self.aim if self.better == "higher" else self.value <= self.aim

    def row(self) -> dict[str, object]:
        sign = ">=" if self.better == "higher" else "<="
        return {
            "#": self.number, "ratio": self.about,
            "value": None if self.value is None else round(self.value, 2),
            "aim": None if self.aim is None else f"{sign} {self.aim:g}",
            "met": self.is_met,
        }


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part / whole`; None if either is unknown, or `whole` is zero."""
    return None if part is None or not whole else part / whole


@dataclass(slots=True, kw_only=True)
class Report:
    """The measurements of one run: of the broker, of the limits, and their ratios."""

    title: str
    load: dict[str, object]
    broker: dict[str, Measured]
    limits: dict[str, Measured] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    machine: dict[str, object] = field(default_factory=machine)
    rounds: Mapping[str, Sequence[Measured]] = field(default_factory=dict)  # of brokers in turns

    def as_json(self) -> dict[str, object]:
        return {
            "title": self.title, "load": self.load, "machine": self.machine,
            "broker": {name: as_dict(each) for name, each in self.broker.items()},
            "limits": {name: as_dict(each) for name, each in self.limits.items()},
            "ratios": [{"number": each.number, "about": each.about, "value": each.value,
                        "aim": each.aim, "better": each.better, "met": each.is_met}
                       for each in self.ratios],
            **({"rounds": {name: [as_dict(each) for each in measured]
                           for name, measured in self.rounds.items()}} if self.rounds else {}),
        }

    def show(self, *, as_json: bool) -> None:
        """Print the report as tables, or as one JSON object."""
        if as_json:
            print_json(self.as_json())
            return
        print(self.title)
        rows = [table_row(name, each) for name, each in self.broker.items()]
        rows += [table_row(f"limit: {name}", each) for name, each in self.limits.items()]
        show(rows, _used_columns(rows), as_json=False)
        show_ratios(self.ratios)
        print(machine_line(self.machine))


def show_ratios(ratios: Iterable[Ratio]) -> None:
    """Print a table of ratios."""
    rows = [each.row() for each in ratios]
    if rows:
        print()
        print(plain_table(rows, ["#", "ratio", "value", "aim", "met"]), end="")


def machine_line(facts: dict[str, object]) -> str:
    """The machine of the run, in one line."""
    return (
        f"\n{facts['cores']} cores, {facts['processor']}; Python {facts['python']} "
        f"({facts['python_build']}); uvloop {facts['uvloop']}; helper: {facts['helper']}"
    )


def table_row(name: str, measured: Measured) -> dict[str, object]:
    """One row of the table; None for a value that was not measured."""
    latency = measured.latency
    return {
        "what": name,
        "MB/s": _rounded(measured.megabytes_per_second, 1),
        "messages/s": _rounded(measured.records_per_second),
        "requests/s": _rounded(measured.requests_per_second),
        "p50 us": _rounded(latency.p50_us if latency else None),
        "p99 us": _rounded(latency.p99_us if latency else None),
        "p99.9 us": _rounded(latency.p999_us if latency else None),
        "CPU s/GB": _rounded(measured.cpu_seconds_per_gigabyte, 3),
        "CPU s/1000 req": _rounded(measured.cpu_seconds_per_1000_requests, 5),
    }


def as_dict(measured: Measured) -> dict[str, Any]:
    """A measurement and the values derived from it, for JSON."""
    return {
        "seconds": measured.seconds, "requests": measured.requests, "records": measured.records,
        "bytes": measured.size, "messages_per_second": measured.records_per_second,
        "requests_per_second": measured.requests_per_second,
        "megabytes_per_second": measured.megabytes_per_second,
        "latency": _latency_dict(measured.latency),
        "server_cpu_seconds": measured.server_cpu_seconds,
        "server_cpu_seconds_per_gigabyte": measured.cpu_seconds_per_gigabyte,
        "server_cpu_seconds_per_1000_requests": measured.cpu_seconds_per_1000_requests,
        "server_resident_bytes": measured.server_resident_bytes,
        "generator_cpu_seconds": measured.generator_cpu_seconds,
    }


def _latency_dict(latency: Latency | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    return {
        "count": latency.count, "mean_us": latency.mean_us, "p50_us": latency.p50_us,
        "p99_us": latency.p99_us, "p99.9_us": latency.p999_us, "max_us": latency.max_us,
        "curve_us": latency.curve_us,
    }


def _rounded(value: float | None, digits: int = 0) -> float | int | None:
    if not value:
        return None
    return round(value, digits) if digits else round(value)


def _used_columns(rows: list[dict[str, object]]) -> list[str]:
    return [name for name in COLUMNS if any(row[name] is not None for row in rows)]
