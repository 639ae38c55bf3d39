"""Records of another node: what no controller can have decided is refused before it is kept."""

from uuid import UUID

import pytest

from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.controller.record_bounds import check_record
from quipu.controller.records import (
    BrokerRegistered,
    ChainChanged,
    ChainMemberRecord,
    NumbersUsed,
    PartitionRun,
    PartitionsAdded,
    PartitionsMoved,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    encode_record,
)
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.model.bounds import EPOCH_JUMP_MAX, EPOCH_MAX, PRODUCER_ID_JUMP_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.settings import BrokerSettings
from tests.controller.states import state_with
from tests.looped import looped

TOPIC_ID = UUID(int=7)
INT, LONG = (1 << 31) - 1, (1 << 63) - 1


def a_cluster() -> ClusterState:
    """A chain of three, and a topic on it."""
    return state_with(created(), a=3)


def created(name: str = "t", **run: int) -> TopicCreated:
    return TopicCreated(name=name, topic_id=TOPIC_ID, runs=[
        PartitionRun(**{"count": 1, "chain": "a", "epoch": 1, "version": 1, **run})])


ABSURD: list[tuple[str, Record]] = [
    ("no name", created("")), ("a path", created("../../etc")), ("a nul", created("a\0b")),
    ("too long a name", created("x" * 250)), ("another alphabet", created("ä")),
    ("the last epoch", created(epoch=INT)), ("the last version", created(version=INT)),
    ("too many partitions", created(count=INT)), ("fewer than none", created(count=-1)),
    ("more partitions", PartitionsAdded(topic_id=TOPIC_ID, runs=created(epoch=INT).runs)),
    ("a chain's epoch", ChainChanged(name="a", epoch=INT, version=1)),
    ("a chain's version", ChainChanged(name="a", epoch=1, version=INT)),
    ("a chain of thousands", ChainChanged(name="a", epoch=1, version=1, members=[
        ChainMemberRecord(node_id=number) for number in range(1001)])),
    ("a move", PartitionsMoved(topic_id=TOPIC_ID, epoch=INT, version=1)),
    ("numbers", NumbersUsed(next_epoch=INT, next_version=1)),
    ("numbers below nothing", NumbersUsed(next_epoch=-2, next_version=1)),
    ("a registration", BrokerRegistered(node_id=1, epoch=LONG)),
    ("a number below zero", BrokerRegistered(node_id=-5, epoch=1)),
    ("producer ids", ProducerIdsReserved(next_producer_id=LONG)),
]


@pytest.mark.parametrize("record", [record for _, record in ABSURD],
                         ids=[why for why, _ in ABSURD])
def test_an_absurd_record_is_refused(record: Record) -> None:
    """K8, V15, controller.B1, controller.B2, controller.B3: by a node that knows the cluster, and
    by one that knows nothing yet.
    """
    for state in (a_cluster(), ClusterState()):
        with pytest.raises(MalformedBytes):
            check_record(record, state)
    machine = MetadataStateMachine(BrokerSettings(), on_leadership=lambda _: None)
    with pytest.raises(MalformedBytes):
        machine.check_commands([encode_record(record)])
    with pytest.raises(MalformedBytes):
        machine.check_snapshot([encode_record(record)])
    assert not machine.state.topics


def test_jumps_are_measured_from_what_is_known() -> None:
    """V15: the same number is fine for a node that knows nothing, and absurd for one that does."""
    state = a_cluster()
    near = ChainChanged(name="a", epoch=state.next_epoch + EPOCH_JUMP_MAX, version=1)
    check_record(near, state)
    far = ChainChanged(name="a", epoch=state.next_epoch + EPOCH_JUMP_MAX + 1, version=1)
    with pytest.raises(MalformedBytes, match=r"epoch \d+ cannot be: the next one here is"):
        check_record(far, state)
    check_record(far, ClusterState())
    check_record(ChainChanged(name="a", epoch=EPOCH_MAX, version=1), ClusterState())
    ids = state.next_producer_id + PRODUCER_ID_JUMP_MAX
    check_record(ProducerIdsReserved(next_producer_id=ids), state)
    with pytest.raises(MalformedBytes, match="producer id"):
        check_record(ProducerIdsReserved(next_producer_id=ids + 1), state)


@looped
async def test_every_real_record_is_taken() -> None:
    """T7: what a real state is made of, one by one and as a snapshot."""
    machine = MetadataStateMachine(BrokerSettings(), on_leadership=lambda _: None)
    items = [encode_record(record) for record in records_of(a_cluster())]
    assert items
    machine.check_snapshot(items)
    for item in items:
        machine.check_commands([item])
        machine.apply(1, [item])  # type: ignore[arg-type]  # an index
    assert list(machine.snapshot()) == items


@pytest.mark.parametrize("command", [
    b"", b"\0", b"\xff\xff\0\0", b"\0\3\0\0", b"\0\3\0\0" + b"\xff" * 40])
def test_what_is_no_record_is_refused(command: bytes) -> None:
    """K8, broker.cluster.A3: also a record of a newer version: it is taken when this program is
    newer too.
    """
    machine = MetadataStateMachine(BrokerSettings(), on_leadership=lambda _: None)
    with pytest.raises(MalformedBytes):
        machine.check_commands([command])


def test_a_snapshot_that_cannot_be_built_is_refused() -> None:
    """K8: each record is plausible, and together they are not."""
    machine = MetadataStateMachine(BrokerSettings(), on_leadership=lambda _: None)
    twice = [encode_record(ProducerIdsReserved(next_producer_id=5))] * 2
    with pytest.raises(MalformedBytes, match="cannot be built"):
        machine.check_snapshot(twice)
