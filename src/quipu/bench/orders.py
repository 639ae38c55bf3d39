"""Lines of the table: a topic of several partitions with rotated orders, against a fixed one.

    produce    acks=all, to the heads: one node with a fixed order, all of them with rotated ones
    consume    from the tails, where clients are sent to: likewise

Both topics are on the same chain, of 3 and of 5 nodes, and measured in turns; the median of the
ratios of neighbouring rounds counts.  Nodes of one machine share its processors: if these are all
busy already, no order makes it faster.  So the CPU of the busiest node is compared too: where each
node has a machine of its own, that one is the limit.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from quipu.bench import runs
from quipu.bench.closed_loop import Window, run_produce
from quipu.bench.control import connect
from quipu.bench.errors import BenchError
from quipu.bench.lines import Line, Series, median_ratio
from quipu.bench.measured import Measured
from quipu.bench.processes import cost_of, in_child
from quipu.bench.report import Ratio, ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.target import Target, temporary_chain
from quipu.client.admin.topics import describe_topics

LENGTHS: Final = (3, 5)
PARTITIONS: Final = 12
ROUNDS: Final = 5
TRIES: Final = 3  # of a round: on a busy machine a node may lose its lease
SIZE_MAX: Final = 384 << 20
PRELOAD_SIZE: Final = 192 << 20
AIM: Final = 1.3
ROTATE: Final = "chain.rotate"
CACHE_ONLY: Final = {"flush.ms": str(2**63 - 1)}  # leave writing to the kernel


def produce(_target: Target, _directory: str, length: int, client: str) -> Line:
    """Produce to a chain of `length` nodes."""
    load = RunLoad(
        seconds=2.0, partitions=PARTITIONS, connections=PARTITIONS, acks=-1, pipeline=2,
        size_max=SIZE_MAX, client=client, configs=CACHE_ONLY)
    return _compared(f"{length} nodes, {PARTITIONS} partitions, acks=all, {client}", length,
                     _Work(load, runs.broker_produce), AIM)


def consume(_target: Target, _directory: str, length: int) -> Line:
    """Consume from a chain of `length` nodes."""
    load = RunLoad(
        seconds=2.0, partitions=PARTITIONS, connections=PARTITIONS, preload_size=PRELOAD_SIZE,
        configs=CACHE_ONLY)
    return _compared(f"{length} nodes, {PARTITIONS} partitions, consume, raw", length,
                     _Work(load, _consume_at_tails, _fill), None)


def _consume_at_tails(run: BenchRun) -> Measured:
    with connect(run.target.address) as cluster:
        brokers = cluster.brokers()
        partitions = describe_topics(cluster, [run.topic])[run.topic].partitions
    tails = [brokers[partition.replicas[-1]] for partition in partitions]
    return runs.broker_consume(replace(run, leaders=tails))


def _fill(run: BenchRun) -> None:
    """Produce what is read then; one batch at a time, so that nodes keep their leases."""
    filler = run.under(replace(run.load, acks=-1))
    in_child(run_produce, filler.produce_targets(), 1, Window(
        seconds=600.0, warmup_seconds=0.0, size_max=run.load.preload_size))


class _Work(NamedTuple):
    load: RunLoad
    measure: Callable[[BenchRun], Measured]
    prepare: Callable[[BenchRun], None] = lambda _: None

    def rotated(self, rotate: str) -> "_Work":
        return self._replace(
            load=replace(self.load, configs={**self.load.configs, ROTATE: rotate}))


def _compared(name: str, length: int, work: _Work, aim: float | None) -> Line:
    found = {"true": Series(), "false": Series()}
    busiest: dict[str, list[float]] = {"true": [], "false": []}
    with temporary_chain(length) as chain:
        for _ in range(ROUNDS):
            for rotate, series in found.items():
                measured, share = _round(chain, work.rotated(rotate))
                series.rounds.append(measured)
                busiest[rotate].append(share)
    rotated, fixed = found.values()
    return Line(name, rotated, fixed, [
        Ratio(number="P16", about=f"rotated / fixed order: {name}", aim=aim,
              value=median_ratio(rotated, fixed)),
        Ratio(number="", about="the same, by the busiest node's share of all nodes' CPU: fixed / "
              "rotated", value=ratio(median(busiest["false"]), median(busiest["true"])))])


def _round(chain: Target, work: _Work) -> tuple[Measured, float]:
    """One measurement, and the share of the nodes' CPU that the busiest one used."""
    assert chain.pid is not None
    pids = (chain.pid, *chain.other_pids)
    for left in reversed(range(TRIES)):
        try:
            with runs.bench_run(chain, work.load) as run:
                work.prepare(run)
                before = [cost_of(pid).cpu_seconds for pid in pids]
                measured = work.measure(run)
                used = [cost_of(pid).cpu_seconds - since
                        for pid, since in zip(pids, before, strict=True)]
        except BenchError:
            if not left:
                raise
        else:
            return measured, max(used) / sum(used)
    raise AssertionError("the last try returns or raises")


MEASURES: Final = tuple(
    measure for length in LENGTHS for measure in (
        partial(produce, length=length, client="raw"),
        partial(produce, length=length, client="librdkafka"), partial(consume, length=length)))
