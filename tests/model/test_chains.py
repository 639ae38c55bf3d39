"""Names of nodes, and the replicas of a partition in their order."""

import pytest

from quipu.model.chains import (
    MemberState,
    ReplicaMember,
    ReplicaSet,
    least_in_sync,
    member_key,
)
from quipu.model.ids import Epoch, NodeId

SERVING, SYNCING, OFFLINE = MemberState


def replica_set(*states: MemberState) -> ReplicaSet:
    return ReplicaSet(epoch=Epoch(1), version=1, members=tuple(
        ReplicaMember(NodeId(node), state) for node, state in enumerate(states, 1)))


def test_names_are_in_the_order_of_their_numbers() -> None:
    """V6: a-10 comes after a-2."""
    names = ["b-0", "a-10", "a-2", "a-b-1", "a-0"]

    assert sorted(names, key=member_key) == ["a-0", "a-2", "a-10", "a-b-1", "b-0"]


@pytest.mark.parametrize("name", ["", "a", "a-", "a-x", "-", "a--", "a-\u0663", "a-01"])
def test_a_name_without_a_number_belongs_to_no_chain(name: str) -> None:
    assert member_key(name) == ("", -1)


def test_records_travel_from_the_head_past_the_tail() -> None:
    """V2, V7: a syncing member is sent everything, and is not the tail."""
    members = replica_set(SERVING, SERVING, SYNCING, OFFLINE)

    assert (members.head, members.tail) == (1, 2)
    assert (members.path, members.replicas) == ((1, 2, 3), (1, 2, 3, 4))
    assert (members.serving, members.syncing) == ((1, 2), (3,))
    assert [members.successor(NodeId(node)) for node in range(6)] == [
        None, 2, 3, None, None, None]
    assert [members.predecessor(NodeId(node)) for node in range(6)] == [
        None, None, 1, 2, None, None]
    assert [members.state_of(NodeId(node)) for node in (0, 1, 3, 4)] == [
        None, SERVING, SYNCING, OFFLINE]


@pytest.mark.parametrize(
    "states", [(), (SYNCING,), (SYNCING, SERVING), (SERVING, OFFLINE, SYNCING)])
def test_an_order_that_cannot_be_is_a_bug(states: tuple[MemberState, ...]) -> None:
    """model.H1, model.H2."""
    with pytest.raises(AssertionError):
        replica_set(*states)


def test_a_node_is_a_member_once() -> None:
    """H1."""
    with pytest.raises(AssertionError):
        ReplicaSet(epoch=Epoch(1), version=1, members=(ReplicaMember(NodeId(1), SERVING),) * 2)


@pytest.mark.parametrize(("setting", "of_replicas"), [
    (None, {1: 1, 2: 1, 3: 2, 5: 4}),  # all but one, and at least one
    (0, {1: 1, 2: 2, 3: 3, 5: 5}),  # the strict rule
    (1, {1: 1, 2: 1, 3: 1, 5: 1}),
    (2, {1: 1, 2: 2, 3: 2, 5: 2}),
    (100, {1: 1, 2: 2, 3: 3, 5: 5}),  # as in Kafka: no more than there are
])
def test_the_replicas_that_must_be_in_sync(
    setting: int | None, of_replicas: dict[int, int]
) -> None:
    """V5, V21, K5: min.insync.replicas, given or not, for any number of replicas."""
    assert {count: least_in_sync(setting, count) for count in of_replicas} == of_replicas
