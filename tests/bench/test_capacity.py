"""What diskless topics cost, as predicted, beside the writer's own core and a real cluster."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from quipu.bench.diskless.capacity import GIB, DisklessLoad, capacity
from quipu.bench.diskless.capacity_command import capacity as command
from quipu.bench.diskless.measured_capacity import measure
from quipu.bench.errors import BenchError
from quipu.bench.frames import make_batch
from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.receipts import LogNote, Receipt
from quipu.diskless.values import LogKey
from quipu.diskless.writing.buffer import Flush, WriteBuffer
from quipu.diskless.writing.encoding import encode_flush
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.receipts import TakenReceipts
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId, Offset
from quipu.wire.record_batch import parse_header

TOPIC = UUID(int=7)
BATCH = make_batch(record_size=900, batch_size=1).data
LOAD = DisklessLoad(racks=3, partitions=12, batch_size=len(BATCH), batches_per_second=95.0)
OBJECTS = 4


def flushes(load: DisklessLoad) -> list[Flush]:
    """The first objects of one broker: its writer's core, with batches that come evenly."""
    buffer = WriteBuffer(WriterLimits(
        flush_interval_ms=load.flush_interval_ms, flush_bytes=load.flush_bytes,
        flush_batches=load.flush_batches))
    header = parse_header(memoryview(BATCH))
    found: list[Flush] = []
    number, due = 0, float("inf")
    while len(found) < OBJECTS:
        now = number / load.batches_per_second
        if now >= due:  # the timer of the writer is before the batch
            found.append(buffer.take())
        log = LogKey(TOPIC, number % load.partitions)
        if buffer.add(log, memoryview(BATCH), header, _done, now=now):
            found.append(buffer.take())
        left = buffer.flush_in(now, 0)
        due = float("inf") if left is None else now + left
        number += 1
    return found


def _done(_: BatchOutcome | QuipuError) -> None:
    """Nobody waits."""


def object_size(flush: Flush) -> int:
    """Bytes of an object that follows one with as many logs and batches."""
    name = ObjectName(NodeId(1), TOPIC, 1)
    receipt = Receipt(name, (Offset(0),) * flush.count)
    notes = [LogNote(each.log, Offset(0), Offset(1)) for each in flush.logs]
    return encode_flush(name, flush, TakenReceipts([receipt], notes), 0).new.size


@given(
    partitions=st.integers(1, 200), rate=st.floats(0.5, 500.0),
    interval=st.sampled_from([10, 100, 250, 777]), flush_bytes=st.sampled_from([1 << 16, 1 << 22]))
@example(partitions=12, rate=95.0, interval=500, flush_bytes=4 << 20)
@example(partitions=5, rate=0.5, interval=10, flush_bytes=1 << 16)
def test_objects_are_those_of_the_writer(
    partitions: int, rate: float, interval: int, flush_bytes: int
) -> None:
    """D36: bench.C1, as many batches in an object, of as many logs, and as many bytes."""
    load = replace(LOAD, partitions=partitions, batches_per_second=rate,
                   flush_interval_ms=interval, flush_bytes=flush_bytes)
    ticks = interval / 1000 * rate
    assume(abs(ticks - round(ticks)) > 1e-6)  # at the same moment either may come first
    cost = capacity(load)
    for flush in flushes(load):
        assert flush.count == cost.batches_per_object
        assert len(flush.logs) == cost.logs_per_object
        assert object_size(flush) == cost.object_size


def test_all_counts_are_for_each_gib() -> None:
    """D36: one put, commit and row an object; a rack that did not write it reads it once."""
    cost = capacity(LOAD)
    objects = GIB / (cost.batches_per_object * LOAD.batch_size)
    assert (cost.puts, cost.commits, cost.notifications, cost.object_rows) == (objects,) * 4
    assert (cost.run_rows, cost.put_bytes) == (12 * objects, objects * cost.object_size)
    assert cost.gets == cost.finds == pytest.approx(2 * objects)
    assert cost.get_bytes == pytest.approx(2 * GIB)
    assert cost.objects_per_second == 3 * 95.0 / cost.batches_per_object
    assert cost.transactions == pytest.approx(4 * objects)


def test_racks_brokers_and_readers() -> None:
    """D10, D36: a rack's brokers share the partitions, and so the reads of an object."""
    assert capacity(replace(LOAD, racks=1)).gets == 0
    assert capacity(replace(LOAD, reading_racks=0)).get_bytes == 0
    one = capacity(replace(LOAD, reading_racks=1))
    assert one.gets == pytest.approx(2 / 3 * one.puts)
    four = capacity(replace(LOAD, brokers_per_rack=4))
    assert four.logs_per_object == 3
    assert four.gets == pytest.approx(2 * 4 * (1 - 0.75 ** 3) * four.puts)
    assert four.get_bytes == pytest.approx(2 * GIB)
    assert four.objects_per_second == 4 * capacity(LOAD).objects_per_second


def test_a_real_cluster_does_what_was_predicted() -> None:
    """D36: within a tenth, for objects that are full before their interval ends: how many they are
    does not depend on the speed of the machine.
    """
    batch = make_batch(record_size=9000, batch_size=1)
    found = measure(
        DisklessLoad(racks=3, partitions=4, batch_size=len(batch.data), batches_per_second=100.0,
                     flush_interval_ms=60_000, flush_bytes=64 << 10), batch, 6)
    rows = {row["for each GiB"]: row for row in found.rows()}
    assert found.predicted.batches_per_object == 8
    for name in ("puts", "bytes put", "commits", "bytes got", "rows of objects", "rows of runs"):
        assert rows[name]["measured"] == pytest.approx(rows[name]["predicted"], rel=0.1), rows
    assert found.counted.gets >= found.counted.commits


def test_wrong_options_of_the_command() -> None:
    """K9: they are named before anything is started."""
    with pytest.raises(BenchError, match="--intervals '10,x'"):
        command(intervals="10,x")
    with pytest.raises(BenchError, match="--partitions '0'"):
        command(partitions="0")
    with pytest.raises(BenchError, match="leave out --brokers"):
        command(is_measured=True, brokers=2)


def test_the_command_predicts_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """D36: a row for each number of partitions and interval."""
    command(partitions="1,12", intervals="250,500", size=900)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "PUTS/GIB" in lines[0]
    cost = capacity(replace(LOAD, flush_interval_ms=500))
    assert lines[-1].split()[4] == str(round(cost.puts))
