"""Kinds of placement: each is said in its record, older records mean what they meant, and a kind
that this version does not know is refused.
"""

from pathlib import Path
from uuid import UUID

import pytest

from quipu.controller.conversions import chain_run, partition_records, placements_of
from quipu.controller.placement import ChainPlacement, LegacyPlacement
from quipu.controller.record_preconditions import UnfitRecord
from quipu.controller.records import (
    PartitionRecord,
    PartitionRun,
    PartitionsAdded,
    PartitionsMoved,
    PlacementKind,
    Record,
    TopicCreated,
    UnknownRecord,
    decode_record,
    encode_record,
)
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.model.ids import Epoch, NodeId
from quipu.wire.fields import INT32, array, boolean, int32, string, uuid
from quipu.wire.schema import Message, Struct
from tests.controller.states import chain_name, state_with

# Written by the version before kinds of placement: a log, and a snapshot of the same state.
OLD = Path(__file__).with_name("records_before_kinds.txt")


def old_records(part: int) -> list[bytes]:
    """The log (0) or the snapshot (1) of the older version."""
    sections = OLD.read_text(encoding="ascii").split("#")[1:]
    return [bytes.fromhex(line) for line in sections[part].splitlines()[1:]]


def replayed(encoded: list[bytes]) -> ClusterState:
    state = ClusterState()
    for data in encoded:
        state.apply(decode_record(data))
    return state


# Topic, partition, leader, replicas, ISR, both epochs, chain, target, failed: as that version had
# them.
EXPECTED = [
    ("legacy", 0, 4, (4, 9), (4,), 3, 5, "", None, ()),
    ("legacy", 1, 4, (4, 9), (4,), 3, 5, "", None, ()),
    ("mixed", 0, 1, (1,), (1,), 4, 7, "a", None, ()),
    ("mixed", 1, 4, (4,), (4,), 0, 0, "", None, ()),
    ("t", 0, 2, (2, 3), (2, 3), 5, 9, "b", None, ()),
    ("t", 1, 2, (2, 3), (2,), 6, 11, "b", None, (3,)),
    ("t", 2, 2, (2, 3), (2, 3), 5, 9, "b", None, ()),
    ("m", 0, 2, (1, 2, 3), (2, 3), 5, 10, "b", "a", ()),
    ("m", 1, 2, (2, 3), (2, 3), 5, 9, "b", None, ()),
    ("m", 2, 1, (1,), (1,), 4, 12, "a", None, ()),
]


@pytest.mark.parametrize("part", [0, 1], ids=["log", "snapshot"])
def test_records_from_before_kinds_mean_what_they_meant(part: int) -> None:
    """T7, controller.P1: the bytes of an older version give the state that they gave there."""
    state = replayed(old_records(part))
    assert [
        (topic.name, index, p.leader, p.replicas, p.isr, p.leader_epoch, p.partition_epoch,
         chain_name(p), p.moving_to, p.failed_replicas)
        for topic in state.topics.values() for index, p in enumerate(topic.partitions)
    ] == EXPECTED
    assert (state.next_epoch, state.next_version) == (7, 13)


def test_an_older_log_and_its_snapshot_are_the_same_state() -> None:
    """T7, controller.S5: and so is the snapshot that this version makes of it."""
    state = replayed(old_records(0))
    assert state == replayed(old_records(1))
    assert state == replayed([encode_record(record) for record in records_of(state)])


def test_every_record_says_its_kind() -> None:
    """A partition without a chain is not known by the lack of one."""
    snapshot = list(records_of(replayed(old_records(0))))
    kinds = {record.name: [(PlacementKind(run.kind), run.count) for run in record.runs]
             for record in snapshot if isinstance(record, TopicCreated)}
    assert kinds == {
        "legacy": [(PlacementKind.LEGACY, 2)],
        "mixed": [(PlacementKind.CHAIN, 1), (PlacementKind.LEGACY, 1)],
        "t": [(PlacementKind.CHAIN, 1)] * 3,
        "m": [(PlacementKind.CHAIN, 1)] * 3,
    }


UNKNOWN = 77
STRANGE: list[Record] = [
    TopicCreated(name="t", topic_id=UUID(int=5), runs=[
        PartitionRun(count=1, chain="a", kind=UNKNOWN)]),
    PartitionsAdded(topic_id=UUID(int=5), runs=[
        PartitionRun(count=1, chain="a", kind=PlacementKind.CHAIN),
        PartitionRun(count=1, chain="a", kind=UNKNOWN)]),
    PartitionsMoved(topic_id=UUID(int=5), partitions=[0], chain="a", kind=UNKNOWN),
]


@pytest.mark.parametrize("record", STRANGE, ids=lambda record: type(record).__name__)
def test_a_kind_of_a_newer_version_is_refused_in_words(record: Record) -> None:
    """T11, controller.P4: it is neither left out nor taken for a chain, though it names one."""
    with pytest.raises(UnknownRecord, match=r"kind 77.*a newer one wrote it"):
        decode_record(encode_record(record))


@pytest.mark.parametrize("run", [
    (PartitionRun(count=1, kind=PlacementKind.CHAIN), 0),
    (PartitionRun(count=1, kind=PlacementKind.LEGACY), 0),
    (PartitionRun(count=1, kind=PlacementKind.LEGACY, chain="a"), 1),
], ids=["a chain without a name", "a legacy partition that is not named", "one on a chain"])
def test_a_record_that_contradicts_its_kind_is_unfit(run: tuple[PartitionRun, int]) -> None:
    """controller.P4: the kind decides, not the chain's name."""
    named = [PartitionRecord(replicas=[1], isr=[1], leader=1)] * run[1]
    with pytest.raises(UnfitRecord):
        state_with().apply(TopicCreated(
            name="t", topic_id=UUID(int=5), partitions=named, runs=[run[0]]))


def test_nothing_moves_to_a_legacy_placement() -> None:
    state = state_with(TopicCreated(name="t", topic_id=UUID(int=5), runs=[
        chain_run(ChainPlacement("a", version=9), 1)]))
    with pytest.raises(UnfitRecord, match="to a chain only"):
        state.apply(PartitionsMoved(
            topic_id=UUID(int=5), partitions=[0], version=99, kind=PlacementKind.LEGACY))


def test_placements_become_records_and_come_back() -> None:
    legacy = LegacyPlacement(
        replicas=(NodeId(3), NodeId(1)), isr=(NodeId(1),), leader=NodeId(1), epoch=Epoch(2),
        version=4)
    state = state_with(TopicCreated(
        name="t", topic_id=UUID(int=5),
        partitions=[PartitionRecord(replicas=[3, 1], isr=[1], leader=1, leader_epoch=2,
                                    partition_epoch=4)],
        runs=[PartitionRun(count=2, chain="a", version=9), PartitionRun(count=1)]))
    partitions = state.topics["t"].partitions
    assert [p.placement for p in partitions] == [
        ChainPlacement("a", version=9), ChainPlacement("a", version=9), legacy]

    named, runs = partition_records(partitions)

    record = TopicCreated(partitions=named, runs=runs)
    assert list(placements_of(record)) == [(ChainPlacement("a", version=9), 2), (legacy, 1)]


class RunBeforeKinds(Struct):
    """A run as the version before kinds knows it."""

    count: int = int32()
    chain: str = string()
    moving_to: str | None = string(nullable="0+", default=None)
    joined: bool = boolean()
    epoch: int = int32()
    version: int = int32()


class AddedBeforeKinds(Message, key=5, versions="0", flexible="0+"):
    """`PartitionsAdded` as the version before kinds knows it."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)
    runs: list[RunBeforeKinds] = array(RunBeforeKinds, tag=0)


def test_an_older_version_reads_past_the_kind() -> None:
    """T7: nodes of both versions share a log while a cluster is upgraded."""
    record = PartitionsAdded(topic_id=UUID(int=5), runs=[
        chain_run(ChainPlacement("a", "b", joined=True, epoch=Epoch(3), version=9), 2),
        PartitionRun(count=1, kind=PlacementKind.LEGACY)])
    older = AddedBeforeKinds.decode(memoryview(encode_record(record))[4:], 0)
    assert [(run.count, run.chain, run.moving_to, run.joined, run.epoch, run.version)
            for run in older.runs] == [(2, "a", "b", True, 3, 9), (1, "", None, False, 0, 0)]
