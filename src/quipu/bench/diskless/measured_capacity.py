"""Counts what a real cluster does for a load whose cost was predicted (capacity.py).

One node in each rack.  A producer for each node sends it batches at fixed times, for all
partitions in turn, whether or not it responds; a consumer at each node reads all partitions at
their end, and ends when it has all records.  What the nodes and PostgreSQL have counted meanwhile
does not depend on the speed of the machine, as long as it keeps up with the rate.

The nodes begin one after the other, so that their objects come evenly.
"""

import contextlib
import time
from typing import Any, Final, NamedTuple
from uuid import uuid4

from quipu.bench.closed_loop import LoadCounter, Producer
from quipu.bench.control import connect, create_led_topic, produce_version
from quipu.bench.diskless.capacity import (
    GIB,
    Capacity,
    DisklessLoad,
    batches_per_object,
    capacity,
)
from quipu.bench.diskless.cluster import DisklessCluster, diskless_cluster
from quipu.bench.diskless.nodes import TOPIC_SETTINGS, Counted
from quipu.bench.errors import BenchError
from quipu.bench.frames import FETCH_VERSION, ProduceBatch, ProduceFrame, produce_frame
from quipu.bench.open_loop import receive_until
from quipu.bench.processes import in_children
from quipu.client.connection import BrokerConnection
from quipu.client.settings import client_settings
from quipu.model.errors import Code
from quipu.model.settings_types import Address
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from quipu.wire.record_batch import parse_header

START_SECONDS: Final = 1.0  # for the processes of the load
SILENCE_SECONDS_MAX: Final = 60.0
FETCH_SIZE: Final = 50 << 20  # as stock consumers ask for: of a response, and of a partition in it
PARTITION_SIZE: Final = 1 << 20
FETCH_WAIT_MS: Final = 500


class MeasuredCapacity(NamedTuple):
    """A prediction, and what was counted while the load ran."""

    load: DisklessLoad
    predicted: Capacity
    counted: Counted
    object_rows: int
    run_rows: int

    def rows(self) -> list[dict[str, object]]:
        """The counts for each GiB, as predicted and as measured."""
        predicted, counted = self.predicted, self.counted
        values = [
            ("puts", predicted.puts, counted.puts - counted.receipt_objects),
            ("bytes put", predicted.put_bytes, counted.put_bytes),
            ("commits", predicted.commits, counted.commits),
            ("finds", predicted.finds, counted.finds),
            ("gets", predicted.gets, counted.gets),
            ("bytes got", predicted.get_bytes, counted.get_bytes),
            ("rows of objects", predicted.object_rows, self.object_rows),
            ("rows of runs", predicted.run_rows, self.run_rows),
        ]
        load = f"{self.load.partitions} partitions, {self.load.flush_interval_ms} ms"
        return [{
            "load": load, "for each GiB": name, "predicted": round(expected),
            "measured": round(found * GIB / counted.batch_bytes),
            "difference": f"{found * GIB / counted.batch_bytes / expected - 1:+.1%}",
        } for name, expected, found in values]


def measure(load: DisklessLoad, batch: ProduceBatch, objects: int) -> MeasuredCapacity:
    """Let each node of a new cluster write so many objects of this batch."""
    assert len(batch.data) == load.batch_size, load
    assert load.brokers_per_rack == 1, load
    assert load.reading_racks is None, load
    predicted = capacity(load)
    with diskless_cluster(load.racks, {
            "diskless.flush.interval.ms": str(load.flush_interval_ms),
            "diskless.flush.bytes": str(load.flush_bytes)}) as cluster:
        before = cluster.counted()
        _run(cluster, load, batch, predicted.batches_per_object * objects)
        counted = cluster.counted().since(before)
        return MeasuredCapacity(load, predicted, counted, *_rows(cluster.control_plane_url))


def _run(
    cluster: DisklessCluster, load: DisklessLoad, batch: ProduceBatch, batches: int
) -> None:
    """Produce so many batches to each node, and read them all at each."""
    topic = f"quipu-bench-{uuid4().hex[:12]}"
    with connect(cluster.addresses[0]) as client:
        version = produce_version(client)
        create_led_topic(client, topic, load.partitions, TOPIC_SETTINGS)
    frames = [produce_frame(topic, partition, batch, acks=-1, version=version)
              for partition in range(load.partitions)]
    begins = time.time() + START_SECONDS
    apart = batches_per_object(load) / load.batches_per_second / load.racks
    in_children([
        *((_produce, (address, frames, load.batches_per_second, batches,
                      begins + START_SECONDS + number * apart))
          for number, address in enumerate(cluster.addresses)),
        *((_consume, (address, topic, load.partitions,
                      batches * load.racks * batch.record_count))
          for address in cluster.addresses)])


def _produce(
    address: Address, frames: list[ProduceFrame], rate: float, count: int, begins: float
) -> None:
    """Send `count` batches at fixed times from `begins` on, a time of day."""
    counter = LoadCounter()
    producer = Producer(address, frames, 0, counter)
    producer.stop()  # from here on it sends only by `request`
    start = time.perf_counter() + begins - time.time()
    with contextlib.closing(producer.socket):
        for index in range(count):
            due = start + index / rate
            receive_until(producer, due)
            producer.request(1, due)
        deadline = time.perf_counter() + SILENCE_SECONDS_MAX
        while counter.requests < count:
            if time.perf_counter() > deadline:
                raise BenchError(f"{address}: {count - counter.requests} of {count} batches were "
                                 "not acknowledged")
            receive_until(producer, time.perf_counter() + 0.1)


def _consume(address: Address, topic: str, partitions: int, count: int) -> None:
    """Read `count` records of one node, which need not lead the partitions."""
    connection = BrokerConnection(address, client_settings({"bootstrap.servers": str(address)}))
    offsets = dict.fromkeys(range(partitions), 0)
    deadline = time.perf_counter() + SILENCE_SECONDS_MAX
    with contextlib.closing(connection):
        while sum(offsets.values()) < count:
            if time.perf_counter() > deadline:
                raise BenchError(f"{address}: no new records for {SILENCE_SECONDS_MAX:.0f} s")
            if _fetch(connection, topic, offsets):
                deadline = time.perf_counter() + SILENCE_SECONDS_MAX


def _fetch(connection: BrokerConnection, topic: str, offsets: dict[int, int]) -> bool:
    """Ask for what follows, and go on; whether there was something."""
    request = FetchRequest(
        max_wait=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_SIZE,
        topics=[FetchTopic(topic=topic, partitions=[
            FetchPartition(partition=number, fetch_offset=offset,
                           partition_max_bytes=PARTITION_SIZE)
            for number, offset in offsets.items()])])
    found = False
    for answer in connection.ask(request, FetchResponse, highest=FETCH_VERSION).responses:
        for each in answer.partitions:
            if each.error_code != Code.NONE:
                raise BenchError(f"{topic}: Fetch failed: {Code(each.error_code).name}")
            records, position = memoryview(each.records or b""), 0
            while position < len(records):
                header = parse_header(records, position)
                offsets[each.partition_index] = header.last_offset + 1
                position += header.size
                found = True
    return found


def _rows(url: str) -> tuple[int, int]:
    """Rows of the control plane: objects with batches, and their runs."""
    import psycopg  # noqa: PLC0415 only where there is a cluster

    connection: psycopg.Connection[Any]
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT (SELECT count(*) FROM diskless_objects WHERE run_count > 0), "
            "(SELECT count(*) FROM diskless_runs)").fetchone()
    assert found is not None
    return int(found[0]), int(found[1])
