"""Repairs: which nodes are asked, which get a response, and which bytes are accepted."""

from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from quipu.broker.observing.health import Health, LifePhase
from quipu.broker.observing.stats import Stats
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication.batch_repairs import PAUSE_SECONDS_MAX, BatchRepairs
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.errors import Code, CorruptLog, QuipuError
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset, TopicPartition
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.peers.peer_net import PeerUnavailable
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from tests.broker.replication.rig import RULES
from tests.looped import looped
from tests.storage.builders import TOPIC_ID, append
from tests.storage.replicas import feed

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300)
NAME = TopicPartition("t", 0)
SERVING = ReplicaSet(epoch=Epoch(1), version=1, members=tuple(
    ReplicaMember(NodeId(number), MemberState.SERVING) for number in (1, 2, 3)))
Tamper = Callable[[bytes], bytes]


class Nodes:
    """Three nodes with the same log; the first is the head."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.handlers: dict[NodeId, Callable[[NodeId, bytes], Awaitable[bytes]]] = {}
        self.tampers: dict[NodeId, Tamper] = {}
        self.asked: list[NodeId] = []
        self.all = {NodeId(number): OneNode(self, NodeId(number)) for number in (1, 2, 3)}
        head = self.all[NodeId(1)].partition.log
        for number in range(60):
            append(head, [b"%d" % number, b"x" * 100], epoch=1)
        head.flusher.flush_now()
        for node in self.all.values():
            log = node.partition.log
            if log is not head:
                feed(head, log)
                log.flusher.flush_now()
            node.partition.set_role(SERVING, serving=True, leading=log is head, sole=False)
            node.partition.advance_committed(log.log_end, log.end_offset)


class OneNode:
    """A node, as far as repairs know it; its own `PeerNet` and `Partitions`, too."""

    def __init__(self, nodes: Nodes, node_id: NodeId) -> None:
        self.nodes = nodes
        self.node_id = node_id
        self.disk = SimDisk()
        self.directory = DataDirectory.open(self.disk, "data", nodes.clock, node_id=node_id)
        log = self.directory.open_log("t-0", CONFIG, topic_id=TOPIC_ID, replica=True)
        self.partition = ReplicatedPartition(NAME, TOPIC_ID, log, RULES)
        self.stats, self.health = Stats(), Health()
        self.health.enter(LifePhase.SERVING)
        self.repairs = BatchRepairs(
            self.directory, self, self, nodes.clock, node_id=node_id,  # type: ignore[arg-type]
            stats=self.stats, health=self.health)

    def replicated(self) -> list[ReplicatedPartition]:
        return [self.partition]

    def find_replicated(self, topic: bytes, index: int) -> ReplicatedPartition | None:
        return self.partition if (topic, index) == (TOPIC_ID.bytes, 0) else None

    def serve(self, kind: int, handler: Any) -> None:
        del kind
        self.nodes.handlers[self.node_id] = handler

    async def call(self, to: NodeId, kind: int, body: bytes) -> bytes:
        del kind
        self.nodes.asked.append(to)
        response = await self.nodes.handlers[to](self.node_id, body)
        return self.nodes.tampers.get(to, lambda data: data)(response)

    def damage(self, number: int = 1) -> bytes:
        """Flip a byte of a record in a complete segment, and read it; gives the file as it was."""
        segment = self.partition.log.segments[number]
        intact = self.disk.read(segment.path)
        self.disk.flip(segment.path, segment.size // 2)
        segment.release()  # a map in memory has the bytes as they were
        with pytest.raises(CorruptLog):
            self.read_all(segment.base_offset, segment.end_offset)
        return intact

    def read_all(self, start: int, end: int) -> None:
        for offset in range(start, end):
            self.read(offset)

    def read(self, offset: int) -> None:
        log = self.partition.log
        log.read(Offset(offset), 1, end=log.end_offset, min_one=True)

    def file(self, number: int = 1) -> bytes:
        return self.disk.read(self.partition.log.segments[number].path)

    def lost_code(self) -> int:
        (damage,) = self.partition.log.segments[1].damage
        with pytest.raises(CorruptLog) as raised:
            self.read(damage.offset)
        return raised.value.code


@pytest.mark.parametrize("node_id", [1, 2, 3])
@looped
async def test_each_member_is_repaired_by_another(node_id: int) -> None:
    """T12, V9: broker.replication.E3; and has the same bytes again."""
    nodes = Nodes()
    node = nodes.all[NodeId(node_id)]
    intact = node.damage()
    assert node.lost_code() == Code.KAFKA_STORAGE_ERROR  # there is hope
    await node.repairs.repair_all()
    assert node.file() == intact
    assert (node.stats.damaged_batches, node.stats.repaired_batches) == (1, 1)
    assert node.stats.damaged_now == 0
    assert node.health.warnings == []


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("tamper", [
    flipped, lambda data: data[:-1], lambda _: b"", lambda data: data * 2, lambda _: bytes(100)])
@looped
async def test_whoever_sends_something_else_is_passed_over(tamper: Tamper) -> None:
    """T12, K8: nothing of it is written, and the next one is asked."""
    nodes = Nodes()
    node = nodes.all[NodeId(2)]
    intact = node.damage()
    nodes.tampers[NodeId(3)] = tamper
    await node.repairs.repair_all()
    assert nodes.asked == [3, 1]
    assert node.file() == intact


@looped
async def test_one_who_has_lost_it_too_does_not_give_it() -> None:
    """T12: broker.replication.E4; if all have, clients get an error; it is tried again."""
    nodes = Nodes()
    intact = {}
    for node_id, node in nodes.all.items():
        intact[node_id] = node.damage()
    node = nodes.all[NodeId(1)]
    await node.repairs.repair_all()
    assert node.stats.damaged_now == 1
    assert node.lost_code() == Code.CORRUPT_MESSAGE
    assert "damage" in node.health.warnings[0]
    asked = len(nodes.asked)
    await node.repairs.repair_all()
    assert len(nodes.asked) == asked  # not at once again
    tail = nodes.all[NodeId(3)]
    tail.disk.set_data(tail.partition.log.segments[1].path, intact[NodeId(3)])
    tail.partition.log.segments[1].damage.clear()
    tail.partition.log.segments[1].release()
    nodes.clock.advance_ms(int(1000 * PAUSE_SECONDS_MAX))
    await node.repairs.repair_all()
    assert node.file() == intact[NodeId(1)]
    assert node.stats.damaged_batches == 1
    assert node.stats.damaged_now == 0


@looped
async def test_what_is_not_committed_waits() -> None:
    """V9: broker.replication.E1; above the commit point replicas may differ."""
    nodes = Nodes()
    node = nodes.all[NodeId(2)]
    node.damage()
    committed = node.partition.commit_waiters.committed_log
    node.partition.commit_waiters.committed_log = LogOffset(5)
    await node.repairs.repair_all()
    assert nodes.asked == []
    assert node.stats.damaged_now == 1
    node.partition.commit_waiters.committed_log = committed
    nodes.clock.advance_ms(int(1000 * PAUSE_SECONDS_MAX))
    await node.repairs.repair_all()
    assert node.stats.damaged_now == 0


@pytest.mark.parametrize(("sender", "body", "code"), [
    (1, b"short", Code.CORRUPT_MESSAGE),
    (1, b"", Code.CORRUPT_MESSAGE),
    (9, pack(">16siqi", TOPIC_ID.bytes, 0, 0, 100), Code.NOT_LEADER_OR_FOLLOWER),
    (1, pack(">16siqi", UUID(int=9).bytes, 0, 0, 100), Code.UNKNOWN_TOPIC_OR_PARTITION),
    (1, pack(">16siqi", TOPIC_ID.bytes, 7, 0, 100), Code.UNKNOWN_TOPIC_OR_PARTITION),
    (1, pack(">16siqi", TOPIC_ID.bytes, 0, -1, 100), Code.OFFSET_OUT_OF_RANGE),
    (1, pack(">16siqi", TOPIC_ID.bytes, 0, 2**62, 100), Code.OFFSET_OUT_OF_RANGE),
])
@looped
async def test_only_members_are_answered_and_only_what_there_is(
    sender: int, body: bytes, code: Code
) -> None:
    """K8: broker.replication.E2; whatever a peer asks for."""
    nodes = Nodes()
    with pytest.raises(QuipuError) as raised:
        await nodes.handlers[NodeId(2)](NodeId(sender), body)
    assert raised.value.code == code


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 500, 2**31 - 1])
@looped
async def test_a_response_is_bounded_whatever_was_requested(size: int) -> None:
    """K8: one batch at least, and no more than a part."""
    nodes = Nodes()
    body = pack(">16siqi", TOPIC_ID.bytes, 0, 0, size)
    response = await nodes.handlers[NodeId(2)](NodeId(1), body)
    assert 0 < len(response) <= 1 << 20


@looped
async def test_a_peer_that_cannot_be_reached_costs_nothing() -> None:
    """V13: the next one is asked."""
    nodes = Nodes()
    node = nodes.all[NodeId(1)]
    intact = node.damage()

    async def away(sender: NodeId, body: bytes) -> bytes:
        raise PeerUnavailable("gone")

    nodes.handlers[NodeId(3)] = away
    await node.repairs.repair_all()
    assert node.file() == intact
