"""The reader: right with many writers, one get for all who want the same, and never other bytes."""

import asyncio
from contextlib import suppress

import pytest

from quipu.diskless.reading import loads
from quipu.diskless.reading.reader import DisklessRead, ReaderLimits
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.model.errors import Code, ErrorKind, OffsetOutOfRange, QuipuError, RecordsInTier
from quipu.model.ids import Offset
from tests.diskless.faults import Fault
from tests.diskless.nodes import LOG, TOPIC, Node, batches, memory_world, read
from tests.looped import timeless

SOON = WriterLimits(flush_interval_ms=10)


async def filled(count: int = 10, *, logs: int = 1, limits: ReaderLimits | None = None) -> (
        tuple[Node, Node]):
    """A node that has written one object for each value, and another that has read nothing."""
    world = memory_world()
    writer, other = await world.node(1, limits=SOON), await world.node(2, reader_limits=limits)
    for number in range(count):
        await asyncio.gather(*(writer.append(f"v{number}", log=LogKey(TOPIC, partition))
                               for partition in range(logs)))
    return writer, other


@timeless
async def test_own_commits_are_read_without_asking() -> None:
    """D5: neither the store nor the control plane, if everything is known."""
    writer, other = await filled()
    writer.plane.calls.clear()
    answer = writer.reader.read(LOG, Offset(3), 1 << 20, min_one=True)
    assert isinstance(answer, DisklessRead)
    assert [header.base_offset for header, _ in batches(answer.buffers)] == list(range(3, 10))
    assert answer.bounds.high_watermark == 10
    assert (writer.store.calls["get"], writer.plane.calls["find"]) == (0, 0)
    await writer.close()
    await other.close()


@timeless
async def test_what_others_wrote_is_found_and_read_once() -> None:
    """D5: later reads come from the cache."""
    writer, other = await filled()
    assert await other.values() == [f"v{number}" for number in range(10)]
    gets, finds = other.store.calls["get"], other.plane.calls["find"]
    assert (gets, finds) == (10, 1)
    assert await other.values(max_bytes=1) == [f"v{number}" for number in range(10)]
    assert (other.store.calls["get"], other.plane.calls["find"]) == (gets, finds)
    await writer.close()
    await other.close()


@timeless
async def test_a_cache_behind_another_writer_stays_right() -> None:
    """D5, diskless.R2: two nodes write in turns; each reads the order of both."""
    world = memory_world()
    nodes = [await world.node(number, limits=SOON) for number in (1, 2)]
    for number in range(20):
        await nodes[number % 2].append(f"v{number}")
        if number % 3 == 0:
            for node in nodes:
                assert await node.values() == [f"v{each}" for each in range(number + 1)]
    for node in nodes:
        assert await node.values(max_bytes=200) == [f"v{each}" for each in range(20)]
        await node.close()


@timeless
async def test_a_waiting_fetch_is_woken_by_a_commit_of_any_node() -> None:
    """D5, diskless.R12: the end is empty until then."""
    writer, other = await filled(2)
    answer = await other.read(2)
    assert (answer.size, answer.bounds.high_watermark) == (0, 2)
    other.advanced.clear()
    await writer.append("more")
    await asyncio.sleep(0)
    assert other.advanced == [LOG]
    assert (await other.read(2)).bounds.high_watermark == 3
    await writer.close()
    await other.close()


@timeless
async def test_a_lost_notification_is_made_up_for_by_asking() -> None:
    """D5, diskless.R12: of logs that are read at their end, every second."""
    writer, other = await filled(2)
    await other.read(2)
    assert other.reader._unwatch is not None
    other.reader._unwatch()  # as if the connection were lost
    other.advanced.clear()
    await writer.append("more")
    await asyncio.sleep(2.5)
    assert other.advanced == [LOG]
    other.reader._noticed(None, Offset(0))  # the connection is back
    await asyncio.sleep(0.1)
    asked = other.reader.stats.bounds_asked
    await asyncio.sleep(5)
    assert other.reader.stats.bounds_asked == asked  # nobody reads at the end any more
    await writer.close()
    await other.close()


@timeless
async def test_a_log_start_that_another_node_moved_is_learnt() -> None:
    """D5, diskless.R12: by whoever reads the log, also if all that is read is held."""
    writer, other = await filled(6)
    await other.values()
    await writer.plane.delete_records(LOG, Offset(4), 0)
    for _ in range(3):
        with suppress(OffsetOutOfRange):
            await other.read(1)
        await asyncio.sleep(1)
    with pytest.raises(OffsetOutOfRange):
        await other.read(1)
    await writer.close()
    await other.close()


@timeless
async def test_out_of_range_is_never_said_from_old_knowledge() -> None:
    """D5, diskless.R9: above the known end, the control plane is asked."""
    writer, other = await filled(2)
    await other.read(0)
    assert other.reader._unwatch is not None
    other.reader._unwatch()
    for number in range(3):
        await writer.append(f"more{number}")
    bounds = other.reader.bounds(LOG)
    assert bounds is not None
    assert bounds.high_watermark == 2
    assert (await other.read(4)).size > 0
    with pytest.raises(OffsetOutOfRange):
        await other.read(6)
    with pytest.raises(OffsetOutOfRange):
        await other.read(-1)
    with pytest.raises(QuipuError) as unknown:
        await other.read(0, log=LogKey(TOPIC, 77))
    assert unknown.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
    await writer.close()
    await other.close()


@timeless
async def test_below_the_start_records_are_gone_or_in_the_tier() -> None:
    """D5: two different errors; what is left can be read."""
    writer, other = await filled(6)
    await other.values()
    await writer.plane.delete_records(LOG, Offset(2), 0)
    claim = await writer.plane.claim_tiering(LOG, "me", 0, 1000)
    await writer.plane.note_tiered(claim, Offset(4), 0)
    await other.reader.refresh([LOG])
    for offset, error in ((1, OffsetOutOfRange), (2, RecordsInTier), (3, RecordsInTier)):
        with pytest.raises(OffsetOutOfRange) as failed:
            await other.read(offset)
        assert type(failed.value) is error
    assert (await other.read(4)).bounds.log_start_offset == 2
    with pytest.raises(RecordsInTier):  # also if nothing was known before
        await read((await filled_reader(writer)).reader, 3)
    await writer.close()
    await other.close()


async def filled_reader(node: Node) -> Node:
    """Another node over the same store and control plane."""
    return Node(node.store, node.plane, node_id=9)


@timeless
async def test_concurrent_readers_share_one_get() -> None:
    """D5, diskless.R6, diskless.R11: of the same offset, and of logs in the same object."""
    writer, other = await filled(1, logs=4)
    other.store.get_seconds = 0.1
    answers = await asyncio.gather(*(
        other.read(log=LogKey(TOPIC, number % 4)) for number in range(40)))
    assert all(answer.size > 0 for answer in answers)
    assert (other.store.calls["get"], other.plane.calls["find"]) == (1, 1)
    await writer.close()
    await other.close()


@timeless
async def test_hot_and_cold_reads_do_not_wait_for_each_other() -> None:
    """D5, diskless.R7: many cold reads hang; a recent record is read nevertheless."""
    limits = ReaderLimits(hot_reads_max=2, cold_reads_max=2, pending_max=8, read_ms_max=5000)
    writer, other = await filled(10, limits=limits)
    await other.reader.refresh([LOG])
    other.store.get_seconds = 1.0
    cold = [asyncio.ensure_future(other.read(number, 1)) for number in range(8)]
    await asyncio.sleep(0.01)
    with pytest.raises(QuipuError) as refused:  # diskless.R11
        await other.read(9)
    assert (refused.value.code, refused.value.kind) == (Code.KAFKA_STORAGE_ERROR, ErrorKind.RETRY)
    await writer.append("new")
    began = asyncio.get_running_loop().time()
    assert (await other.read(10)).size > 0
    assert asyncio.get_running_loop().time() - began < 1.1
    assert not all(task.done() for task in cold)
    await asyncio.gather(*cold)
    assert other.store.getting_most == 3
    await writer.close()
    await other.close()


@timeless
async def test_a_read_ends_in_bounded_time() -> None:
    """D5, diskless.R11: a store without answers is an error that clients retry."""
    writer, other = await filled(3, limits=ReaderLimits(read_ms_max=2000))
    other.store.get_faults.plan(then=Fault.STALL)
    began = asyncio.get_running_loop().time()
    with pytest.raises(QuipuError) as failed:
        await other.read(0)
    assert asyncio.get_running_loop().time() - began < 2.1
    assert (failed.value.code, failed.value.kind) == (Code.KAFKA_STORAGE_ERROR, ErrorKind.RETRY)
    await writer.close()
    await other.close()


@timeless
async def test_passing_errors_are_retried_and_then_told() -> None:
    """D5, diskless.R6: of the store, and of the control plane; an error is not kept."""
    writer, other = await filled(3)
    other.store.get_faults.plan(Fault.REFUSE, Fault.REFUSE)
    assert (await other.read(0, 1)).size > 0
    other.store.get_faults.plan(*[Fault.REFUSE] * 3)
    with pytest.raises(QuipuError):
        await other.read(1, 1)
    assert (await other.read(1, 1)).size > 0
    another = await filled_reader(writer)
    another.plane.find_faults.plan(Fault.REFUSE)
    with pytest.raises(QuipuError) as failed:
        await another.read(0)
    assert failed.value.kind is ErrorKind.RETRY
    assert (await another.read(0)).size > 0
    for node in (writer, other, another):
        await node.close()


@timeless
async def test_an_object_that_has_gone_is_looked_for_once_more() -> None:
    """D5, diskless.R10: its batches may have moved; else the client tries again."""
    writer, other = await filled(3)
    other.store.get_faults.plan(Fault.MISS)
    assert (await other.read(0, 1)).size > 0
    assert (other.reader.stats.missing, other.plane.calls["find"]) == (1, 2)
    other.store.get_faults.plan(Fault.MISS, Fault.MISS)
    with pytest.raises(QuipuError) as failed:
        await other.read(1, 1)
    assert (failed.value.code, failed.value.kind) == (Code.KAFKA_STORAGE_ERROR, ErrorKind.RETRY)
    await writer.close()
    await other.close()


@timeless
async def test_damaged_bytes_are_never_returned() -> None:
    """D5, diskless.R8: read once more; then an error, for that partition alone."""
    writer, other = await filled(2, logs=2)
    other.store.get_faults.plan(Fault.FLIP)
    assert (await other.read(0, 1)).size > 0
    info = max((await writer.store.list("objects/")).objects, key=lambda each: each.key[-16:])
    data = bytearray(await writer.store.get(info.key))
    data[16 + 61 + 3] ^= 1  # in the records of the first log
    await writer.store.delete([info.key])
    await writer.store.put(info.key, [data])
    one, two = await asyncio.gather(other.read(1, 1), other.read(1, 1, log=LogKey(TOPIC, 1)),
                                    return_exceptions=True)
    assert isinstance(one, QuipuError)
    assert one.code == Code.CORRUPT_MESSAGE
    assert isinstance(two, DisklessRead)
    assert two.size > 0
    await writer.close()
    await other.close()


@timeless
async def test_a_sequential_reader_has_the_next_objects_read_ahead() -> None:
    """D5: once it goes on where it had stopped; it waits for the first reads alone."""
    writer, other = await filled(60)
    size = (await other.read(0, 1)).size
    waited = []
    for number in range(1, 60):
        await asyncio.sleep(0.01)
        before = other.reader.stats.pending
        assert (await other.read(number, size + 1)).size > 0
        waited.append(other.reader.stats.pending > before)
    assert other.reader.stats.read_ahead > 40
    assert sum(waited) <= 2
    await writer.close()
    await other.close()


@timeless
async def test_a_long_run_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: and a batch that is larger than a part, whole."""
    monkeypatch.setattr(loads, "BLOCK_SIZE", 1000)
    world = memory_world()
    writer, other = await world.node(1), await world.node(2)
    values = [f"v{number}" + "x" * (5000 if number == 7 else 200) for number in range(20)]
    await asyncio.gather(*(writer.append(value) for value in values))
    assert await other.values() == values
    another = await filled_reader(writer)
    answer = await another.read(15, 500)
    assert next(batches(answer.buffers))[0].base_offset == 15
    assert await another.values(max_bytes=1) == values
    for node in (writer, other, another):
        await node.close()


@timeless
async def test_a_small_cache_serves_what_it_cannot_hold() -> None:
    """D5, diskless.R5: reads hold their bytes until they are answered."""
    writer, other = await filled(10, limits=ReaderLimits(cache_bytes=100))
    assert await other.values() == [f"v{number}" for number in range(10)]
    assert await other.values(max_bytes=1) == [f"v{number}" for number in range(10)]
    await writer.close()
    await other.close()


@timeless
async def test_closing_ends_reads_with_an_error() -> None:
    """D5: nobody waits for ever."""
    writer, other = await filled(2)
    other.store.get_seconds = 100.0
    waiting = asyncio.ensure_future(other.read(0))
    await asyncio.sleep(0.1)
    await other.reader.close()
    with pytest.raises(QuipuError):
        await waiting
    await writer.close()
