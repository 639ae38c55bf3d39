"""The partitions of `__consumer_offsets` on real chains: what clients read, and how they change."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from quipu.broker.coordinators.command_log import PartitionCommandLog
from quipu.broker.coordinators.record_log import PartitionRecordLog
from quipu.broker.groups import offsets
from quipu.broker.groups.kafka_records import OffsetKey, decode_key, decode_offset
from quipu.broker.groups.records import (
    ForgottenOffset,
    GroupDeleted,
    OffsetRecord,
    OffsetsCommitted,
    OffsetsDeleted,
    UnknownGroupRecord,
    decode_record,
    encode_record,
)
from quipu.broker.groups.records import Record as Command
from quipu.controller.topic_requests import NewTopic
from quipu.model.batch_types import DATA, GROUP
from quipu.model.errors import Code, RequestError
from quipu.model.ids import ZERO_UUID, LogOffset
from quipu.storage.log import Log
from tests.broker.groups.brokers import Client, begun, two_members
from tests.broker.groups.test_failover import ChainedBroker, move, three, ticked
from tests.looped import looped
from tests.storage.compaction.compacting import all_records, flush, latest, run_pass


def read_offsets(log: Log) -> dict[tuple[str, OffsetKey], int]:
    """The committed offsets, as one who reads the topic from its beginning finds them."""
    found = {}
    for key, value in latest(all_records(log)).items():
        which = decode_key(key)
        if which.offset is not None:
            found[which.group_id, which.offset] = decode_offset(value).offset
    return found


def told_offsets(broker: ChainedBroker) -> dict[tuple[str, OffsetKey], int]:
    """The committed offsets, as the coordinator tells them."""
    return {(name, key): kept.offset
            for name, entry in broker.shard.registry.entries.items()
            for key, kept in entry.offsets.items()
            if offsets.find(broker.shard, name, broker.cluster.state.topics[key[0]], key[1])}


async def fail_over(rig: "object", old: ChainedBroker, new: ChainedBroker) -> None:
    """The first node dies, and the second takes over."""
    old.node.crash()
    rig.configure(serving=[2, 3], offline=[1])  # type: ignore[attr-defined]
    await rig.until(lambda: new.is_served)  # type: ignore[attr-defined]


@looped
async def test_who_reads_the_topic_finds_what_the_coordinator_tells(tmp_path: Path) -> None:
    """K3: commits, members, deleted offsets, topics and groups, on every replica."""
    rig, brokers = await three(tmp_path)
    a, b, _ = brokers
    first, second = await two_members(a)
    for offset in range(20):
        assert await first.commit(offset, partition=offset % 2) == Code.NONE
    other = Client(a, "other")
    assert await other.commit(3, metadata="note") == Code.NONE
    assert await other.commit(4, partition=1) == Code.NONE
    gone = Client(a, "gone")
    assert await gone.commit(5) == Code.NONE
    assert await a.groups.delete("gone") == Code.NONE
    assert await offsets.delete(a.shard, "other", [("t", 1)]) == Code.NONE
    told = told_offsets(a)
    assert told == {("g", ("t", 0)): 18, ("g", ("t", 1)): 19, ("other", ("t", 0)): 3}
    await rig.until(lambda: len({each.node.log_end for each in brokers}) == 1)
    for each in brokers:
        assert read_offsets(each.node.partition.log) == told
    values = latest(all_records(a.node.partition.log))
    assert {(key.kind, key.group_id) for key in map(decode_key, values) if key.offset is None} == {
        (2, "g"), (0x5155, "g")}
    await fail_over(rig, a, b)
    assert told_offsets(b) == told
    move(second, b)
    assert await second.heartbeat() == Code.NONE


@looped
async def test_a_topic_that_is_created_again_has_no_offsets(tmp_path: Path) -> None:
    """K3: its tombstones are in the log, and never after a commit to the new topic."""
    rig, (a, b, _) = await three(tmp_path)
    client, slow = Client(a), Client(a, "slow")
    assert await client.commit(1) == Code.NONE
    assert await slow.commit(1) == Code.NONE
    rig.net.cut(1, 2)
    late = await begun(slow.commit(2))  # to the old topic
    for each in (a, b):
        await each.cluster.controller.delete_topics([("t", ZERO_UUID)])
    rig.net.heal()
    await ticked(rig, late)
    for each in (a, b):
        await each.cluster.controller.create_topics([NewTopic("t", 2)])
    assert (await client.committed(), await slow.committed()) == (-1, -1)
    assert await slow.commit(7, partition=1) == Code.NONE
    a.shard.expire_offsets()  # takes what the deletion of the topic had to pass over
    await a.shard.core.drained()
    assert read_offsets(a.node.partition.log) == told_offsets(a) == {("slow", ("t", 1)): 7}
    await fail_over(rig, a, b)
    assert told_offsets(b).keys() == {("slow", ("t", 1))}


@looped
async def test_compaction_keeps_the_log_small_and_takes_nothing_away(tmp_path: Path) -> None:
    """T7, K5: each member compacts its own log; the next leader finds every offset."""
    # Shows broker.coordinators.R3, broker.coordinators.R4: records of one append stay in order,
    # and a log of many is read in steps while other tasks run.
    rig, brokers = await three(tmp_path)
    a, b, _ = brokers
    client, _ = await two_members(a)
    gone = Client(a, "gone")
    assert await gone.commit(1) == Code.NONE
    for offset in range(200):
        assert await client.commit(offset, metadata="x" * 40, partition=offset % 2) == Code.NONE
        if offset % 50 == 49:
            a.node.partition.internal.roll(rig.clock.now_ms())
    assert await a.groups.delete("gone") == Code.NONE
    a.node.partition.internal.roll(rig.clock.now_ms())
    await rig.until(lambda: len({each.node.log_end for each in brokers}) == 1)
    for each in brokers:
        flush(each.node.partition.log)
        while run_pass(each.node.partition.log, now_ms=rig.clock.now_ms()) is not None:
            pass
        assert len(all_records(each.node.partition.log)) < 20
        assert read_offsets(each.node.partition.log) == told_offsets(a)
    told = told_offsets(a)
    await fail_over(rig, a, b)
    assert told_offsets(b) == told == {("g", ("t", 0)): 198, ("g", ("t", 1)): 199}


# -- from the time of commands


def commands_of(broker: ChainedBroker) -> list[Command]:
    topic_id = broker.cluster.state.topics["t"].topic_id

    def committed(group: str, partition: int, offset: int) -> OffsetsCommitted:
        return OffsetsCommitted(group_id=group, offsets=[OffsetRecord(
            topic_id=topic_id, partition=partition, offset=offset, metadata="m", committed_ms=1)])

    return [committed("a", 0, 1), committed("a", 1, 2), committed("b", 0, 3),
            committed("c", 0, 4), GroupDeleted(group_id="b"), OffsetsDeleted(
                group_id="a", partitions=[ForgottenOffset(topic_id=topic_id, partition=1)]),
            committed("a", 0, 5)]


EARLIER = {("a", ("t", 0)): 5, ("c", ("t", 0)): 4}


async def with_commands(
    path: Path, *, snapshot: bool
) -> tuple["object", list[ChainedBroker]]:
    """Three nodes whose log was written by the program before this one."""
    rig, brokers = await three(path)
    a, b, _ = brokers
    log = PartitionCommandLog(a.node.partition, GROUP, rig.clock)
    commands = [encode_record(command) for command in commands_of(a)]
    await ticked(rig, await begun(log.append(commands[:4])))
    if snapshot:
        await ticked(rig, await begun(log.snapshot(commands[:4])))
    await ticked(rig, await begun(log.append(commands[4:])))
    rig.configure(serving=[2, 3], syncing=[1])
    await rig.until(lambda: b.is_served)
    assert told_offsets(b) == EARLIER
    return rig, brokers


@pytest.mark.parametrize("snapshot", [False, True])
@looped
async def test_a_log_of_commands_becomes_one_of_records(tmp_path: Path, snapshot: bool) -> None:
    """T7, K3: it is served as it is, the first write replaces the commands, and every replica
    drops them; whoever leads next reads the records.
    """
    # Shows broker.coordinators.R1, broker.coordinators.R2, broker.coordinators.L3.
    rig, (_, b, c) = await with_commands(tmp_path, snapshot=snapshot)
    assert all_records(b.node.partition.log) == []  # nothing is written before it must be
    client = Client(b, "a")
    assert await ticked(rig, await begun(client.commit(6))) == Code.NONE
    told = EARLIER | {("a", ("t", 0)): 6}
    assert read_offsets(b.node.partition.log) == told_offsets(b) == told
    kinds = [batch.batch_type for batch in b.node.partition.internal.read(LogOffset(0))]
    assert kinds.count(GROUP) == 1
    await rig.until(lambda: c.node.log_end == b.node.log_end)
    c.partitions = SimpleNamespace(find=lambda *_: c.node.partition)  # type: ignore[assignment]
    await c.groups.shards.trim()
    assert c.node.partition.log.first_log == b.node.partition.log.first_log > 0
    b.node.crash()
    rig.configure(serving=[3], offline=[1, 2])
    await rig.until(lambda: c.is_served)
    assert told_offsets(c) == told


@looped
async def test_an_offset_deleted_later_stays_deleted_though_commands_are_left(
    tmp_path: Path
) -> None:
    """T7, K3: a replica that has not dropped the commands yet does not believe them."""
    rig, (_, b, c) = await with_commands(tmp_path, snapshot=True)
    assert await ticked(rig, await begun(b.groups.delete("c"))) == Code.NONE
    await rig.until(lambda: c.node.log_end == b.node.log_end)
    assert c.node.partition.log.first_log == 0  # nothing was trimmed
    assert [key for key, _ in latest(all_records(c.node.partition.log)).items()
            if decode_key(key).group_id == "c"] == []
    b.node.crash()
    rig.configure(serving=[3], offline=[1, 2])
    await rig.until(lambda: c.is_served)
    assert told_offsets(c) == {("a", ("t", 0)): 5}
    assert c.node.partition.log.first_log > 0  # who leads drops them


@looped
async def test_a_leader_that_dies_while_it_replaces_commands_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7, K3: without the mark the commands count, whatever records follow them."""
    # Shows broker.coordinators.R1.
    rig, (_, b, c) = await with_commands(tmp_path, snapshot=False)
    write = PartitionRecordLog._append

    def dies(log: PartitionRecordLog, batch_type: int, records: Sequence[object]) -> None:
        if batch_type == GROUP:
            raise RequestError("it dies", code=Code.REQUEST_TIMED_OUT)
        write(log, batch_type, records)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionRecordLog, "_append", dies)
    assert await ticked(rig, await begun(Client(b, "a").commit(6))) != Code.NONE
    monkeypatch.undo()
    await rig.until(lambda: c.node.log_end == b.node.log_end)
    kinds = [batch.batch_type for batch in c.node.partition.internal.read(LogOffset(0))]
    assert DATA in kinds
    b.node.crash()
    rig.configure(serving=[3], offline=[1, 2])
    await rig.until(lambda: c.is_served)
    assert told_offsets(c) == EARLIER
    assert await asyncio.wait_for(Client(c, "a").commit(7), 60) == Code.NONE  # syncs a real disk
    assert read_offsets(c.node.partition.log) == told_offsets(c) == EARLIER | {("a", ("t", 0)): 7}


@looped
async def test_the_program_before_refuses_a_log_of_records(tmp_path: Path) -> None:
    """T7, K3: in a cluster that is upgraded node by node, an old node that leads again does not
    serve groups from an old state: it says that a newer program is needed.
    """
    rig, (a, *_) = await three(tmp_path)
    assert await Client(a).commit(1) == Code.NONE
    earlier = PartitionCommandLog(a.node.partition, GROUP, rig.clock)
    found: list[Command] = []
    with pytest.raises(UnknownGroupRecord, match=r"type 5.*a newer one wrote it"):
        await asyncio.wait_for(
            earlier.load(lambda command: found.append(decode_record(command))), 10)
    assert found == []
