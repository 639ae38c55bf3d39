"""What diskless topics cost: latency by flush interval, rates in and out, requests per GiB (D36).

    latencies     one record a request at a fixed rate, for each flush interval, on its own node
    produce_rates one connection and many, with batches of 64 KiB, beside raw puts
    consume_rates old records, which the cache does not hold, and cached ones, beside raw gets

Every row has the requests to the store and to the control plane for each GiB, as the node counts
them.  All on one store, in objects of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from quipu.bench import runs
from quipu.bench.closed_loop import Window
from quipu.bench.diskless.nodes import TOPIC_SETTINGS, Counted, DisklessNode, diskless_node
from quipu.bench.diskless.produce import CONNECTIONS, IN_FLIGHT, load_of, object_size, produced
from quipu.bench.diskless.raw_puts import run_puts
from quipu.bench.lines import Series, median_ratio
from quipu.bench.measured import Measured
from quipu.bench.processes import in_child
from quipu.bench.raw_gets import run_gets
from quipu.bench.report import Ratio, table_row
from quipu.bench.runs import RunLoad

GIB: Final = 1 << 30
ROUNDS: Final = 3
CACHE_SIZE: Final = 32 << 20  # for old records: less than is read
PRELOAD_SIZE: Final = 128 << 20
HOT_SIZE: Final = 24 << 20
SIZE_MAX: Final = 128 << 20  # of a round of producing
RECORD_SIZE: Final = 1000
RATE: Final = 200.0  # requests a second, one record each
GET_SIZE: Final = 4 << 20  # of a raw get: a whole object
GETS_IN_FLIGHT: Final = 3
COLUMNS: Final = ("what", "MB/s", "p50 us", "p99 us", "CPU s/GB", "puts/GiB", "put bytes/byte",
                  "gets/GiB", "get bytes/byte", "commits/GiB", "finds/GiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One load, and what was counted while it ran."""

    name: str
    measured: Measured
    counted: Counted | None = None  # None: not through a node

    def row(self) -> dict[str, object]:
        """One row of the table."""
        found = table_row(self.name, self.measured)
        return {name: found.get(name) for name in COLUMNS} | (
            {} if self.counted is None else per_gib(self.counted))


@dataclass(frozen=True, slots=True)
class Costs:
    """Rows, and their ratios to limits."""

    rows: list[CostRow]
    ratios: list[Ratio]


def per_gib(counted: Counted) -> dict[str, object]:
    """Requests for each GiB that was produced or consumed; None for what did not occur."""
    written, read = counted.batch_bytes, counted.read_bytes
    moved = written + read

    def share(value: float, whole: int, digits: int) -> float | None:
        return round(value / whole, digits) if value and whole else None

    return {
        "puts/GiB": share(counted.puts * GIB, written, 1),
        "put bytes/byte": share(counted.put_bytes, written, 3),
        "gets/GiB": share(counted.gets * GIB, read, 1),
        "get bytes/byte": share(counted.get_bytes, read, 3),
        "commits/GiB": share(counted.commits * GIB, written, 1),
        "finds/GiB": share(counted.finds * GIB, moved, 1),
    }


def latencies(url: str, intervals_ms: list[int], seconds: float) -> Iterator[CostRow]:
    """Yield the latency of Produce for each flush interval, with little traffic."""
    load = RunLoad(seconds=seconds, record_size=RECORD_SIZE, batch_size=1, rate=RATE,
                   configs=dict(TOPIC_SETTINGS))
    for interval in intervals_ms:
        with (
            diskless_node({"diskless.storage.url": url,
                           "diskless.flush.interval.ms": str(interval)}) as node,
            runs.bench_run(node.target, load) as run,
        ):
            before = node.counted()
            found = runs.broker_latency(run).produce
            yield CostRow(name=f"{RATE:g} records/s, flush after {interval} ms", measured=found,
                          counted=node.counted().since(before))


def produce_rates(url: str, seconds: float) -> Costs:
    """One connection, many, and raw puts, in turns; the best round of each is a row."""
    one, many, raw = Series(), Series(), Series()
    counts: dict[int, list[Counted]] = {1: [], CONNECTIONS: []}
    with diskless_node({"diskless.storage.url": url}) as node:
        for _ in range(ROUNDS):
            for connections, series in ((1, one), (CONNECTIONS, many)):
                load = load_of(connections, seconds=seconds, size_max=SIZE_MAX)
                with runs.bench_run(node.target, load) as run:
                    found, counted = produced(node, run)
                    series.rounds.append(found)
                    counts[connections].append(counted)
            raw.rounds.append(in_child(
                run_puts, url, object_size(counts[CONNECTIONS][-1]), IN_FLIGHT,
                Window(seconds=seconds, size_max=SIZE_MAX)))
    return Costs([
        CostRow(name="produce, 1 connection", measured=one.best, counted=_sum(counts[1])),
        CostRow(name=f"produce, {CONNECTIONS} connections", measured=many.best,
                counted=_sum(counts[CONNECTIONS])),
        CostRow(name="limit: raw puts", measured=raw.best)], [
        Ratio(number="P9", about=f"produce, {CONNECTIONS} connections / raw puts", aim=0.7,
              value=median_ratio(many, raw)),
        Ratio(number="", about=f"produce, 1 connection / {CONNECTIONS}", aim=0.5,
              value=median_ratio(one, many))])


def consume_rates(url: str, seconds: float) -> Costs:
    """Old records and cached ones, and raw gets of the objects, in turns."""
    cold, hot, raw = Series(), Series(), Series()
    load = RunLoad(seconds=seconds, preload_size=PRELOAD_SIZE, pipeline=64,
                   configs=dict(TOPIC_SETTINGS))
    cold_counts: list[Counted] = []
    hot_counts: list[Counted] = []
    with (
        diskless_node({"diskless.storage.url": url, "diskless.cache.bytes": str(CACHE_SIZE)})
            as small,
        diskless_node({}) as large,
        runs.bench_run(small.target, load) as old,
        runs.bench_run(large.target, replace(load, preload_size=HOT_SIZE)) as cached,
    ):
        runs.preload(old)
        runs.preload(cached)
        for _ in range(ROUNDS):
            raw.rounds.append(in_child(
                run_gets, url, GET_SIZE, GETS_IN_FLIGHT, old.limit_window()))
            for node, run, series, counts in (
                    (small, old, cold, cold_counts), (large, cached, hot, hot_counts)):
                series.rounds.append(_consumed(node, run, counts))
    return Costs([
        CostRow(name="consume old records", measured=cold.best, counted=_sum(cold_counts)),
        CostRow(name="consume cached records", measured=hot.best, counted=_sum(hot_counts)),
        CostRow(name="limit: raw gets", measured=raw.best)], [
        Ratio(number="", about="consume old records / raw gets", value=median_ratio(cold, raw)),
        Ratio(number="", about="consume cached records / old ones", value=median_ratio(hot, cold)),
    ])


def _consumed(node: DisklessNode, run: runs.BenchRun, counts: list[Counted]) -> Measured:
    before = node.counted()
    found = runs.broker_consume(run)
    counts.append(node.counted().since(before))
    return found


def _sum(counts: list[Counted]) -> Counted:
    return Counted(*map(sum, zip(*counts, strict=True)))
