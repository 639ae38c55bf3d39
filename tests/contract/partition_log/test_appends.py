"""The contract of `PartitionLog`: appends, and what their completion promises."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import Offset
from quipu.model.partition_log import AppendResult
from tests.contract.partition_log.worlds import (
    World,
    append,
    batch_of,
    begin_append,
    break_log,
    committed,
    read,
    refusal,
    until,
    values_of,
)
from tests.looped import looped

Make = Callable[..., World]
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


async def opened(make: Make, path: Path, **settings: object) -> World:
    world = make(path, **settings)
    await world.open()
    return world


@looped
async def test_offsets_come_with_the_completion(make: Make, tmp_path: Path) -> None:
    """model.P1: dense, in order, one per record; a Produce response has all it needs."""
    world = await opened(make, tmp_path)
    begun = [begin_append(world, batch_of(b"a", b"b")), begin_append(world, batch_of(b"c"))]
    await until(world, lambda: all(begun))
    (first,), (second,) = begun
    assert isinstance(first, AppendResult)
    assert isinstance(second, AppendResult)
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert (first.log_start_offset, first.log_append_time, first.duplicate) == (0, -1, False)
    assert world.log.log_end_offset == 3
    assert [len(outcomes) for outcomes in begun] == [1, 1]


@pytest.mark.parametrize("acks", [0, 1, -1])
@looped
async def test_a_completed_append_is_in_the_log(make: Make, tmp_path: Path, acks: int) -> None:
    """model.P2: with any acks it is in the leader's log; with acks=all it is committed."""
    world = await opened(make, tmp_path)
    result = await append(world, b"a", acks=acks)
    assert world.log.log_end_offset == result.last_offset + 1
    if acks == -1:
        assert world.log.high_watermark == result.last_offset + 1
    await committed(world)
    assert values_of(await read(world, 0)) == [(0, b"a")]


@looped
async def test_acks_all_completes_when_flushed_where_that_is_asked_for(
    make: Make, tmp_path: Path
) -> None:
    """model.P2: with flush.messages=1 a completed append is durable where it is committed."""
    world = await opened(make, tmp_path, flush_messages=1)
    result = await append(world, b"a")
    assert world.log.high_watermark > result.last_offset
    assert all(node.partition.log.flusher.flushed_offset > result.last_offset
               for node in world.rig.members.values())


@looped
async def test_a_repeated_batch_has_its_first_offsets(make: Make, tmp_path: Path) -> None:
    """model.P3: an idempotent producer may send again what it has no response for."""
    world = await opened(make, tmp_path)
    first = await append(world, b"a", b"b", base_sequence=0, **PRODUCER)
    await append(world, b"c", base_sequence=2, **PRODUCER)
    again = await append(world, b"a", b"b", base_sequence=0, **PRODUCER)
    assert again == first._replace(duplicate=True)
    assert world.log.log_end_offset == 3


@looped
async def test_a_gap_in_sequences_is_out_of_order(make: Make, tmp_path: Path) -> None:
    """model.P1: nothing of it is kept, and the sequence that is missing is taken afterwards."""
    world = await opened(make, tmp_path)
    await append(world, b"a", base_sequence=0, **PRODUCER)
    error = await refusal(world, batch_of(b"c", base_sequence=2, **PRODUCER))
    assert error.code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.NOT_LEADER_OR_FOLLOWER)
    assert world.log.log_end_offset == 1
    assert (await append(world, b"b", base_sequence=1, **PRODUCER)).base_offset == 1


@looped
async def test_bad_batches_are_refused_whole(make: Make, tmp_path: Path) -> None:
    """model.P1: too large, damaged, in a transaction: the log is as it was."""
    world = await opened(make, tmp_path)
    damaged = batch_of(b"damaged")
    damaged[-1] ^= 1
    codes = [(await refusal(world, batch)).code for batch in (
        batch_of(b"x" * (2 << 20)), damaged,
        batch_of(b"t", attributes=0x10, base_sequence=0, **PRODUCER), b"short")]
    assert codes == [Code.MESSAGE_TOO_LARGE, Code.CORRUPT_MESSAGE, Code.INVALID_TXN_STATE,
                     Code.INVALID_RECORD]
    assert (world.log.log_end_offset, world.log.log_end >= 0) == (0, True)
    assert (await append(world, b"good")).base_offset == 0


@looped
async def test_a_check_made_before_decides(make: Make, tmp_path: Path) -> None:
    """model.P1: who has found records at fault refuses the batch with that error."""
    world = await opened(make, tmp_path)
    error = RequestError("no room to check it", code=Code.REQUEST_TIMED_OUT)
    outcomes: list[object] = []
    try:
        appending = world.log.append(
            memoryview(batch_of(b"a")), world.rig.clock.now_ms(), -1, 1000, error)
        assert not isinstance(appending, AppendResult)
        appending.when_done(outcomes.append)
    except QuipuError as refused:
        outcomes.append(refused)
    await until(world, lambda: outcomes)
    assert outcomes == [error]
    assert world.log.log_end_offset == 0


@looped
async def test_log_append_time_is_told(make: Make, tmp_path: Path) -> None:
    """model.P2: with message.timestamp.type=LogAppendTime the result has the time."""
    world = make(tmp_path)
    world.rig.rules = world.rig.rules._replace(append_time=True)
    await world.open()
    now_ms = world.rig.clock.now_ms()
    assert (await append(world, b"a")).log_append_time >= now_ms


@looped
async def test_a_log_that_has_failed_takes_nothing(make: Make, tmp_path: Path) -> None:
    """model.P8: every call says why."""
    world = await opened(make, tmp_path)
    if "failure" in world.lacks:
        return
    await append(world, b"a")
    error = break_log(world)
    assert world.log.failure is error
    assert (await refusal(world, batch_of(b"b"))) is error
    with pytest.raises(QuipuError) as refused:
        world.log.check_leader()
    assert refused.value is error
    assert world.log.why_unreadable() is error
    assert world.log.why_unreadable(dirty=True) is error
    assert (await read(world, 0)).error_code == Code.KAFKA_STORAGE_ERROR
    with pytest.raises(QuipuError):
        world.log.delete_records(
            Offset(1), 0, timeout_ms=1000, done=lambda _: pytest.fail("refused"))
    assert world.log.apply_retention(world.rig.clock.now_ms()) == 0


@looped
async def test_leadership_lost_while_an_append_waits(make: Make, tmp_path: Path) -> None:
    """model.P1: it completes once, well or with an error that clients retry; later ones do not."""
    world = await opened(make, tmp_path)
    if "leadership" in world.lacks:
        return
    await append(world, b"a")
    world.rig.net.cut(1, 2)
    outcomes = begin_append(world, batch_of(b"b"))
    await world.lose_leadership()
    await until(world, lambda: outcomes)
    await world.rig.turns(30)
    (outcome,) = outcomes
    if isinstance(outcome, QuipuError):
        assert outcome.code is Code.NOT_LEADER_OR_FOLLOWER
    assert not world.log.is_leader
    assert not world.log.is_active_leader
    with pytest.raises(QuipuError) as refused:
        world.log.check_leader()
    assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER
    late = await refusal(world, batch_of(b"c"))
    assert late.code is Code.NOT_LEADER_OR_FOLLOWER


@looped
async def test_too_few_replicas_are_refused(make: Make, tmp_path: Path) -> None:
    """model.P2: below min.insync.replicas acks=all is refused before anything is kept."""
    world = await opened(make, tmp_path, min_insync=2)
    if "replicas" in world.lacks:
        return
    await world.lose_replicas()
    error = await refusal(world, batch_of(b"a"))
    assert error.code is Code.NOT_ENOUGH_REPLICAS
    assert world.log.log_end_offset == 0
    assert (await append(world, b"a", acks=1)).base_offset == 0


@looped
async def test_internal_records_are_committed_and_read_back(make: Make, tmp_path: Path) -> None:
    """A coordinator's commands: no client sees them, and they take no offsets."""
    from quipu.model.batch_types import GROUP
    from quipu.model.ids import LogOffset

    world = await opened(make, tmp_path)
    if "internal" in world.lacks:
        return
    records = world.log.internal
    records.append(GROUP, [(b"k", b"v"), (None, b"w")], world.rig.clock.now_ms())
    done: list[Exception | None] = []
    world.log.when_committed(world.log.log_end, done.append)
    await until(world, lambda: done)
    assert done == [None]
    assert world.log.committed_end == world.log.log_end
    assert world.log.log_end_offset == 0
    assert records.first_log_offset == 0
    first_count = records.segment_count
    records.roll(world.rig.clock.now_ms())
    assert records.segment_count == first_count + 1
    start = world.log.log_end
    records.append(GROUP, [(b"k", b"x")], world.rig.clock.now_ms())
    found = [(key, value) for batch in records.read(LogOffset(0)) if batch.batch_type == GROUP
             for key, value in batch.records]
    assert found == [(b"k", b"v"), (None, b"w"), (b"k", b"x")]
    assert records.drop_before(start) == first_count
    assert 0 < records.first_log_offset <= start
    await world.log.flush()
