"""The table that `make bench` prints: each kind of work as a ratio to the machine's own limit.

    P1:   large batches           throughput / receive + append
    P2:   16 KiB batches          broker CPU per GB / receive + append + CRC
    P3:   one small record        requests / bare echo server, one request in flight each
    P4:   fetch of old data       throughput / sendfile
    P5:   fetch at the tail       throughput / bare fan-out, many consumers
    P6:   1000 requests a second  produce p99 / echo p99
    P7:   fsync per response      batches / (fdatasync rate * batches that wait for one)
    P8:   chain of 3, acks=all    throughput / (the single node's / 3): all share the same cores
    P9:   diskless produce        throughput / raw puts of the same objects (diskless/produce.py)
    P10:  control-plane commits   commits / bare transactions of the rows (diskless/commits.py)
    P11:  fetch from the tier     throughput / raw ranged gets of the same objects (tier.py)
    P15:  many partitions, many connections: CPU per request / the same with few
    P16:  rotated orders          throughput / that of a fixed order, 3 and 5 nodes (orders.py)
    compaction: produce while it runs all the time / while it does not (compaction.py)

Broker and limit are measured alternately, ROUNDS times, and of each the best round counts: other
load on the machine can only make a round worse.  P9 to P11 and compaction show medians of the
ratios of neighbouring rounds.  Windows end after SIZE_MAX bytes, so that both
sides use the same warm pages of the page cache; only the topic of P7 flushes its log.

Nothing asserts on time; the table says whether a ratio meets its aim.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from quipu.bench import limits, orders, runs
from quipu.bench.compaction import produce_while_compacting
from quipu.bench.diskless.commits import p10_one, p10_several
from quipu.bench.diskless.produce import p9_directory, p9_s3
from quipu.bench.frames import fetch_frame
from quipu.bench.lines import Line, Series
from quipu.bench.measured import Measured
from quipu.bench.processes import in_child
from quipu.bench.report import Ratio, ratio
from quipu.bench.runs import BenchRun, RunLoad
from quipu.bench.tail import run_tail
from quipu.bench.target import Target, temporary_chain
from quipu.bench.tier import p11_directory, p11_s3

ROUNDS: Final = 3
SIZE_MAX: Final = 384 << 20
WARM_SIZE: Final = 1 << 30
CONSUMERS: Final = 16
FEW: Final = 16
MANY: Final = 1000
FSYNC_IN_FLIGHT: Final = 32
CACHE_ONLY: Final = {"flush.ms": str(2**63 - 1)}  # leave writing to the kernel, as the limits do
FSYNC_GROUP: Final = FSYNC_IN_FLIGHT // 2  # the other half arrives while a sync runs
RATE_ROUNDS: Final = 2
CHAIN_LENGTH: Final = 3


def warm_up(directory: str) -> None:
    """Write and delete a file, so that the kernel has allocated pages for the page cache."""
    path = Path(directory) / "warm"
    piece = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(WARM_SIZE // len(piece)):
            file.write(piece)
    path.unlink()


def in_turns(
    target: Target, load: RunLoad, limit: Callable[[BenchRun], Measured],
    broker: Callable[[BenchRun], Measured], rounds: int = ROUNDS,
) -> tuple[Series, Series]:
    """(broker, limit), measured alternately; each round has a topic of its own."""
    found, limited = Series(), Series()
    for _ in range(rounds):
        with runs.bench_run(target, load) as run:
            limited.rounds.append(limit(run))
            found.rounds.append(broker(run))
    return found, limited


def p1(target: Target, directory: str, *, batch_size: int, pipeline: int) -> Line:
    """Large batches, one connection."""
    load = RunLoad(
        seconds=2.0, batch_size=batch_size, pipeline=pipeline, size_max=SIZE_MAX,
        configs=CACHE_ONLY)
    broker, limit = in_turns(
        target, load, lambda run: runs.limit_append(run, directory), runs.broker_produce)
    share = ratio(broker.megabytes, limit.megabytes)
    name = f"produce, {batch_size >> 10} KiB batches"
    return Line(name, broker, limit, [
        Ratio(number="P1", about=f"{name} / receive + append", value=share, aim=0.8)])


def p2(target: Target, directory: str) -> Line:
    """CPU per GB of medium batches, without flushing and with the node's flush.ms."""
    load = RunLoad(
        seconds=2.0, record_size=100, batch_size=16 << 10, pipeline=16, size_max=SIZE_MAX,
        configs=CACHE_ONLY)
    broker, limit = in_turns(
        target, load, lambda run: runs.limit_append(run, directory, by_request=True),
        runs.broker_produce)
    flushed = Series()
    with runs.bench_run(target, replace(load, configs={})) as run:
        flushed.rounds.append(runs.broker_produce(run))
    crc = limits.crc(load.batch()).cpu_seconds_per_gigabyte
    append = limit.cpu_per_gigabyte
    floor = None if crc is None or append is None else crc + append
    return Line("produce, 16 KiB batches of 100 B", broker, limit, [
        Ratio(number="P2", about="CPU per GB, 16 KiB batches / receive + append + CRC",
              value=ratio(broker.cpu_per_gigabyte, floor), aim=1.5, better="lower"),
        Ratio(number="", about="the same with the broker's own flush.ms / without flushing",
              value=ratio(flushed.cpu_per_gigabyte, broker.cpu_per_gigabyte), better="lower")])


def p3(target: Target, _directory: str) -> Line:
    """Requests so small that only the cost per request counts."""
    load = RunLoad(seconds=1.5, record_size=100, batch_size=1, connections=32, pipeline=1,
                configs=CACHE_ONLY)
    broker, limit = in_turns(target, load, runs.limit_echo, runs.broker_produce)
    return Line("produce, one 100 B record", broker, limit, [
        Ratio(number="P3", about="requests of one 100 B record / bare echo server",
              value=ratio(broker.requests, limit.requests), aim=0.5),
        Ratio(number="", about="the same by CPU: echo / broker, per request",
              value=ratio(limit.cpu_per_1000_requests, broker.cpu_per_1000_requests))])


def p4(target: Target, directory: str) -> Line:
    """Old data in large pieces."""
    load = RunLoad(seconds=1.5, preload_size=128 << 20)
    found, limited = Series(), Series()
    with runs.bench_run(target, load) as run:
        runs.preload(run)
        for _ in range(ROUNDS):
            limited.rounds.append(runs.limit_send(run, directory, by_sendfile=True))
            found.rounds.append(runs.broker_consume(run))
    return Line("fetch of old data, 1 MiB", found, limited, [
        Ratio(number="P4", about="fetch of old data, 1 MiB / sendfile", aim=0.8,
              value=ratio(found.megabytes, limited.megabytes)),
        Ratio(number="", about="the same by CPU: sendfile / broker, per GB",
              value=ratio(limited.cpu_per_gigabyte, found.cpu_per_gigabyte))])


def p5(target: Target, _directory: str) -> Line:
    """New data to many consumers at once."""
    load = RunLoad(seconds=1.5, batch_size=64 << 10)

    def limit(run: BenchRun) -> Measured:
        return limits.fan_out(
            run.produce_frame(), fetch_frame(run.topic, 0, size_max=len(run.batch.data)),
            run.batch, topic=run.topic, consumers=CONSUMERS, window=run.limit_window())

    def broker(run: BenchRun) -> Measured:
        found: Measured = in_child(
            run_tail, run.leaders[0], run.produce_frame(),
            fetch_frame(run.topic, 0, size_max=len(run.batch.data)), CONSUMERS, run.window())
        return found

    found, limited = in_turns(target, load, limit, broker)
    return Line(f"fetch at the tail, {CONSUMERS} consumers", found, limited, [
        Ratio(number="P5", about=f"fetch at the tail, {CONSUMERS} consumers / bare fan-out",
              value=ratio(found.megabytes, limited.megabytes), aim=0.6)])


def p6(target: Target, _directory: str) -> Line:
    """Latency at a rate below the broker's capacity."""
    load = RunLoad(seconds=3.0, record_size=100, batch_size=1, rate=1000.0)

    def limit(run: BenchRun) -> Measured:
        window = run.limit_window()
        return limits.echo_at_rate(run.produce_frame(), rate=load.rate, window=window).produce

    found, limited = in_turns(
        target, load, limit, lambda run: runs.broker_latency(run).produce, RATE_ROUNDS)
    return Line("produce at 1000/s", found, limited, [
        Ratio(number="P6", about="produce p99 at 1000/s / echo p99", aim=2.0, better="lower",
              value=ratio(found.p99_us, limited.p99_us))])


def p7(target: Target, directory: str) -> Line:
    """Responses wait for fsync; many batches share one."""
    load = RunLoad(
        seconds=1.5, batch_size=16 << 10, acks=-1, connections=FSYNC_IN_FLIGHT, pipeline=1,
        configs={"flush.messages": "1"})

    def limit(run: BenchRun) -> Measured:
        size = FSYNC_GROUP * len(run.batch.data)
        found = limits.fdatasync(directory, size, seconds=load.seconds)
        return replace(found, requests=found.requests * FSYNC_GROUP)  # the number of batches

    found, limited = in_turns(target, load, limit, runs.broker_produce)
    return Line(f"acks=all with fsync, {FSYNC_IN_FLIGHT} in flight", found, limited, [
        Ratio(number="P7", about="batches kept by fsync / fdatasync rate * batch group",
              value=ratio(found.requests, limited.requests), aim=0.8)])


def p8(target: Target, _directory: str) -> Line:
    """A chain of three nodes on the cores of one; also with one batch in flight at a time."""
    load = RunLoad(seconds=2.0, batch_size=64 << 10, acks=-1, pipeline=16, size_max=SIZE_MAX,
                configs=CACHE_ONLY)
    slow = replace(load, pipeline=1)
    rate = RunLoad(seconds=2.0, record_size=100, batch_size=1, acks=-1, rate=300.0)
    alone, chained, waiting = Series(), Series(), Series()
    latency_alone, latency_chained = Series(), Series()
    with temporary_chain(CHAIN_LENGTH) as chain:
        for _ in range(ROUNDS):
            for broker, one_load, series in (
                    (target, load, alone), (chain, load, chained), (chain, slow, waiting)):
                with runs.bench_run(broker, one_load) as run:
                    series.rounds.append(runs.broker_produce(run))
        for broker, series in ((target, latency_alone), (chain, latency_chained)):
            with runs.bench_run(broker, rate) as run:
                series.rounds.append(runs.broker_latency(run).produce)
    steps = CHAIN_LENGTH - 1
    added = (latency_chained.p50_us - latency_alone.p50_us) / steps
    return Line(f"chain of {CHAIN_LENGTH}, acks=all, 64 KiB batches", chained, alone, [
        Ratio(number="P8", about="chain of 3, acks=all / a single node's third", aim=0.8,
              value=ratio(chained.megabytes, alone.megabytes / CHAIN_LENGTH)),
        Ratio(number="", about="the same by CPU per GB: three single nodes / the chain",
              value=ratio(CHAIN_LENGTH * (alone.cpu_per_gigabyte or 0.0),
                          chained.cpu_per_gigabyte)),
        Ratio(number="", about="the same / one batch in flight at a time",
              value=ratio(chained.megabytes, waiting.megabytes)),
        Ratio(number="", about="latency that each further node adds / that of a single node",
              value=ratio(added, latency_alone.p50_us), better="lower")])


def p15_partitions(target: Target, _directory: str) -> Line:
    """CPU of a request to one of many partitions, against one partition."""
    few = RunLoad(seconds=1.5, record_size=100, batch_size=1000, pipeline=16, connections=1,
               configs=CACHE_ONLY)
    many = replace(few, partitions=MANY)
    return _growth(target, few, many, f"{MANY} partitions / 1")


def p15_connections(target: Target, _directory: str) -> Line:
    """CPU of a request among many connections, against few."""
    few = RunLoad(seconds=1.5, record_size=100, batch_size=1000, pipeline=1, connections=FEW,
               configs=CACHE_ONLY)
    many = replace(few, connections=MANY)
    return _growth(target, few, many, f"{MANY} connections / {FEW}")


def _growth(target: Target, few: RunLoad, many: RunLoad, name: str) -> Line:
    small, large = Series(), Series()
    for _ in range(ROUNDS - 1):
        for load, series in ((few, small), (many, large)):
            with runs.bench_run(target, load) as run:
                series.rounds.append(runs.broker_produce(run))
    return Line(name, large, small, [
        Ratio(number="P15", about=f"CPU per request, {name}", aim=1.3, better="lower",
              value=ratio(large.cpu_per_1000_requests, small.cpu_per_1000_requests))])


Measure = Callable[[Target, str], Line | None]  # None: what it needs is not installed


def _p1_64k(target: Target, directory: str) -> Line:
    return p1(target, directory, batch_size=64 << 10, pipeline=8)


def _p1_1m(target: Target, directory: str) -> Line:
    return p1(target, directory, batch_size=1 << 20, pipeline=4)


LINES: Final[dict[str, tuple[Measure, ...]]] = {
    "P1": (_p1_64k, _p1_1m), "P2": (p2,), "P3": (p3,), "P4": (p4,), "P5": (p5,), "P6": (p6,),
    "P7": (p7,), "P8": (p8,), "P9": (p9_directory, p9_s3), "P10": (p10_one, p10_several),
    "P11": (p11_s3, p11_directory),
    "P15": (p15_partitions, p15_connections), "P16": orders.MEASURES,
    "compaction": (produce_while_compacting,),
}
