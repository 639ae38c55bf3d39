"""A diskless partition while its control plane or its store cannot be reached."""

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from quipu.broker.diskless.appends import EARLY_SIZE_MAX, KNOWN_SECONDS_MAX
from quipu.broker.diskless.partition import DisklessPartition
from quipu.broker.diskless.refreshes import Refreshes
from quipu.broker.diskless.services import DisklessServices
from quipu.diskless.control_plane.interface import BatchOutcome, ControlPlane
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.reading.reader import DisklessReader, ReaderLimits
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import Epoch, NodeId, Offset, TimestampMs, TopicPartition
from quipu.model.partition_log import AppendResult, ReadResult, TimestampAndOffset
from quipu.model.settings import TopicSettings
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.rng import SeededRng
from tests.broker.diskless.parts import fetch, until
from tests.contract.partition_log.worlds import batch_of, run_here
from tests.diskless.faults import Fault, FaultyPlane
from tests.harness.here import NodeHere, produce
from tests.harness.here import batch_of as batch_now
from tests.looped import LoopClock, looped, timeless

NAME, TOPIC_ID = TopicPartition("t", 0), UUID(int=5)


def partition_of(plane: ControlPlane) -> DisklessPartition:
    """A partition whose log the control plane does not know yet."""
    clock = LoopClock()
    store = MemoryStore(clock.now_ms)
    reader = DisklessReader(store, plane, clock, limits=ReaderLimits())
    writer = DisklessWriter(store, plane, clock, SeededRng(1), node_id=NodeId(1),
                            limits=WriterLimits(), on_committed=reader.committed)
    return DisklessPartition(NAME, TOPIC_ID, TopicSettings(diskless_enable=True), DisklessServices(
        writer=writer, reader=reader, plane=plane, refreshes=Refreshes(reader.refresh)))


def append(
    partition: DisklessPartition, value: bytes, sequence: int = -1,
    checked: QuipuError | None = None,
) -> list[Any]:
    """Append a batch; the list has its outcome once it is known."""
    outcomes: list[Any] = []
    producer = {"producer_id": 9, "producer_epoch": 0} if sequence >= 0 else {}
    pending = partition.append(
        memoryview(batch_of(value, base_sequence=sequence, **producer)),
        LoopClock().now_ms(), -1, 1000, checked)
    assert not isinstance(pending, AppendResult)
    pending.when_done(outcomes.append)
    return outcomes


@timeless
async def test_batches_wait_in_order_until_the_log_is_known() -> None:
    """broker.diskless.A2, broker.diskless.P2: then they are stored as they came."""
    plane = MemoryControlPlane()
    partition = partition_of(plane)
    outcomes = [append(partition, b"%d" % number, number) for number in range(5)]
    assert isinstance(partition.read(Offset(0), 100, min_one=True), ReadResult)
    await plane.create_logs(TOPIC_ID, "t", 1)
    assert outcomes == [[]] * 5
    partition.became_known()
    partition.became_known()
    await partition.flush()
    assert [outcome[0].base_offset for outcome in outcomes] == list(range(5))
    assert partition.services.early_size == 0


@timeless
async def test_a_request_for_offsets_waits_until_the_log_is_known() -> None:
    """K1: clients that ask once, as librdkafka does for watermarks, get offsets from a node that
    has just started; if the control plane cannot be asked, they get an error that others retry.
    """
    plane = MemoryControlPlane()
    partition = partition_of(plane)
    first, second = (asyncio.create_task(partition.refresh()) for _ in range(2))
    await asyncio.sleep(KNOWN_SECONDS_MAX / 2)
    assert (first.done(), second.done()) == (False, False)
    error = ControlPlaneUnavailable("down for a test")
    partition.fail_early(error)
    assert await asyncio.gather(first, second, return_exceptions=True) == [error, error]

    with pytest.raises(RequestError):
        await partition.refresh()
    third = asyncio.create_task(partition.refresh())
    await asyncio.sleep(KNOWN_SECONDS_MAX / 2)
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition.became_known()
    await third
    assert partition.high_watermark == 0


@timeless
async def test_what_waits_for_the_control_plane_is_bounded() -> None:
    """broker.diskless.A1: more is refused with an error that clients retry."""
    partition = partition_of(MemoryControlPlane())
    half = b"x" * (EARLY_SIZE_MAX // 20)
    partition.rules = partition.rules._replace(batch_size_max=EARLY_SIZE_MAX)
    waiting = [append(partition, half, number) for number in range(19)]
    with pytest.raises(QuipuError) as refused:
        append(partition, half * 2, 19)
    assert refused.value.kind is ErrorKind.RETRY
    assert partition.services.early_size <= EARLY_SIZE_MAX
    error = ControlPlaneUnavailable("down for a test")
    partition.fail_early(error)
    assert waiting == [[error]] * 19
    assert partition.services.early_size == 0


@timeless
async def test_a_batch_that_follows_a_refused_one_is_refused_too() -> None:
    """D3, broker.diskless.P3: its producer sends both again, in order."""
    plane = MemoryControlPlane()
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(plane)
    partition.became_known()
    no_room = RequestError("no room to check it", code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY)
    with pytest.raises(QuipuError):
        append(partition, b"a", 0, no_room)
    with pytest.raises(QuipuError) as refused:
        append(partition, b"b", 1)
    assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER
    outcomes = [append(partition, b"a", 0), append(partition, b"b", 1)]
    await partition.flush()
    assert [outcome[0].base_offset for outcome in outcomes] == [0, 1]


@timeless
async def test_a_batch_that_breaks_the_rules_reaches_no_object() -> None:
    """broker.diskless.P1: it is refused before it is collected."""
    plane = MemoryControlPlane()
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(plane)
    partition.became_known()
    damaged = batch_of(b"x")
    damaged[-1] ^= 1
    with pytest.raises(QuipuError):
        partition.append(memoryview(damaged), LoopClock().now_ms(), -1, 1000)
    assert partition.services.writer.stats.batches == 0


@timeless
async def test_a_producer_waits_no_longer_than_its_timeout() -> None:
    """model.P2, broker.diskless.D1: it is told that the outcome is unknown; the writer goes on.

    Its batch is no failed one: those that follow it are taken, and its repetition is a copy.
    """
    plane = FaultyPlane(MemoryControlPlane())
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(cast("ControlPlane", plane))
    partition.became_known()
    plane.faults.plan(Fault.STALL)
    first, second = append(partition, b"a", 0), append(partition, b"b", 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: first and second)
    assert 1 <= loop.time() - began <= 1.21
    assert [each[0].code for each in (first, second)] == [Code.REQUEST_TIMED_OUT] * 2
    again, third = append(partition, b"a", 0), append(partition, b"c", 2)
    await until(lambda: again and third)
    assert [each[0].code for each in (again, third)] == [Code.REQUEST_TIMED_OUT] * 2
    await asyncio.sleep(30)  # the commit that had no response was repeated
    outcomes = [append(partition, value, sequence)
                for sequence, value in enumerate((b"a", b"b", b"c", b"d"))]
    await until(lambda: all(outcomes))
    assert [(each[0].base_offset, each[0].duplicate) for each in outcomes] == [
        (0, True), (1, True), (2, True), (3, False)]
    await partition.flush()
    assert all(len(each) == 1 for each in (first, second, again, third))


@timeless
async def test_appends_behind_one_that_ran_out_of_time_end_with_it() -> None:
    """broker.diskless.A3: so a producer sends all of them again, in order."""
    plane = FaultyPlane(MemoryControlPlane())
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(cast("ControlPlane", plane))
    partition.became_known()
    plane.faults.plan(Fault.STALL)
    first = append(partition, b"a", 0)
    await asyncio.sleep(0.9)
    second = append(partition, b"b", 1)
    await until(lambda: first and second)
    assert [each[0].code for each in (first, second)] == [Code.REQUEST_TIMED_OUT] * 2
    await asyncio.sleep(30)
    await partition.flush()
    assert (len(first), len(second)) == (1, 1)


@timeless
async def test_a_batch_that_fails_after_its_timeout_is_awaited() -> None:
    """diskless.W4: later ones of its producer are not taken before it."""
    plane = FaultyPlane(MemoryControlPlane())
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(cast("ControlPlane", plane))
    partition.became_known()
    plane.faults.plan(then=Fault.REFUSE)
    late = append(partition, b"a", 0)
    await asyncio.sleep(59.5)
    assert late[0].code is Code.REQUEST_TIMED_OUT
    follower = append(partition, b"b", 1)  # it is under way when the first one fails
    await until(lambda: follower)
    assert follower[0].code in (Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT)
    await asyncio.sleep(5)
    plane.faults.plan(then=Fault.NONE)
    with pytest.raises(RequestError) as refused:
        append(partition, b"b", 1)
    assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER
    outcomes = [append(partition, value, sequence) for sequence, value in enumerate((b"a", b"b"))]
    await until(lambda: all(outcomes))
    assert [each[0].base_offset for each in outcomes] == [0, 1]


@timeless
async def test_a_topic_that_is_deleted_refuses_batches() -> None:
    """D7: those on their way get UNKNOWN_TOPIC_OR_PARTITION."""
    plane = MemoryControlPlane()
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(plane)
    partition.became_known()
    outcomes = append(partition, b"a")
    await plane.delete_topic(TOPIC_ID, 0)
    await partition.flush()
    (error,) = outcomes
    assert isinstance(error, QuipuError)
    assert error.code is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_outcomes_of_commits_are_results() -> None:
    """D3: an outcome has all that a Produce response needs."""
    assert BatchOutcome(Code.NONE, Offset(3), Offset(1), is_duplicate=True) == (0, 3, 1, True)


@looped
async def test_a_control_plane_out_of_reach_is_an_error_that_clients_retry(tmp_path: Path) -> None:
    """D6: of the batch; classic topics are served, and metrics and health say why."""
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    async with NodeHere(
            tmp_path, diskless_storage_system_enable="true",
            diskless_control_plane_url=f"sqlite://{blocked}/x/plane.sqlite") as node:
        await node.create("t", diskless_enable="true")
        await node.create("classic")
        async with node.connect() as peer:
            response = await peer.ask(produce("t", batch_now(b"x"), acks=-1), 9)
            part = response.responses[0].partition_responses[0]
            assert part.error_code in (Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER)
            assert (await fetch(peer, "t", 0, max_wait_ms=1)).error_code == (
                Code.OFFSET_NOT_AVAILABLE)
            response = await peer.ask(produce("classic", batch_now(b"x"), acks=-1), 9)
            assert response.responses[0].partition_responses[0].error_code == 0
        await until(lambda: node.node.health.warnings)
        assert node.node.health.ready
        assert node.node.health.warnings[0].startswith("diskless: the control plane cannot be")


class Tier:
    """A remote tier that has one batch, and what it was asked for."""

    def __init__(self, batch: bytes) -> None:
        self.batch = memoryview(batch)
        self.asked: list[tuple[int, int]] = []

    def read(
        self, log: object, offset: int, max_bytes: int, *, min_one: bool, end: int
    ) -> list[memoryview]:
        del log, max_bytes, min_one
        self.asked.append((offset, end))
        return [self.batch]

    async def find_timestamp(
        self, log: object, timestamp_ms: int, *, start: int, end: int
    ) -> TimestampAndOffset | None:
        del log
        self.asked.append((start, end))
        if timestamp_ms > 1:
            return None
        return TimestampAndOffset(TimestampMs(1), Offset(0), Epoch(0))

    async def find_max_timestamp(
        self, log: object, *, start: int, end: int
    ) -> TimestampAndOffset | None:
        del log, start, end
        return TimestampAndOffset(TimestampMs(1), Offset(0), Epoch(0))


@timeless
async def test_reads_go_on_across_the_boundary_of_the_tier() -> None:
    """D1: what only the remote tier has is read there, the rest from objects; -5 and -4 follow."""
    plane = MemoryControlPlane()
    await plane.create_logs(TOPIC_ID, "t", 1)
    partition = partition_of(plane)
    partition.became_known()
    partition.configure(TopicSettings(diskless_enable=True, remote_storage_enable=True))
    for value in (b"a", b"b", b"c"):
        append(partition, value)
        await partition.flush()
    claim = await plane.claim_tiering(partition.key, "me", 0, 1000)
    assert claim is not None
    await plane.note_tiered(claim, Offset(2), 0)
    await partition.refresh()
    assert (partition.log_start_offset, partition.local_start_offset) == (0, 2)
    assert (partition.highest_tiered_offset, partition.tier.has_copies) == (1, True)
    result = partition.read(Offset(0), 1000, min_one=True)
    assert isinstance(result, ReadResult)
    assert result.error_code == Code.OFFSET_NOT_AVAILABLE  # this node has no access to the tier
    tier = Tier(bytes(batch_of(b"a")))
    partition.services.remote_reads = tier  # type: ignore[assignment]  # repairs are not asked for
    result = partition.read(Offset(0), 1000, min_one=True)
    assert isinstance(result, ReadResult)
    assert (result.error_code, result.high_watermark, result.buffers) == (0, 3, [tier.batch])
    rest = partition.read(Offset(2), 1000, min_one=True)
    assert isinstance(rest, ReadResult)
    assert rest.size > 0
    first = await partition.find_timestamp(0, run_here)
    assert first is not None
    assert first.offset == 0
    assert tier.asked == [(0, 3), (0, 2)]
    newest = await partition.find_max_timestamp(run_here)
    assert newest is not None
    assert newest.offset == 0
