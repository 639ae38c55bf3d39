"""The end offset that clients get: never below what any client was given before."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quipu.broker.handlers import (
    k02_list_offsets,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k61_describe_producers,
)
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.errors import Code
from quipu.model.ids import Epoch, NodeId
from quipu.runtime.disks.disk import DiskFull
from quipu.sim.workloads.traffic import records_of
from quipu.storage.config import LogConfig
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quipu.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.replication.rig import ANode, Rig
from tests.broker.replication.test_log_repairs import until
from tests.broker.replication.test_requests import Client, a_chain
from tests.looped import looped

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
UNSURE = Code.OFFSET_NOT_AVAILABLE
SIZE_WITH_BATCH = 130  # no message between nodes is that long without a batch


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])])


async def listed(rig: Rig, node: ANode, timestamp: int = LATEST, version: int = 7) -> Any:
    """The response of `node`, while time passes."""
    asking = asyncio.ensure_future(
        Client(rig, node).ask(k02_list_offsets, list_offsets(timestamp), version))
    await rig.pass_time(12)  # longer than a question waits
    response = await asyncio.wait_for(asking, 5)
    return response.topics[0].partitions[0]


@contextmanager
def deaf(rig: Rig, node: ANode) -> Iterator[None]:
    """`node` hears of nobody: not that what it has sent has arrived, either."""
    rig.net.lossy = lambda _from, to, _body: to == node.node_id
    yield
    rig.net.lossy = lambda *_: False


@looped
async def test_the_head_does_not_say_less_than_the_tail_has_given(tmp_path: Path) -> None:
    """T5, K2: broker.partitions.E1; the tail knows first what is committed; the head waits, or is
    not sure.
    """
    rig = Rig(tmp_path)
    a, _, c = await a_chain(rig)
    await a.produce(b"0")
    with deaf(rig, a):
        await a.produce(b"1", acks=1)
        await rig.until(lambda: c.partition.high_watermark == 2)
        assert a.partition.high_watermark == 1
        for timestamp in (LATEST, MAX_TIMESTAMP, 1):
            part = await listed(rig, a, timestamp)
            assert (part.error_code, part.offset) == (UNSURE, -1)
        part = await listed(rig, a, LATEST, version=4)
        assert part.error_code == Code.LEADER_NOT_AVAILABLE  # what older clients understand
        part = await listed(rig, a, EARLIEST)
        assert (part.error_code, part.offset) == (0, 0)
    part = await listed(rig, a)
    assert (part.error_code, part.offset) == (0, 2)


@looped
async def test_a_question_for_the_end_waits_for_the_chain(tmp_path: Path) -> None:
    """T5: under load nothing is refused: the response comes with the acknowledgements."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    for number in range(20):
        a.append(b"%d" % number)
        asking = Client(rig, a).ask(k02_list_offsets, list_offsets(LATEST), 7)
        part = (await asyncio.wait_for(asking, 5)).topics[0].partitions[0]
        assert (part.error_code, part.offset) == (0, number + 1)


@looped
async def test_after_all_nodes_were_killed_the_end_is_not_zero(tmp_path: Path) -> None:
    """T5, V14: nobody remembers how much was committed; until that is found out nobody says."""
    rig = Rig(tmp_path)
    nodes = await a_chain(rig)
    for number in range(5):
        await nodes[0].produce(b"%d" % number)
    for node in nodes:
        node.crash()
    a, b, c = [rig.restart(node) for node in nodes]
    rig.net.cut(2, 3)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(a)  # with all that there is, and not knowing whether the tail has it
    assert [(await listed(rig, node)).error_code for node in (a, b, c)] == [
        UNSURE, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER]
    rig.net.heal()
    ends = set()
    for _ in range(5):
        part = await listed(rig, a)
        ends.add((part.error_code, part.offset))
        for node in (a, b, c):
            part, _ = await Client(rig, node).fetch(0, version=10)
            assert part.error_code or part.high_watermark == 5
    assert ends <= {(0, 5), (UNSURE, -1)}
    assert (0, 5) in ends


@looped
async def test_a_member_gives_nothing_until_the_epoch_is_committed(tmp_path: Path) -> None:
    """T5, V15: broker.partitions.P6; what it knew in the last epoch may be less than others have
    given in it.
    """
    rig = Rig(tmp_path)
    a, b, c = await a_chain(rig)
    await a.produce(b"0")
    await rig.settled()
    rig.net.delay_turns = 50
    await a.produce(b"1", acks=1)
    rig.configure(serving=[1, 2, 3])
    for _ in range(5000):
        await rig.turns()
        if c.partition.is_readable and c.partition.leader_epoch == rig.epoch:
            break  # its acknowledgement is on its way
    assert a.partition.high_watermark == b.partition.high_watermark == 1
    for node, want in ((a, (UNSURE, -1)), (b, (UNSURE, -1)), (c, (0, 2))):
        assert node.partition.is_serving
        part, _ = await Client(rig, node).fetch(0, version=10)
        assert (part.error_code, part.high_watermark) == want
    waiting = asyncio.ensure_future(Client(rig, a).fetch(0, version=10, max_wait=5000))
    await rig.turns(30)
    assert not waiting.done()
    rig.net.delay_turns = 0
    await rig.until(lambda: all(node.partition.is_readable for node in (a, b, c)))
    part, _ = await asyncio.wait_for(waiting, 10)
    assert (part.error_code, part.high_watermark) == (0, 2)
    for node in (a, b, c):
        part, _ = await Client(rig, node).fetch(0, version=10)
        assert (part.error_code, part.high_watermark) == (0, 2)


@looped
async def test_who_comes_back_from_the_tail_sees_no_end_below_the_tails(tmp_path: Path) -> None:
    """T5, V3: such a reader waits at the head until that knows as much; others need not."""
    rig = Rig(tmp_path)
    a, _, c = await a_chain(rig)
    await a.produce(b"0")
    reader = Client(rig, a)
    part, _ = await reader.fetch(0)
    assert (part.preferred_read_replica, part.high_watermark) == (3, 1)
    with deaf(rig, a):
        await a.produce(b"1", acks=1)
        await rig.until(lambda: c.partition.high_watermark == 2)
        part, _ = await Client(rig, c).fetch(0)
        assert part.high_watermark == 2
        part, _ = await reader.fetch(2)
        assert (part.error_code, part.high_watermark) == (UNSURE, -1)
        part, _ = await reader.fetch(0)  # what is committed is given all the same
        assert (part.error_code, part.high_watermark) == (0, -1)
        assert [record.value for record in records_of(part.records)] == [b"0"]
        part, _ = await Client(rig, a).fetch(0)  # sent to the tail, without an uncertain end
        assert (part.preferred_read_replica, part.high_watermark) == (3, -1)
        waiting = asyncio.ensure_future(reader.fetch(2, max_wait=5000))
        await rig.turns(30)
        assert not waiting.done()
    await rig.settled()
    part, _ = await asyncio.wait_for(waiting, 10)
    assert (part.error_code, part.high_watermark) == (0, 2)


@looped
async def test_a_tail_without_room_knows_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T5, K8: what it took before its disk was full is given by it, as by the others."""
    rig = Rig(tmp_path, config=LogConfig(flush_messages=1))
    a, _, c = await a_chain(rig)
    await a.produce(b"0")
    await rig.settled()
    log = c.partition.log
    last, append = log.log_end + 1, log.append_entry

    def has_room_for_one(*words: Any, **options: Any) -> Any:
        if log.log_end >= last:
            rig.net.lossy = lambda *_: False
            raise DiskFull("no space left")
        return append(*words, **options)

    monkeypatch.setattr(log, "append_entry", has_room_for_one)
    # What others have of the first batch comes with the second one, and not before.
    rig.net.lossy = lambda _from, to, body: to == c.node_id and len(body) < SIZE_WITH_BATCH
    a.append(b"1", acks=1)
    await rig.until(lambda: log.log_end == last)
    a.append(b"2", acks=1)
    await until(rig, lambda: a.partition.high_watermark == c.partition.high_watermark == 2)
    monkeypatch.undo()
    await until(rig, lambda: c.partition.high_watermark == 3)


@looped
async def test_other_responses_with_the_end_wait_as_well(tmp_path: Path) -> None:
    """T5: the end of the epoch, what is deleted up to the high watermark, and producers."""
    rig = Rig(tmp_path)
    a, _, c = await a_chain(rig)
    await a.produce(b"0")
    epoch = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(
        topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=rig.epoch)])])
    delete = DeleteRecordsRequest(timeout=1000, topics=[DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])])
    producers = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])

    async def asked(handler: Any, request: Any, version: int) -> Any:
        asking = asyncio.ensure_future(Client(rig, a).ask(handler, request, version))
        await rig.pass_time(12)
        return (await asyncio.wait_for(asking, 5)).topics[0].partitions[0]

    with deaf(rig, a):
        await a.produce(b"1", acks=1)
        await rig.until(lambda: c.partition.high_watermark == 2)
        for handler, request, version in (
                (k23_offset_for_leader_epoch, epoch, 4), (k21_delete_records, delete, 2),
                (k61_describe_producers, producers, 0)):
            assert (await asked(handler, request, version)).error_code == UNSURE
    await rig.settled()
    assert (await asked(k23_offset_for_leader_epoch, epoch, 4)).end_offset == 2
    assert (await asked(k61_describe_producers, producers, 0)).error_code == 0
    assert (await asked(k21_delete_records, delete, 2)).low_watermark == 2


@looped
async def test_without_a_lease_the_end_is_not_told(tmp_path: Path) -> None:
    """V15: others may have committed more by now, with this node or without it."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    await a.produce(b"0")
    a.leased.lease_until = rig.clock.monotonic() + 3
    assert (await listed(rig, a)).offset == 1
    rig.clock.advance_ms(2000)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 1):
        part = await listed(rig, a, timestamp)
        assert (part.error_code, part.offset) == (Code.NOT_LEADER_OR_FOLLOWER, -1)


@looped
async def test_a_lease_that_ends_during_the_wait_ends_the_wait(tmp_path: Path) -> None:
    """V15: broker.partitions.E2; the request came in time, and the response would not."""
    rig = Rig(tmp_path)
    a, *_ = await a_chain(rig)
    a.leased.lease_until = rig.clock.monotonic() + 0.5
    with deaf(rig, a):
        await a.produce(b"0", acks=1)
        part = await listed(rig, a)
        assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(flush_messages=1)],
                         ids=["flushed later", "flushed first"])
@looped
async def test_the_high_watermark_does_not_fall_when_others_join(
    tmp_path: Path, config: LogConfig
) -> None:
    """T5, V15: broker.partitions.P4; a node alone has given out what nobody else has; it stays
    committed.
    """
    rig = Rig(tmp_path, config=config)
    a, = rig.nodes(1)
    rig.configure(serving=[1])
    await rig.leads(a)
    for number in range(5):
        await a.produce(b"%d" % number)
    assert a.partition.high_watermark == 5
    partition = a.partition
    joined = ReplicaSet(epoch=Epoch(rig.epoch), version=99, members=(
        ReplicaMember(NodeId(1), MemberState.SERVING),
        ReplicaMember(NodeId(2), MemberState.SYNCING)))
    partition.set_role(joined, serving=True, leading=True, sole=False)
    assert partition.high_watermark == 5
    assert partition.committed_end == partition.log.log_end
