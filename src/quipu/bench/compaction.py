"""Produce while compaction runs all the time, as a ratio to produce while it does not.

A temporary node has a compacted topic with so many keys that one pass of its cleaner, whose memory
is as small as may be, covers few of them: pass follows pass for as long as the measurement takes.
Passes run in a process of their own (storage/compaction/child.py), and this process is stopped
(SIGSTOP) in every other round.  So both rounds have the same node, and the same files.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from quipu.bench import control, runs
from quipu.bench.errors import BenchError
from quipu.bench.frames import TIMESTAMP_MS
from quipu.bench.lines import Line, Series, median_ratio
from quipu.bench.processes import cost_of
from quipu.bench.report import Ratio, ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.target import Target, temporary_node
from quipu.wire.record_batch import Record, encode_batch

AIM: Final = 0.9  # background work costs produce a tenth at most
ROUNDS: Final = 7
SIZE_MAX: Final = 384 << 20  # of a round
KEYS: Final = 400_000  # a pass with 1 MiB of memory covers 32,768 of them
BATCH_RECORDS: Final = 800
VALUE: Final = b"v" * 240
CHILD_MODULE: Final = b"quipu.storage.compaction.child"
CHILD_SECONDS_MAX: Final = 60.0
CHILD_PAUSE_SECONDS: Final = 0.05
CHILDREN_TIMES: Final = slice(13, 15)  # cutime and cstime, of the fields after the name
NODE_SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": str(1 << 20)}
COMPACTED: Final = {
    "cleanup.policy": "compact", "segment.bytes": str(8 << 20), "flush.messages": "1000",
    "min.cleanable.dirty.ratio": "0"}
CACHE_ONLY: Final = {"flush.ms": str(2**63 - 1)}


def produce_while_compacting(_target: Target, _directory: str) -> Line:
    """64 KiB batches to one topic while another one is compacted."""
    load = RunLoad(seconds=2.0, batch_size=64 << 10, size_max=SIZE_MAX, configs=CACHE_ONLY)
    found, alone = Series(), Series()
    busy: list[float] = []
    with (
        temporary_node(NODE_SETTINGS) as node,
        runs.bench_run(node, replace(load, configs=COMPACTED)) as compacted,
    ):
        fill(compacted)
        assert node.pid is not None
        for _ in range(ROUNDS):
            child = await_child(node.pid)
            with stopped(child), runs.bench_run(node, load) as run:
                alone.rounds.append(runs.broker_produce(run))
            with runs.bench_run(node, load) as run:
                before = cleaner_cpu_seconds(node.pid)
                found.rounds.append(runs.broker_produce(run))
                await_child(node.pid)
                busy.append(cleaner_cpu_seconds(node.pid) - before)
    seconds = sum(each.seconds for each in found.rounds)
    if sum(busy) == 0.0:
        raise BenchError("the cleaner did not run while the broker was measured")
    return Line("produce, 64 KiB batches, while compaction runs", found, alone, [
        Ratio(number="compaction", about="produce while compaction runs / while it does not",
              aim=AIM, value=median_ratio(found, alone)),
        Ratio(number="", about="CPU of compaction meanwhile, of one core",
              value=ratio(sum(busy), seconds))])


def fill(run: BenchRun) -> None:
    """Produce KEYS records of different keys, all of them dirty."""
    with control.connect(run.target.address) as cluster:
        connection = cluster.connection_at(run.leaders[0])
        for first in range(0, KEYS, BATCH_RECORDS):
            control.send_batch(connection, run.topic, 0, encode_batch([
                Record(f"{key:012}".encode(), VALUE, timestamp=TIMESTAMP_MS)
                for key in range(first, first + BATCH_RECORDS)]))


# --- the process that makes passes --------------------------------------------------------------


def find_child(node: int) -> int | None:
    """The process of a pass that the node of process `node` makes now."""
    try:
        children = Path(f"/proc/{node}/task/{node}/children").read_text(encoding="ascii").split()
        for child in map(int, children):
            if CHILD_MODULE in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    except OSError:  # it has ended
        pass
    return None


def await_child(node: int) -> int:
    """Wait for the next pass; raises `BenchError` if there is none for long."""
    deadline = time.monotonic() + CHILD_SECONDS_MAX
    while (child := find_child(node)) is None:
        if time.monotonic() > deadline:
            raise BenchError("the cleaner makes no passes: everything is compacted already")
        time.sleep(CHILD_PAUSE_SECONDS)
    return child


@contextmanager
def stopped(child: int) -> Iterator[None]:
    """Stop a process for a while."""
    with suppress(ProcessLookupError):  # the next pass begins then
        os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)


def cleaner_cpu_seconds(node: int) -> float:
    """CPU of all passes so far: those that have ended, and the one that runs."""
    fields = Path(f"/proc/{node}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ended = sum(map(int, fields[CHILDREN_TIMES])) / os.sysconf("SC_CLK_TCK")
    child = find_child(node)
    return ended + (cost_of(child).cpu_seconds if child is not None else 0.0)
