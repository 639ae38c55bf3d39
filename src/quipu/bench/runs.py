"""Measures one of three loads on a broker, and the limits of the machine for that load.

A limit is measured before and after the broker, and the mean of the two counts: the speed of a
machine changes with time, above all if it shares its processors with others.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from quipu.bench import limits, rdkafka
from quipu.bench.closed_loop import Window, run_fetch, run_produce
from quipu.bench.control import connect, create_led_topic, produce_version
from quipu.bench.frames import (
    FetchFrame,
    ProduceBatch,
    ProduceFrame,
    fetch_frame,
    make_batch,
    produce_frame,
)
from quipu.bench.measured import Latency, Measured
from quipu.bench.open_loop import RateMeasured, run_at_rate
from quipu.bench.processes import in_child
from quipu.bench.target import Target
from quipu.client.admin.topics import delete_topic
from quipu.model.settings_types import Address

LIMIT_SECONDS_MAX: Final = 2.0
RETENTION_OFF: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLoad:
    """The load of a run, from the command's options."""

    seconds: float = 5.0
    record_size: int = 1000
    batch_size: int = 64 << 10
    acks: int = 1
    connections: int = 1
    partitions: int = 1
    pipeline: int = 8
    compression: str = "none"
    client: str = "raw"
    rate: float = 1000.0
    fetch_size: int = 1 << 20
    preload_size: int = 256 << 20
    size_max: int = 8 << 30  # of one window: a page cache that fills up slows everything down
    configs: dict[str, str] = field(default_factory=dict)  # of the topic
    is_tiered: bool = False  # old data is read that only the remote tier has

    def batch(self) -> ProduceBatch:
        return make_batch(
            record_size=self.record_size, batch_size=self.batch_size, compression=self.compression
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """A run against a broker: its temporary topic, and the load and frames for it."""

    target: Target
    topic: str
    load: RunLoad
    batch: ProduceBatch
    leaders: list[Address]  # by partition
    produce_version: int

    def under(self, load: RunLoad) -> "BenchRun":
        """The same topic under another load."""
        return replace(self, load=load, batch=load.batch())

    def window(self, seconds: float | None = None) -> Window:
        load = self.load
        return Window(
            seconds=load.seconds if seconds is None else seconds,
            warmup_seconds=min(0.5, load.seconds / 5), size_max=load.size_max,
            server_pid=self.target.pid, other_pids=self.target.other_pids,
        )

    def limit_window(self) -> Window:
        return replace(
            self.window(min(LIMIT_SECONDS_MAX, self.load.seconds)), server_pid=None, other_pids=()
        )

    def produce_frame(self, partition: int = 0) -> ProduceFrame:
        return produce_frame(
            self.topic, partition, self.batch, acks=self.load.acks, version=self.produce_version
        )

    def produce_targets(self) -> list[tuple[Address, list[ProduceFrame]]]:
        """The leader and frames of each connection.

        A connection sends to partitions of one leader; with fewer connections than partitions,
        to several of them.
        """
        by_leader: dict[Address, list[ProduceFrame]] = {}
        for partition, leader in enumerate(self.leaders):
            by_leader.setdefault(leader, []).append(self.produce_frame(partition))
        leaders, connections = list(by_leader), self.load.connections
        targets = []
        for each in range(max(connections, len(leaders))):
            leader = leaders[each % len(leaders)]
            frames = by_leader[leader]
            step = max(1, connections // len(leaders))
            start = each // len(leaders)
            targets.append((leader, frames[start % len(frames) :: min(step, len(frames))]))
        return targets

    def fetch_targets(self) -> list[tuple[Address, FetchFrame]]:
        count = len(self.leaders)
        frames = [
            fetch_frame(self.topic, partition, size_max=self.load.fetch_size)
            for partition in range(count)
        ]
        return [
            (self.leaders[each % count], frames[each % count])
            for each in range(self.load.connections)
        ]

    def client_load(self, **changes: float) -> rdkafka.ClientLoad:
        load = self.load
        made = rdkafka.ClientLoad(
            bootstrap=str(self.target.address), topic=self.topic, partitions=load.partitions,
            value=bytes(load.record_size), batch_size=load.batch_size, acks=load.acks,
            compression=load.compression,
        )
        return replace(made, **changes)  # type: ignore[arg-type]  # only numbers are changed


@contextlib.contextmanager
def bench_run(target: Target, load: RunLoad) -> Iterator[BenchRun]:
    """A run with a topic of its own, which is deleted at the end."""
    topic = f"quipu-bench-{os.getpid()}-{time.time_ns() // 1000 % 10**9}"
    with connect(target.address) as cluster:
        version = produce_version(cluster)
        leaders = create_led_topic(
            cluster, topic, load.partitions, {**RETENTION_OFF, **load.configs})
    try:
        yield BenchRun(
            target=target, topic=topic, load=load, batch=load.batch(), leaders=leaders,
            produce_version=version,
        )
    finally:
        with connect(target.address) as cluster:
            delete_topic(cluster, topic)


# --- the broker -------------------------------------------------------------------------------


def broker_produce(run: BenchRun) -> Measured:
    """Throughput of Produce."""
    if run.load.client == "librdkafka":
        found: Measured = in_child(rdkafka.run_produce, run.client_load(), run.window())
    else:
        found = in_child(run_produce, run.produce_targets(), run.load.pipeline, run.window())
    return found


def preload(run: BenchRun) -> None:
    """Produce old data to every partition, to be read by the run."""
    filler = run.under(replace(run.load, connections=run.load.partitions, acks=1))
    window = Window(seconds=600.0, warmup_seconds=0.0, size_max=run.load.preload_size)
    in_child(run_produce, filler.produce_targets(), 8, window)


def broker_consume(run: BenchRun, *, end: int | None = None) -> Measured:
    """Throughput of Fetch, from the start of the log to its end, or to the offset `end`."""
    if run.load.client == "librdkafka":
        found: Measured = in_child(rdkafka.run_consume, run.client_load(), run.window())
    else:
        found = in_child(run_fetch, run.fetch_targets(), run.load.fetch_size, run.window(), end)
    return found


def broker_latency(run: BenchRun) -> RateMeasured:
    """Latency at a rate: of Produce, and from producer to consumer."""
    load = run.load
    if load.client == "librdkafka":
        found: RateMeasured = in_child(
            rdkafka.run_at_rate, run.client_load(linger_ms=0.0), load.rate, run.window()
        )
    else:
        fetch = fetch_frame(run.topic, 0, size_max=1 << 20)
        found = in_child(
            run_at_rate, run.leaders[0], run.produce_frame(), fetch, load.rate, run.window()
        )
    return found


# --- the machine ------------------------------------------------------------------------------


def limit_append(run: BenchRun, directory: str, *, by_request: bool = False) -> Measured:
    load = run.load
    return limits.append(
        replace(run.produce_frame(), acks=1), connections=load.connections, pipeline=load.pipeline,
        window=run.limit_window(), directory=directory, by_request=by_request,
    )


def limit_echo(run: BenchRun) -> Measured:
    load = run.load
    return limits.echo(
        replace(run.produce_frame(), acks=1), connections=load.connections, pipeline=load.pipeline,
        window=run.limit_window(),
    )


def limit_send(run: BenchRun, directory: str, *, by_sendfile: bool) -> Measured:
    load = run.load
    return limits.send(
        fetch_frame(run.topic, 0, size_max=load.fetch_size), run.batch, topic=run.topic,
        size_max=load.fetch_size, connections=load.connections, window=run.limit_window(),
        directory=directory, by_sendfile=by_sendfile,
    )


def around(limit: Callable[[], Measured], broker: Callable[[], Measured]
           ) -> tuple[Measured, Measured]:
    """Measure a limit, the broker, and the limit again; returns (mean of the limits, broker)."""
    before = limit()
    found = broker()
    return mean(before, limit()), found


def mean(first: Measured, second: Measured) -> Measured:
    """Two measurements as one; with the latencies of the one whose p99 is lower."""
    latencies = [each for each in (first.latency, second.latency) if each is not None]
    return Measured(
        seconds=first.seconds + second.seconds, requests=first.requests + second.requests,
        records=first.records + second.records, size=first.size + second.size,
        latency=min(latencies, key=_p99, default=None),
        server_cpu_seconds=_sum(first.server_cpu_seconds, second.server_cpu_seconds),
        server_resident_bytes=second.server_resident_bytes,
        generator_cpu_seconds=first.generator_cpu_seconds + second.generator_cpu_seconds,
    )


def _p99(latency: Latency) -> float:
    return latency.p99_us


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
