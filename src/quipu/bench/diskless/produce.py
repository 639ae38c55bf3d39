"""P9: produce to a diskless topic through a node, as a ratio to raw puts of the same objects.

    a directory      objects are files of this machine; every put is synced
    an S3 server     moto's, a process of its own (s3_server.py)

The control plane is SQLite in the node's directory.  Producers have as much in flight as fills all
uploads of the node.  In turns: the node, then as many puts in flight as the node has, of objects as
large as the node's were; what is shown is the median of the ratios of neighbouring rounds.  The
same with a single producer on one connection, as a ratio to many.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from quipu.bench import runs
from quipu.bench.diskless.nodes import TOPIC_SETTINGS, Counted, DisklessNode, diskless_node
from quipu.bench.diskless.raw_puts import run_puts
from quipu.bench.errors import BenchError
from quipu.bench.lines import Line, Series, median_ratio
from quipu.bench.measured import Measured
from quipu.bench.processes import in_child
from quipu.bench.report import Ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.s3_server import s3_server
from quipu.bench.target import Target

P9_AIM: Final = 0.7
ONE_AIM: Final = 0.5
ROUNDS: Final = 5
SECONDS: Final = 2.0  # of a round
SIZE_MAX: Final = 256 << 20  # of a round
S3_SIZE_MAX: Final = 96 << 20  # the server holds all objects in memory
CONNECTIONS: Final = 4
PIPELINE: Final = 160  # batches of 64 KiB: 10 MiB on each connection
IN_FLIGHT: Final = 8  # diskless.upload.threads


def p9_directory(_target: Target, directory: str) -> Line:
    """Objects are files, beside the broker's."""
    with tempfile.TemporaryDirectory(prefix="quipu-bench-diskless-", dir=directory) as folder:
        return _measure(Path(folder).absolute().as_uri(), "a directory", SIZE_MAX)


def p9_s3(_target: Target, _directory: str) -> Line | None:
    """Objects are in an S3 server; None if its package is not installed."""
    with tempfile.TemporaryDirectory(prefix="quipu-bench-s3-") as folder, s3_server(folder) as url:
        return None if url is None else _measure(url, "an S3 server", S3_SIZE_MAX)


def load_of(connections: int, *, seconds: float, size_max: int) -> RunLoad:
    """Producers that have `PIPELINE` batches in flight on each of so many connections."""
    return RunLoad(seconds=seconds, connections=connections, partitions=connections,
                   pipeline=PIPELINE, size_max=size_max, configs=dict(TOPIC_SETTINGS))


def _measure(url: str, name: str, size_max: int) -> Line:
    many, one, raw = Series(), Series(), Series()
    load = load_of(CONNECTIONS, seconds=SECONDS, size_max=size_max)
    with diskless_node({"diskless.storage.url": url}) as node:
        for _ in range(ROUNDS):
            with runs.bench_run(node.target, load) as run:
                found, counted = produced(node, run)
                many.rounds.append(found)
                raw.rounds.append(in_child(
                    run_puts, url, object_size(counted), IN_FLIGHT, run.limit_window()))
            with runs.bench_run(node.target, replace(load, connections=1, partitions=1)) as run:
                one.rounds.append(runs.broker_produce(run))
    return Line(f"diskless produce, {name}", many, raw, [
        Ratio(number="P9", about=f"diskless produce, {name} / raw puts of the same objects",
              aim=P9_AIM, value=median_ratio(many, raw)),
        Ratio(number="", about=f"diskless produce, {name}, one connection / {CONNECTIONS}",
              aim=ONE_AIM, value=median_ratio(one, many))])


def produced(node: DisklessNode, run: BenchRun) -> tuple[Measured, Counted]:
    """Produce, and what the node has counted meanwhile."""
    before = node.counted()
    found = runs.broker_produce(run)
    return found, node.counted().since(before)


def object_size(counted: Counted) -> int:
    """The mean size of a node's objects."""
    if not counted.puts:
        raise BenchError("the node has stored no objects")
    return counted.put_bytes // counted.puts
