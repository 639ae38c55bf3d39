"""Reads of what only the remote tier has, through the broker; P11: as a ratio to raw ranged gets.

    a directory        the tier is a directory of this machine, whose files are in the page cache
    an S3 server       the tier is moto's server, a process of its own (s3_server.py)

A temporary node moves a topic of SEGMENTS segments to its tier.  Then a consumer reads the topic
by Fetch of 1 MiB, a process without a broker reads the same objects by ranged gets of a chunk's
size, as many in flight as the broker's read-ahead has, and a consumer reads the same data from a
topic that is local; in turns.  The node's cache of chunks is smaller than the topic, so that every
byte is fetched from the store.

Not here: reads past the broker (bench/sql, P13).
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from quipu.bench import control, runs
from quipu.bench.errors import BenchError
from quipu.bench.lines import Line, Series, median_ratio
from quipu.bench.processes import in_child
from quipu.bench.raw_gets import run_gets
from quipu.bench.report import Ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.s3_server import s3_server
from quipu.bench.target import Target, temporary_node
from quipu.client.cluster import Cluster
from quipu.client.ranges import Range
from quipu.client.remote_log import describe_remote_log

P11_AIM: Final = 0.7
ROUNDS: Final = 5
SECONDS: Final = 2.0  # of a round
SEGMENT_SIZE: Final = 64 << 20
SEGMENTS: Final = 4
CHUNK_SIZE: Final = 4 << 20  # remote.log.chunk.bytes
CACHE_SIZE: Final = 64 << 20
IN_FLIGHT: Final = 3  # a read, and two chunks ahead (remote/segments/reader.py)
NODE_SETTINGS: Final = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200", "remote.log.chunk.bytes": str(CHUNK_SIZE),
    "remote.log.chunk.cache.bytes": str(CACHE_SIZE)}
CACHE_ONLY: Final = {"flush.ms": str(2**63 - 1)}  # leave writing to the kernel
TIERED: Final = {**CACHE_ONLY, "remote.storage.enable": "true", "local.retention.bytes": "1"}
TIER_SECONDS_MAX: Final = 120.0
TIER_PAUSE_SECONDS: Final = 0.2


def p11_directory(_target: Target, _directory: str) -> Line:
    """The tier is a directory."""
    with tempfile.TemporaryDirectory(prefix="quipu-bench-tier-") as folder:
        return _measure(Path(folder).absolute().as_uri(), "a directory", aim=None)


def p11_s3(_target: Target, _directory: str) -> Line | None:
    """The tier is an S3 server; None if its package is not installed."""
    with tempfile.TemporaryDirectory(prefix="quipu-bench-s3-") as folder, s3_server(folder) as url:
        return None if url is None else _measure(url, "an S3 server", aim=P11_AIM)


def _measure(url: str, name: str, *, aim: float | None) -> Line:
    load = RunLoad(seconds=SECONDS, preload_size=SEGMENTS * SEGMENT_SIZE)
    tiered, raw, local = Series(), Series(), Series()
    with (
        temporary_node({**NODE_SETTINGS, "remote.log.storage.url": url}) as node,
        moved_run(node, load) as (cold, end),
        runs.bench_run(node, replace(load, configs=CACHE_ONLY)) as warm,
    ):
        runs.preload(warm)
        for _ in range(ROUNDS):
            raw.rounds.append(in_child(run_gets, url, CHUNK_SIZE, IN_FLIGHT, cold.limit_window()))
            tiered.rounds.append(runs.broker_consume(cold, end=end))
            local.rounds.append(runs.broker_consume(warm, end=end))
    return Line(f"fetch from the tier, {name}", tiered, raw, [
        Ratio(number="P11", about=f"fetch from the tier, {name} / raw ranged gets", aim=aim,
              value=median_ratio(tiered, raw)),
        Ratio(number="", about=f"fetch from the tier, {name} / fetch of local data",
              value=median_ratio(tiered, local))])


@contextlib.contextmanager
def moved_run(node: Target, load: RunLoad) -> Iterator[tuple[BenchRun, int]]:
    """A run whose topic is filled, and the offset below which only the tier has its records."""
    with runs.bench_run(node, replace(load, configs=moving_configs(load.configs))) as run:
        yield run, move(run)


def moving_configs(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a topic whose full segments are soon in the remote tier only."""
    return {**TIERED, "segment.bytes": str(SEGMENT_SIZE), **given}


def move(run: BenchRun) -> int:
    """Fill a run's topic, which has `moving_configs`, and wait until most of it has moved.

    Returns the offset below which only the tier has records.
    """
    runs.preload(run)
    runs.preload(run.under(replace(run.load, preload_size=1)))  # closes a full segment
    segments = run.load.preload_size // int(run.load.configs["segment.bytes"])
    with control.connect(run.target.address) as cluster:
        last = sum(cluster.latest(cluster.partitions([run.topic])).values())
        return await_moved(cluster, run.topic, last - last // max(2, segments))


def await_moved(cluster: Cluster, topic: str, wanted: int) -> int:
    """Wait until at least `wanted` records are only in the remote tier; returns how many are."""
    ends = cluster.latest(cluster.partitions([topic]))
    deadline = time.monotonic() + TIER_SECONDS_MAX
    while True:
        found = describe_remote_log(cluster, [Range(*each, 0, end) for each, end in ends.items()])
        moved = sum(part.local_start for part in found.values())
        if moved >= wanted:
            return moved
        if time.monotonic() > deadline:
            raise BenchError(f"only {moved} of {wanted} records have moved to the remote tier; "
                             "with fewer records they do not fill the segments")
        time.sleep(TIER_PAUSE_SECONDS)
