"""The contract of `PartitionLog`: reads, bounds, waits, and what goes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quipu.model.errors import Code, QuipuError
from quipu.model.ids import Epoch, Offset
from quipu.model.partition_log import PendingRead, ReadResult
from tests.contract.partition_log.test_appends import opened
from tests.contract.partition_log.worlds import (
    Waiter,
    World,
    append,
    batch_of,
    begin_append,
    committed,
    read,
    run_here,
    until,
    values_of,
)
from tests.looped import looped

Make = Callable[..., World]


def check_bounds(world: World) -> None:
    """model.P6"""
    for log in (world.log, world.reader):
        assert 0 <= log.log_start_offset <= log.local_start_offset
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
        assert log.high_watermark <= log.log_end_offset
        assert log.highest_tiered_offset < max(log.log_end_offset, 1)
        assert log.committed_end <= log.log_end


@looped
async def test_reads_give_whole_batches_from_the_one_that_holds_the_offset(
    make: Make, tmp_path: Path
) -> None:
    """model.P4: up to the high watermark, with the bounds of that moment."""
    world = await opened(make, tmp_path)
    check_bounds(world)
    await append(world, b"a", b"b")
    await append(world, b"c")
    await committed(world)
    check_bounds(world)
    everything = [(0, b"a"), (1, b"b"), (2, b"c")]
    for offset, want in ((0, everything), (1, everything), (2, everything[2:])):
        result = await read(world, offset)
        assert values_of(result) == want
        assert (result.error_code, result.high_watermark, result.last_stable_offset,
                result.log_start_offset) == (0, 3, 3, 0)


@looped
async def test_the_end_is_empty_and_beyond_it_is_out_of_range(make: Make, tmp_path: Path) -> None:
    """model.P4: at the end a consumer waits; outside of the log it is told where the log is."""
    world = await opened(make, tmp_path)
    await append(world, b"a")
    await committed(world)
    end = await read(world, 1)
    assert (end.error_code, end.buffers, end.size, end.high_watermark) == (0, [], 0, 1)
    for offset in (2, -1):
        beyond = await read(world, offset)
        assert beyond.error_code == Code.OFFSET_OUT_OF_RANGE
        assert (beyond.high_watermark, beyond.log_start_offset) == (1, 0)


@looped
async def test_limits_cut_between_batches_and_the_first_may_be_larger(
    make: Make, tmp_path: Path
) -> None:
    """model.P4: with `min_one` somebody with small limits gets on; without it, limits hold."""
    world = await opened(make, tmp_path)
    for value in (b"a" * 500, b"b" * 500, b"c" * 500):
        await append(world, value)
    await committed(world)
    assert values_of(await read(world, 0, 1, min_one=True)) == [(0, b"a" * 500)]
    assert values_of(await read(world, 0, 1, min_one=False)) == []
    assert values_of(await read(world, 0, 0, min_one=False)) == []
    two = await read(world, 0, 1300, min_one=False)
    count = 1 if "fullness" in world.lacks else 2
    assert [offset for offset, _ in values_of(two)][:count] == [0, 1][:count]
    assert two.size <= 1300
    assert (await read(world, 0, 0, min_one=False)).error_code == 0


@looped
async def test_nothing_has_to_come_for_a_read_that_can_give_nothing(
    make: Make, tmp_path: Path
) -> None:
    """model.P5: the end, an error, or no room for a byte is answered at once."""
    world = await opened(make, tmp_path)
    await append(world, b"a")
    await committed(world)
    for offset, max_bytes in ((1, 1000), (5, 1000), (0, 0)):
        if offset == 5 and "ignorance" in world.lacks:
            continue
        assert isinstance(
            world.reader.read(Offset(offset), max_bytes, min_one=False), ReadResult)


@looped
async def test_a_pending_read_can_be_cancelled(make: Make, tmp_path: Path) -> None:
    """model.P5: then it calls nobody; cancelling again, or after it has arrived, is no error."""
    world = await opened(make, tmp_path)
    await append(world, b"a")
    await committed(world)
    called: list[int] = []
    for wait_first in (False, True):
        pending = world.reader.read(Offset(0), 1000, min_one=True)
        if isinstance(pending, ReadResult):
            return  # it has nothing that comes later
        if wait_first:
            arrived: list[bool] = []
            pending.when_arrived(lambda seen=arrived: seen.append(True))
            await until(world, lambda seen=arrived: seen)
            count = len(called)
        else:
            pending.when_arrived(lambda: called.append(1))
            count = 0
        pending.cancel()
        pending.cancel()
        await world.rig.turns(20)
        assert len(called) == count
        assert_not_kept(world)


def assert_not_kept(world: World) -> None:
    """model.P5: what was cancelled must come anew."""
    if "forgetting" in world.lacks:
        return
    again = world.reader.read(Offset(0), 1000, min_one=True)
    assert not isinstance(again, ReadResult)
    pending: PendingRead = again
    pending.cancel()


@looped
async def test_dirty_reads_see_what_is_not_committed(make: Make, tmp_path: Path) -> None:
    """model.P4: below the log end of the node that is asked."""
    world = await opened(make, tmp_path)
    await append(world, b"a")
    await committed(world)
    world.rig.net.cut(1, 2)
    begin_append(world, batch_of(b"b"))
    await until(world, lambda: world.log.log_end_offset == 2)
    leader = world.log.read(Offset(2), 1000, min_one=True, dirty=True)
    assert isinstance(leader, ReadResult)
    assert (leader.error_code, leader.high_watermark) == (0, 2)
    assert world.reader.why_unreadable(dirty=True) is None
    if not world.log.is_sole_replica:
        assert world.log.high_watermark == 1
        assert [offset for offset, _ in values_of(await read(world, 0))] == [0]


@looped
async def test_who_waits_is_notified_of_every_advance(make: Make, tmp_path: Path) -> None:
    """model.P7: at the end a read is empty; after the notification it is not."""
    world = await opened(make, tmp_path)
    waiter, gone = Waiter(), Waiter()
    world.reader.add_waiter(waiter)
    world.reader.add_waiter(gone)
    world.reader.remove_waiter(gone)
    world.reader.remove_waiter(Waiter())
    assert (await read(world, 0)).buffers == []
    for count in range(1, 4):
        await append(world, b"x" * 100)
        await committed(world)
        assert len(waiter.sizes) >= count
        assert values_of(await read(world, count - 1))[0][0] == count - 1
    assert sum(waiter.sizes) > 0
    world.reader.remove_waiter(waiter)
    count = len(waiter.sizes)
    await append(world, b"more")
    await committed(world)
    assert (len(waiter.sizes), gone.sizes) == (count, [])


@looped
async def test_who_waits_is_notified_when_the_partition_moves(make: Make, tmp_path: Path) -> None:
    """model.P7: with 0: read again, and hear why there is nothing to read."""
    world = await opened(make, tmp_path)
    if "leadership" in world.lacks:
        return
    waiter = Waiter()
    for node in world.rig.members.values():
        node.partition.add_waiter(waiter)
    for node in world.rig.members.values():
        node.replication.forget(node.partition)
    assert 0 in waiter.sizes
    assert not world.log.is_readable
    error = world.log.why_unreadable()
    assert error is not None
    assert error.code is Code.NOT_LEADER_OR_FOLLOWER


@looped
async def test_records_are_found_by_time(make: Make, tmp_path: Path) -> None:
    """The first that is not older, the first of the newest, or nothing."""
    world = await opened(make, tmp_path)
    assert await world.log.find_timestamp(0, run_here) is None
    assert await world.log.find_max_timestamp(run_here) is None
    for timestamp in (1000, 3000, 2000):
        await append(world, b"x", timestamp=timestamp)
    await committed(world)
    found = [await world.log.find_timestamp(time, run_here) for time in (0, 1001, 2500, 3001)]
    assert [each and (each.timestamp, each.offset) for each in found] == [
        (1000, 0), (3000, 1), (3000, 1), None]
    newest = await world.log.find_max_timestamp(run_here)
    assert newest is not None
    assert (newest.timestamp, newest.offset, newest.leader_epoch) == (
        3000, 1, world.log.leader_epoch)


@looped
async def test_epochs_end_where_the_next_begins(make: Make, tmp_path: Path) -> None:
    """The last epoch at or before the one asked for; (-1, -1) outside of those known."""
    world = await opened(make, tmp_path)
    await append(world, b"a")
    await append(world, b"b")
    epoch = world.log.leader_epoch
    assert world.log.epoch_end(epoch) == (epoch, 2)
    assert world.log.epoch_end(Epoch(epoch + 5)) == (-1, -1)
    assert world.log.epoch_end(Epoch(-1)) == (-1, -1)


@looped
async def test_deleted_records_are_gone_once_that_is_committed(make: Make, tmp_path: Path) -> None:
    """model.P6: the log start moves forward, never back, and not beyond the high watermark."""
    world = await opened(make, tmp_path)
    for _ in range(4):
        await append(world, b"x")
    await committed(world)

    async def delete(before: int) -> Offset:
        done: list[Offset | QuipuError] = []
        world.log.delete_records(Offset(before), world.rig.clock.now_ms(), timeout_ms=5000,
                                 done=done.append)
        await until(world, lambda: done)
        (moved,) = done
        if isinstance(moved, QuipuError):
            raise moved
        return moved

    assert await delete(2) == 2
    assert await delete(1) == 2
    assert world.log.log_start_offset == 2
    assert world.log.local_start_offset == (4 if world.log.tier.is_enabled else 2)
    await world.reader.refresh()
    await until(world, lambda: world.reader.log_start_offset == 2)
    gone = await read(world, 1)
    assert (gone.error_code, gone.log_start_offset) == (Code.OFFSET_OUT_OF_RANGE, 2)
    assert [offset for offset, _ in values_of(await read(world, 2))] == [2, 3]
    assert await delete(-1) == 4
    with pytest.raises(QuipuError) as refused:
        await delete(9)
    assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
    check_bounds(world)


@looped
async def test_retention_removes_old_segments(make: Make, tmp_path: Path) -> None:
    """Only complete segments of records that are committed; the bounds and sizes follow."""
    world = await opened(make, tmp_path, segment_bytes=2000, retention_bytes=4000)
    if "retention" in world.lacks:
        return
    for _ in range(12):
        await append(world, b"x" * 900)
    await committed(world)
    if world.log.tier.is_enabled:  # what is gone from here can still be read
        for log in (world.log, world.reader):
            assert (log.log_start_offset, log.local_start_offset) == (0, 12)
            assert log.size_bytes < 1000
        check_bounds(world)
        assert values_of(await read(world, 0, 1)) == [(0, b"x" * 900)]
        return
    size = world.log.size_bytes
    assert size > 4000
    assert world.log.apply_retention(world.rig.clock.now_ms()) > 0
    assert world.log.size_bytes < size
    assert world.log.log_start_offset > 0
    check_bounds(world)
    assert (await append(world, b"y")).log_start_offset == world.log.log_start_offset


@looped
async def test_producers_and_replication_are_described(make: Make, tmp_path: Path) -> None:
    """DescribeProducers, DescribeLogDirs and metrics take their numbers from here."""
    world = await opened(make, tmp_path)
    assert await world.log.producers() == []
    await append(world, b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
    (producer,) = await world.log.producers()
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert world.log.offset_lag == world.reader.offset_lag == 0
    assert (str(world.log.topic_partition), world.log.topic_id) == (
        str(world.reader.topic_partition), world.reader.topic_id)
    assert world.log.rules == world.rig.rules
    status = world.log.replication_status()
    if "replicas" in world.lacks:
        assert status is None
        return
    assert status is not None
    assert (status.is_leader, status.is_halted, status.is_under_replicated) == (True, False, False)
    assert status.epoch == world.log.leader_epoch
    assert status.is_only_member == world.log.is_sole_replica
    assert world.log.preferred_read_replica == max(world.rig.members)


@looped
async def test_leaders_and_readers_say_what_they_may(make: Make, tmp_path: Path) -> None:
    """A leader with a lease takes appends; whoever serves gives what is committed."""
    world = await opened(make, tmp_path)
    assert (world.log.is_leader, world.log.is_active_leader, world.log.has_lease) == (
        True, True, True)
    world.log.check_leader()
    await until(world, lambda: world.reader.is_readable)
    assert world.reader.why_unreadable() is None
    await append(world, b"a")
    await committed(world)
    if "leadership" in world.lacks:
        return
    for node in world.rig.members.values():
        node.leased.lease_until = world.rig.clock.monotonic() - 1
    assert not world.log.has_lease
    assert not world.log.is_active_leader
    with pytest.raises(QuipuError) as refused:
        world.log.check_leader()
    assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER
    if not world.reader.is_sole_replica:
        at_end = world.reader.read(Offset(1), 1000, min_one=True)
        assert isinstance(at_end, ReadResult)
        assert at_end.error_code == Code.NOT_LEADER_OR_FOLLOWER  # others may have more by now


@looped
async def test_a_commit_that_does_not_come_in_time_is_an_error(make: Make, tmp_path: Path) -> None:
    """model.P2: nobody waits longer than the request's timeout for replicas that are silent."""
    world = await opened(make, tmp_path)
    await append(world, b"a")
    world.rig.net.cut(1, 2)
    outcomes = begin_append(world, batch_of(b"b"), timeout_ms=500)
    await world.rig.pass_time(8)
    await until(world, lambda: outcomes)
    (outcome,) = outcomes
    if world.log.is_sole_replica:
        assert not isinstance(outcome, QuipuError)
    else:
        assert isinstance(outcome, QuipuError)
        assert outcome.code is Code.REQUEST_TIMED_OUT
