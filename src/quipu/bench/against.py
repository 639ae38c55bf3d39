"""`--against`: one load on two brokers or more in turns, and the ratio of their medians.

Turns A B A B ... share what else happens on the machine between the brokers.  Topics have the same
settings on all of them, and the raw client sends the same bytes.  A topic is made for each turn and
deleted after it, so that no broker's disk fills up; only what is read is made once.
"""

import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from quipu.bench import runs
from quipu.bench.measured import Measured
from quipu.bench.report import Ratio, Report, ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.target import Target

ROUNDS: Final = 5
OURS, THEIRS = "ours", "theirs"
SIZE_MAX: Final = 2 << 30  # of one turn
# Where defaults of brokers differ, Kafka's: nothing is flushed, and deleted files go at once.
ALIKE: Final = {"flush.ms": str((1 << 63) - 1), "flush.messages": str((1 << 63) - 1),
                "file.delete.delay.ms": "0"}

Rounds = Mapping[str, Sequence[Measured]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A benchmark: what is measured in a turn, and by what value turns are compared."""

    name: str
    measure: Callable[[BenchRun], Measured]
    value: Callable[[Measured], float]  # the median of which counts
    about: str
    better: Literal["higher", "lower"] = "higher"
    prepare: Callable[[BenchRun], None] | None = None  # makes what every turn reads


def _p99(measured: Measured) -> float:
    return 0.0 if measured.latency is None else measured.latency.p99_us


PRODUCE = Work(name="produce", measure=runs.broker_produce, about="throughput",
               value=lambda measured: measured.megabytes_per_second)
CONSUME = Work(name="consume", measure=runs.broker_consume, about="throughput",
               value=lambda measured: measured.megabytes_per_second, prepare=runs.preload)
LATENCY = Work(name="latency", measure=lambda run: runs.broker_latency(run).produce,
               about="produce p99", value=_p99, better="lower")


def take_turns(
    work: Work, load: RunLoad, targets: Mapping[str, Target], rounds: int,
    own: Mapping[str, Mapping[str, str]] = {},
) -> dict[str, list[Measured]]:
    """Measure a load on each of some brokers in turns; the measurements by name.

    A first turn of each does not count: a broker on the JVM compiles what it runs then.  `own`:
    settings that only the topics of one of them have.
    """
    loads = {name: replace(load, configs={**ALIKE, **load.configs, **own.get(name, {})},
                           size_max=min(load.size_max, SIZE_MAX)) for name in targets}
    found: dict[str, list[Measured]] = {name: [] for name in targets}
    with contextlib.ExitStack() as stack:
        kept = {}
        if work.prepare is not None:
            for name, target in targets.items():
                kept[name] = stack.enter_context(runs.bench_run(target, loads[name]))
                work.prepare(kept[name])
        for _ in range(1 + rounds):
            for name, target in targets.items():
                if name in kept:
                    found[name].append(work.measure(kept[name]))
                    continue
                with runs.bench_run(target, loads[name]) as run:
                    found[name].append(work.measure(run))
    return {name: measured[1:] for name, measured in found.items()}


def median_round(work: Work, rounds: Sequence[Measured]) -> Measured:
    """The round that has the median; of an even number the lower one of the two in the middle."""
    middle = statistics.median_low(map(work.value, rounds))
    return next(each for each in rounds if work.value(each) == middle)


def ratios(work: Work, rounds: Rounds, number: str = "") -> list[Ratio]:
    """The medians of all but the last broker, each divided by that of the last."""
    medians = {name: median_round(work, measured) for name, measured in rounds.items()}
    *names, last = medians
    found = []
    for name in names:
        pair = f"{name} / {last}"
        found.append(Ratio(
            number=number, about=f"{work.about}, {pair}", better=work.better,
            value=ratio(work.value(medians[name]), work.value(medians[last]))))
        if work.better == "higher":
            found.append(Ratio(
                number=number, about=f"broker CPU per GB, {pair}", better="lower",
                value=ratio(medians[name].cpu_seconds_per_gigabyte,
                            medians[last].cpu_seconds_per_gigabyte)))
    return found


def compare(work: Work, load: RunLoad, targets: Mapping[str, Target], rounds: int) -> Report:
    """The report of a load on two brokers in turns."""
    found = take_turns(work, load, targets, rounds)
    batch = load.batch()
    places = " against ".join(f"{target.address}" for target in targets.values())
    return Report(
        title=f"quipu bench {work.name}: {places}, {rounds} rounds in turns, {load.client} client, "
              f"{load.connections} x {load.pipeline} in flight, {load.partitions} partitions, "
              f"acks={load.acks}, batches of {len(batch.data):,} bytes with "
              f"{batch.record_count:,} records",
        load={**{name: str(target.address) for name, target in targets.items()},
              "client": load.client, "seconds": load.seconds, "record_size": load.record_size,
              "batch_size": len(batch.data), "batch_records": batch.record_count,
              "acks": load.acks, "connections": load.connections, "partitions": load.partitions,
              "pipeline": load.pipeline, "compression": load.compression, "rate": load.rate,
              "fetch_size": load.fetch_size, "configs": {**ALIKE, **load.configs}},
        broker={f"{name}, median": median_round(work, measured)
                for name, measured in found.items()},
        ratios=ratios(work, found), rounds=found)
