"""`make bench-kafka`: Quipu beside an Apache Kafka that this starts, in turns, on this machine.

    tools/bench_kafka.py [--rounds N] [--seconds S] [--json FILE] [A1 A3 ...]

    A1, A2    produce, one node and one connection: batches of 64 KiB, of 16 KiB with records of
              100 B, one record of 100 B a request; batches of 1 MiB
    A3        produce, 4 connections to 4 partitions
    A4        consume what was written before, 1 and 4 connections
    A5        p99 at 1000 requests/s; produce with every batch synced
    A6        3 nodes with 3 replicas, acks=all, raw and through librdkafka
    A6-12     12 partitions on 3 nodes: fixed and rotated order of Quipu's chain, and Kafka
    A6-12x5   the same on 5 nodes: a chain of 5 against 3 replicas of Kafka

Kafka is got as `make interop` gets it; without it the exit code is 1.  All nodes are on loopback
with their default settings, and are ended here.  Speed is reported, not asserted.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from quipu.bench.against import (  # noqa: E402 the repository is on the path now
    CONSUME,
    LATENCY,
    PRODUCE,
    ROUNDS,
    Work,
    median_round,
    ratios,
    take_turns,
)
from quipu.bench.errors import BenchError  # noqa: E402
from quipu.bench.machine import machine  # noqa: E402
from quipu.bench.measured import Measured  # noqa: E402
from quipu.bench.report import as_dict, machine_line, show_ratios, table_row  # noqa: E402
from quipu.bench.runs import RunLoad  # noqa: E402
from quipu.bench.target import Target, temporary_chain, temporary_node  # noqa: E402
from quipu.cli.output import plain_table  # noqa: E402
from quipu.model.settings_types import Address  # noqa: E402
from tests.interop.kafka_server import KafkaCluster  # noqa: E402
from tools.interop import KAFKA, ROOT, State, install  # noqa: E402
from tools.setup import exclusive  # noqa: E402

COLUMNS: Final = ["what", "MB/s", "messages/s", "requests/s", "p50 us", "p99 us", "CPU s/GB"]
HEAP: Final = "1g"
SIZE_MAX: Final = 512 << 20  # of one turn
SYNCED: Final = {"flush.messages": "1"}
OURS, KAFKAS = "quipu", "kafka"
ORDERS: Final = {"quipu, rotated": {"chain.rotate": "true"},
                 "quipu, fixed": {"chain.rotate": "false"}}


class BesideLine(NamedTuple):
    """One line of the table: a load, on so many nodes of each."""

    number: str
    name: str
    work: Work
    load: RunLoad
    nodes: int = 1
    own: Mapping[str, Mapping[str, str]] = {OURS: {}}  # our topics, and their settings


def lines(seconds: float) -> list[BesideLine]:
    """All lines, in the order in which they are measured."""
    def load(**more: object) -> RunLoad:
        given = {"seconds": seconds, "size_max": SIZE_MAX, **more}
        return RunLoad(**given)  # type: ignore[arg-type]  # names and types are RunLoad's

    twelve = {"partitions": 12, "connections": 12, "acks": -1, "pipeline": 2}
    return [
        BesideLine("A1", "produce, 64 KiB batches", PRODUCE, load()),
        BesideLine("A1", "produce, 16 KiB batches of 100 B records", PRODUCE,
                   load(batch_size=16 << 10, record_size=100)),
        BesideLine("A1", "produce, one 100 B record a request", PRODUCE,
                   load(batch_size=1, record_size=100, pipeline=32)),
        BesideLine("A2", "produce, 1 MiB batches", PRODUCE,
                   load(batch_size=1_000_000, record_size=1000)),
        BesideLine("A3", "produce, 64 KiB batches, 4 connections, 4 partitions", PRODUCE,
                   load(connections=4, partitions=4)),
        BesideLine("A4", "consume, 1 connection", CONSUME, load()),
        BesideLine("A4", "consume, 4 connections, 4 partitions", CONSUME,
                   load(connections=4, partitions=4)),
        BesideLine("A5", "latency at 1000 requests/s", LATENCY,
                   load(batch_size=1, record_size=100, rate=1000.0)),
        BesideLine("A5", "produce, 64 KiB batches, each synced", PRODUCE, load(configs=SYNCED)),
        BesideLine("A5", "produce, 1 KB batches, each synced, 8 connections", PRODUCE,
                   load(configs=SYNCED, batch_size=1, record_size=1000, connections=8,
                        pipeline=1)),
        BesideLine("A6", "3 nodes, acks=all, 64 KiB batches", PRODUCE,
                   load(acks=-1, pipeline=16), nodes=3),
        BesideLine("A6", "3 nodes, acks=all, librdkafka", PRODUCE,
                   load(acks=-1, client="librdkafka"), nodes=3),
        BesideLine("A6-12", "3 nodes, 12 partitions, acks=all", PRODUCE, load(**twelve),
                   nodes=3, own=ORDERS),
        BesideLine("A6-12x5", "5 nodes, 12 partitions, acks=all", PRODUCE, load(**twelve),
                   nodes=5, own=ORDERS),
    ]


@contextlib.contextmanager
def both(jars: Path, nodes: int) -> Iterator[tuple[Target, Target]]:
    """Quipu and Kafka of so many nodes, with three replicas of each partition where there are."""
    settings = {} if nodes == 1 else {
        "default.replication.factor": "3", "min.insync.replicas": "2"}
    with (
        tempfile.TemporaryDirectory(prefix="quipu-bench-kafka-") as scratch,
        KafkaCluster(jars, Path(scratch), nodes=nodes, heap=HEAP, settings=settings) as kafka,
        temporary_node({}) if nodes == 1 else temporary_chain(nodes) as ours,
    ):
        first, *others = (kafka.pid(number) for number in kafka.ports)
        yield ours, Target(Address("127.0.0.1", kafka.ports[1]), first, None, is_temporary=True,
                           other_pids=tuple(others))


def measure(
    line: BesideLine, ours: Target, kafka: Target, rounds: int
) -> dict[str, list[Measured]]:
    """One line: all of ours and Kafka in turns."""
    targets = {**dict.fromkeys(line.own, ours), KAFKAS: kafka}
    return take_turns(line.work, line.load, targets, rounds, line.own)


def show(line: BesideLine, found: Mapping[str, Sequence[Measured]]) -> None:
    """Print one line: the medians, and the ratios."""
    rows = [table_row(name, median_round(line.work, measured))
            for name, measured in found.items()]
    print(f"\n{line.number}  {line.name}")
    print(plain_table(rows, COLUMNS), end="")
    show_ratios(ratios(line.work, found, line.number))
    sys.stdout.flush()


def jars() -> Path:
    """Kafka's jars, installed if they are not there; raises BenchError if they cannot be had."""
    ROOT.mkdir(exist_ok=True)
    with exclusive(ROOT / "lock"):
        installed = install(KAFKA)
    if installed.state is not State.READY:
        raise BenchError(f"kafka {KAFKA.version} is {installed.state.value}: {installed.reason}")
    return KAFKA.folder / "jars"


def main(words: Sequence[str]) -> int:
    """Measure the given lines, or all."""
    every = lines(1.0)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NUMBER",
                        help=f"of {', '.join(dict.fromkeys(line.number for line in every))}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
    parser.add_argument("--json", type=Path, help="write every round to a file")
    given = parser.parse_args(words)
    if unknown := set(given.numbers) - {line.number for line in every}:
        parser.error(f"there is no line {', '.join(sorted(unknown))}")
    begun = time.monotonic()
    told = []
    try:
        folder = jars()
        wanted = [line for line in lines(given.seconds)
                  if not given.numbers or line.number in given.numbers]
        for nodes in dict.fromkeys(line.nodes for line in wanted):
            with both(folder, nodes) as (ours, kafka):
                for line in (each for each in wanted if each.nodes == nodes):
                    found = measure(line, ours, kafka, given.rounds)
                    show(line, found)
                    told.append({"number": line.number, "name": line.name, "rounds": {
                        name: [as_dict(each) for each in measured]
                        for name, measured in found.items()}})
    except BenchError as error:
        print(f"bench-kafka: {error}", file=sys.stderr)
        return 1
    print(machine_line(machine()))
    print(f"Apache Kafka {KAFKA.version}, heap {HEAP}; {given.rounds} rounds in turns, medians; "
          f"{time.monotonic() - begun:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps({"machine": machine(), "lines": told}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
