"""One partition's driver: alone, halted, failed; and the batch that begins an epoch."""

import asyncio
import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.broker.partitions.partition_errors import Halted, NotLeader
from quipu.broker.replication.configuration import configuration_record, decode_configuration
from quipu.chain.events import ChainTick, Event
from quipu.chain.replica import Replica
from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, DATA, GROUP
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.errors import Code, CorruptLog, MalformedBytes, QuipuError
from quipu.model.ids import Epoch, LogOffset, NodeId
from quipu.storage.config import LogConfig
from quipu.wire.record_batch import decode_records
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped

DURABLE = LogConfig(flush_messages=1)


def types(node: ANode) -> list[int]:
    return [batch.header.batch_type for batch in node.partition.log.read_stored()]


async def a_chain(rig: Rig, count: int) -> list[ANode]:
    nodes = rig.nodes(count)
    rig.configure(serving=range(1, count + 1))
    await rig.leads(nodes[0])
    await rig.settled()
    return nodes


@looped
async def test_an_older_replica_set_changes_nothing(tmp_path: Path) -> None:
    """V15: of two changes, the older may come last; the partition keeps the newer one."""
    rig = Rig(tmp_path)
    one, two = rig.nodes(2)
    older = rig.configure(serving=[1], syncing=[2])
    await rig.leads(one)
    newer = rig.configure(serving=[1, 2])
    await rig.leads(one)
    await rig.settled()
    same_epoch = dataclasses.replace(newer, version=newer.version - 1, members=older.members)

    for late in (older, same_epoch):
        for node in (one, two):
            node.replication.configure(node.partition, late)

            assert node.partition.replica_set == newer
            assert node.partition.is_serving
            assert node.partition.leader_epoch == newer.epoch
    assert await one.produce(b"x") == 0
    await rig.settled()


# --- alone


@looped
async def test_a_node_alone_leads_at_once_and_writes_nothing_until_asked_to(tmp_path: Path) -> None:
    """V2: to open a partition that nobody uses touches no file; its first batch is that of the
    epoch (T4).
    """
    rig = Rig(tmp_path)
    (a,) = rig.nodes(1)
    rig.configure(serving=[1])
    assert (a.partition.is_leader, a.partition.is_sole_replica, a.log_end) == (True, True, 0)
    assert a.files() == {}
    assert await a.produce(b"x", acks=1) == 0
    assert await a.produce(b"y") == 1
    assert types(a) == [CHECKPOINT, CONFIGURATION, DATA, DATA]
    assert a.values() == [b"x", b"y"]
    assert a.partition.log.epochs.by_log_offset() == [(1, 0)]
    assert a.leads == [("began", 1)]


@looped
async def test_a_node_that_was_alone_is_joined(tmp_path: Path) -> None:
    """V7: what it wrote alone is committed, and is sent to each node that joins."""
    rig = Rig(tmp_path)
    (a,) = rig.nodes(1)
    rig.configure(serving=[1])
    for number in range(10):
        await a.produce(b"%d" % number)
    b = rig.add()
    rig.configure(serving=[1], syncing=[2], new_epoch=False)
    assert a.partition.high_watermark == 10
    assert not a.partition.is_sole_replica
    await a.produce(b"while it syncs")
    await rig.until(lambda: (2, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    assert await a.produce(b"together") == 11
    await rig.settled()
    assert len(b.values()) == 12
    rig.check_identical()


@pytest.mark.parametrize("config", [LogConfig(), DURABLE], ids=["written", "flushed"])
@looped
async def test_waiting_appends_complete_when_no_other_replica_is_left(
    tmp_path: Path, config: LogConfig
) -> None:
    """V21: the chain is shortened to its head, so the head's word is enough."""
    rig = Rig(tmp_path, config=config)
    a, b = await a_chain(rig, 2)
    rig.net.cut(1, 2)
    waiting = a.append(b"x")
    await rig.pass_time(2)
    assert not waiting.done()
    b.crash()
    rig.configure(serving=[1], offline=[2])
    assert await asyncio.wait_for(waiting, 5) == 0
    assert a.partition.is_sole_replica
    assert await a.produce(b"y") == 1
    assert a.values() == [b"x", b"y"]


@looped
async def test_a_restart_alone_keeps_everything(tmp_path: Path) -> None:
    """V13: a new process, a new epoch, the same log."""
    rig = Rig(tmp_path)
    (a,) = rig.nodes(1)
    rig.configure(serving=[1])
    await a.produce(b"x")
    a.crash()
    a = rig.restart(a)
    rig.configure(serving=[1])
    assert a.values() == [b"x"]
    assert await a.produce(b"y") == 1
    assert [epoch for epoch, _ in a.partition.log.epochs.by_log_offset()] == [1, 2]


# --- the cluster's own writers


@looped
async def test_internal_batches_are_replicated_and_waited_for(tmp_path: Path) -> None:
    """T4, T6, V10: by log offset, since they take no client offsets."""
    rig = Rig(tmp_path)
    a, b, c = await a_chain(rig, 3)
    a.partition.internal.append(GROUP, [(b"k", b"v")], rig.clock.now_ms())
    end = a.log_end
    await asyncio.wait_for(a.partition.committed(end), 5)
    assert c.log_end == end
    a.partition.internal.roll(rig.clock.now_ms())
    await asyncio.wait_for(a.partition.committed(a.log_end), 5)
    await rig.settled()
    rig.check_identical()
    assert len(b.files()) == 2
    with pytest.raises(NotLeader):
        b.partition.internal.append(GROUP, [(b"k", b"v")], rig.clock.now_ms())
    rig.net.cut(1, 2)
    a.partition.internal.append(GROUP, [(b"k", b"w")], rig.clock.now_ms())
    waiting = asyncio.ensure_future(a.partition.committed(a.log_end, timeout_ms=500))
    await rig.pass_time(6)
    with pytest.raises(QuipuError) as late:
        await waiting
    assert late.value.code == Code.REQUEST_TIMED_OUT


# --- what goes wrong


@looped
async def test_nothing_committed_is_ever_cut(tmp_path: Path) -> None:
    """V14: a chain that has lost what one member knows to be committed stops at that member, and
    says so; the others go on.
    """
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    for number in range(5):
        await a.produce(b"%d" % number)
    await rig.settled()
    a.crash()
    b.crash()
    a, b = rig.restart(a), rig.restart(b)
    b.partition.log.note_committed(b.log_end)
    a.partition.log.truncate(LogOffset(a.log_end - 2), rig.clock.now_ms())
    rig.configure(serving=[1], offline=[2])
    await a.produce(b"instead")
    rig.configure(serving=[1], syncing=[2], new_epoch=False)
    await rig.until(lambda: b.partition.failure)
    halted = b.partition.failure
    assert isinstance(halted, Halted)
    assert halted.code == Code.KAFKA_STORAGE_ERROR
    assert "committed" in str(halted)
    assert b.partition.log.end_offset == 5
    assert await a.produce(b"goes on") == 4
    assert b.partition.why_unreadable(dirty=True) is halted
    assert set(rig.failures) == {str(halted)}  # so that nobody counts on it


@looped
async def test_a_bug_in_the_core_halts_its_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: the node goes on; the partition refuses, and says why."""
    rig = Rig(tmp_path)
    a, _ = await a_chain(rig, 2)
    original = Replica.handle

    def broken(self: Replica, event: Event) -> list[object]:
        if isinstance(event, ChainTick) and self is a.partition.chain.replica:
            raise AssertionError("impossible")
        return list(original(self, event))

    monkeypatch.setattr(Replica, "handle", broken)
    waiting = a.append(b"x")
    rig.net.cut(1, 2)
    await rig.pass_time(1)
    with pytest.raises(NotLeader):
        await waiting
    with pytest.raises(Halted, match="impossible"):
        a.append(b"y")
    monkeypatch.undo()
    rig.net.heal()
    rig.is_known = True
    rig.configure(serving=[2], offline=[1])
    async with asyncio.timeout(60):
        while rig.repaired == 0:
            await asyncio.sleep(0.05)
    assert a.partition.failure is None
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    assert a.partition.failure is None


@looped
async def test_a_failed_log_stops_leading(tmp_path: Path) -> None:
    """V15: a head whose disk has failed says so, and lets nobody wait."""
    rig = Rig(tmp_path)
    a, _ = await a_chain(rig, 2)
    rig.net.cut(1, 2)
    waiting = a.append(b"x")
    a.partition.log.fail(CorruptLog("broken for a test"))
    await rig.pass_time(1)
    with pytest.raises(NotLeader):
        await waiting
    assert a.leads[-1][0] == "ended"
    with pytest.raises(CorruptLog):
        a.append(b"y")
    assert rig.failures[0] == "broken for a test"


@looped
async def test_a_replica_whose_log_fails_says_so_and_the_others_go_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V10, V21: what waits for it is committed when it is off the chain."""
    rig = Rig(tmp_path)
    a, b, c = await a_chain(rig, 3)
    log = b.partition.log

    def broken(stored: memoryview, now_ms: int, **bounds: int) -> None:
        del stored, now_ms, bounds
        error = CorruptLog("the device is gone")
        log.fail(error)
        raise error

    monkeypatch.setattr(log, "append_entry", broken)
    waiting = a.append(b"x")
    await rig.until(lambda: rig.failures)
    assert rig.failures[0] == "the device is gone"
    assert (b.partition.is_serving, waiting.done()) == (False, False)
    rig.configure(serving=[1, 3], offline=[2])
    assert await asyncio.wait_for(waiting, 5) == 0
    await rig.settled(a, c)
    rig.check_identical(a, c)


@looped
async def test_a_full_disk_of_a_replica_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V10: broker.replication.R1; what could not be written is not acknowledged, and sent again."""
    rig = Rig(tmp_path)
    a, b = await a_chain(rig, 2)
    log, real, refused = b.partition.log, b.partition.log.append_entry, []

    def full(stored: memoryview, now_ms: int, **bounds: int) -> None:
        if len(refused) < 3:
            refused.append(len(stored))
            raise QuipuError("no space")
        real(stored, now_ms, **bounds)

    monkeypatch.setattr(log, "append_entry", full)
    waiting = a.append(b"x")
    await rig.pass_time(20)
    assert await waiting == 0
    assert len(refused) == 3
    await rig.settled()
    rig.check_identical()


# --- the configuration batch


@looped
async def test_an_epoch_begins_with_its_members(tmp_path: Path) -> None:
    """T4, V14: type 2, the same bytes on every node; it has the state of each member."""
    rig = Rig(tmp_path)
    a, _, c = await a_chain(rig, 3)
    c.crash()
    replica_set = rig.configure(serving=[1, 2], offline=[3])
    await rig.leads(a)
    last = [batch for batch in a.partition.log.read_stored()
            if batch.header.batch_type == CONFIGURATION][-1]
    (record,) = decode_records(last.batch, size_max=1 << 20)
    assert record.value is not None
    assert decode_configuration(record.value) == replica_set


@given(
    nodes=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20, unique=True),
    states=st.lists(st.sampled_from(list(MemberState)), min_size=19, max_size=19),
    epoch=st.integers(0, 2**31 - 1), version=st.integers(0, 2**31 - 1),
)
def test_configurations_are_read_as_they_were_written(
    nodes: list[int], states: list[MemberState], epoch: int, version: int
) -> None:
    """T8: any chain there can be."""
    of = [MemberState.SERVING, *sorted(states)]
    replica_set = ReplicaSet(epoch=Epoch(epoch), version=version, members=tuple(
        ReplicaMember(NodeId(node), state) for node, state in zip(nodes, of, strict=False)))
    record = configuration_record(replica_set, 5)
    assert record.value is not None
    assert decode_configuration(record.value) == replica_set


@given(value=st.binary(max_size=60))
def test_damaged_configurations_are_refused(value: bytes) -> None:
    """K8: with a typed error, whatever the bytes."""
    with suppress(MalformedBytes):
        assert configuration_record(decode_configuration(value), 0).value == value
