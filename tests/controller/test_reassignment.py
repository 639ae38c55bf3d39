"""Partitions on their way between chains: KIP-455, with chains for targets."""

from typing import NamedTuple

import pytest

from quipu.controller import chains, reassignment
from quipu.controller.reassignment import CaughtUp, Ongoing, Reassignment
from quipu.controller.records import PartitionsMoved
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import create_partitions, create_topics
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, chain_name, ids, start, state_with, stop

A, B, C = (1, 2), (3, 4), (5,)


def a_state() -> ClusterState:
    """Topic t with three partitions on chain a (1 2); beside it b (3 4) and c (5)."""
    state = state_with(a=2, b=2, c=1)
    wanted = NewTopic("t", assignments=[(index, A) for index in range(3)])
    carry_out(state, create_topics(state, [wanted], BrokerSettings(), ids()))
    return state


def move(state: ClusterState, *partitions: int, to: tuple[int, ...] | None) -> list[Code]:
    wanted = [Reassignment("t", partition, to) for partition in partitions]
    return [result.code for result in carry_out(state, reassignment.alter(state, wanted))]


def advance(state: ClusterState, partition: int = 0) -> None:
    """All replicas have caught up, and the head reports it."""
    now = state.topics["t"].partitions[partition]
    report = CaughtUp(state.topics["t"].topic_id, partition, now.partition_epoch)
    carry_out(state, reassignment.advance(state, [report]))


def shape(state: ClusterState, partition: int = 0) -> str:
    """`1 2 ~3 !4`: serving, syncing, offline."""
    members = state.replica_set("t", partition).members
    return " ".join(f"{('', '~', '!')[member.state]}{member.node_id}" for member in members)


def test_a_partition_moves_from_chain_to_chain() -> None:
    """K6: copied first, then served by both, then by the new one; a new epoch for each."""
    state = a_state()
    seen = []

    assert move(state, 0, to=(4, 3)) == [Code.NONE]
    seen.append((shape(state), state.replica_set("t", 0).epoch))
    for _ in range(3):
        advance(state)
        seen.append((shape(state), state.replica_set("t", 0).epoch))

    assert seen == [("1 2 ~3 ~4", 1), ("1 2 3 4", 4), ("3 4", 5), ("3 4", 5)]
    moved, stayed = state.topics["t"].partitions[:2]
    assert (chain_name(moved), moved.moving_to, moved.leader, moved.isr) == ("b", None, 3, B)
    assert (chain_name(stayed), stayed.leader_epoch) == ("a", 1)
    assert (state.topic_count("a"), state.topic_count("b")) == (1, 1)


def test_partitions_that_go_the_same_way_share_a_record() -> None:
    """K6: ten thousand partitions are a few records."""
    state = a_state()
    wanted = [Reassignment("t", partition, B) for partition in range(3)]

    decision = reassignment.alter(state, wanted)

    assert [record.partitions for record in decision.records
            if isinstance(record, PartitionsMoved)] == [[0, 1, 2]]


class Refused(NamedTuple):
    why: str
    wanted: Reassignment
    code: Code


REFUSED = [
    Refused("half a chain", Reassignment("t", 1, [3]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("two chains", Reassignment("t", 1, [1, 3]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("a node twice", Reassignment("t", 1, [3, 4, 4]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("no nodes", Reassignment("t", 1, []), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("an unknown node", Reassignment("t", 1, [9]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("an unknown topic", Reassignment("x", 0, B), Code.UNKNOWN_TOPIC_OR_PARTITION),
    Refused("an unknown partition", Reassignment("t", 3, B), Code.UNKNOWN_TOPIC_OR_PARTITION),
    Refused("a negative partition", Reassignment("t", -1, B), Code.UNKNOWN_TOPIC_OR_PARTITION),
    Refused("nothing to call off", Reassignment("t", 1, None), Code.NO_REASSIGNMENT_IN_PROGRESS),
    Refused("another factor", Reassignment("t", 1, C), Code.INVALID_REPLICATION_FACTOR),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_move_that_cannot_be_is_refused(case: Refused) -> None:
    """K6: the good one beside it begins."""
    state = a_state()

    decision = reassignment.alter(
        state, [case.wanted, Reassignment("t", 0, B)], factor_may_change=False)

    assert [result.code for result in decision.results] == [case.code, Code.NONE]
    assert len(decision.records) == 1
    if case.code is Code.INVALID_REPLICA_ASSIGNMENT:
        assert "a [1, 2], b [3, 4], c [5]" in (decision.results[0].message or "")


def test_a_partition_named_twice_does_not_move() -> None:
    """K6."""
    assert move(a_state(), 0, 0, to=B) == [Code.INVALID_REQUEST] * 2


def test_a_move_is_called_off() -> None:
    """K6: by no replicas, or by its own; also after both chains serve, and then by a new epoch."""
    state = a_state()
    epoch = state.replica_set("t", 0).epoch

    move(state, 0, to=B)
    assert move(state, 0, to=None) == [Code.NONE]
    assert (shape(state), state.replica_set("t", 0).epoch) == ("1 2", epoch)
    move(state, 0, to=B)
    move(state, 0, to=A)
    assert (shape(state), reassignment.ongoing(state)) == ("1 2", [])
    move(state, 0, to=B)
    advance(state)
    move(state, 0, to=None)
    assert shape(state) == "1 2"
    assert state.replica_set("t", 0).epoch > epoch + 1


def test_a_move_gets_another_target_on_its_way() -> None:
    """K6: asking for the same again changes nothing."""
    state = a_state()
    move(state, 0, to=B)
    version = state.replica_set("t", 0).version

    move(state, 0, to=B)
    assert state.replica_set("t", 0).version == version
    move(state, 0, to=C)

    assert shape(state) == "1 2 ~5"
    assert state.topic_count("b") == 0


def test_what_is_out_of_date_or_down_does_not_advance_a_move() -> None:
    """K6, V14: not by a report out of date, nor while the new chain is incomplete."""
    state = a_state()
    topic_id = state.topics["t"].topic_id
    move(state, 0, to=B)
    version = state.replica_set("t", 0).version
    reports = [CaughtUp(topic_id, 0, version - 1), CaughtUp(topic_id, 1, version),
               CaughtUp(topic_id, 7, version), CaughtUp(ZERO_UUID, 0, version)]

    assert reassignment.advance(state, reports).records == []
    stop(state, 3)
    stop(state, 4)
    assert (shape(state), state.chains["b"].head.node_id) == ("1 2 ~4 !3", 4)
    advance(state)
    assert shape(state) == "1 2 ~4 !3"


def test_a_partition_served_by_both_chains_follows_both() -> None:
    """V15: whichever loses a member, there is a new epoch; who comes back syncs."""
    state = a_state()
    move(state, 0, to=B)
    advance(state)
    epochs = [state.replica_set("t", 0).epoch]
    shapes = []
    for step in (lambda: stop(state, 4), lambda: stop(state, 1),
                 lambda: start(state, 1, "a-0", 2)):
        step()
        shapes.append(shape(state))
        epochs.append(state.replica_set("t", 0).epoch)

    assert shapes == ["1 2 3 !4", "2 3 !1 !4", "2 3 ~1 !4"]
    assert epochs[0] < epochs[1] < epochs[2] == epochs[3]
    assert state.topics["t"].partitions[0].leader == 2
    assert {name for name in "abc" if ("t", 0) in {
        (topic.name, index) for topic, index in state.partitions_on(name)}} == {"a", "b"}


def test_a_partition_being_copied_does_not_mind_what_serves_at_its_target() -> None:
    """K6: its epoch stays, its version grows."""
    state = a_state()
    move(state, 0, to=B)
    before = state.replica_set("t", 0)

    stop(state, 3)

    after = state.replica_set("t", 0)
    assert (after.epoch, after.serving) == (before.epoch, before.serving)
    assert after.version > before.version
    assert state.topics["t"].partitions[0].leader == 1


def test_a_partition_without_a_head_has_no_leader_on_its_way() -> None:
    """K6: the chain that it leaves leads it until it has left."""
    state = a_state()
    move(state, 0, to=B)
    stop(state, 2)
    stop(state, 1)

    assert state.topics["t"].partitions[0].leader == NO_NODE


def test_what_moves_is_listed() -> None:
    """K6: all of its replicas, those to come and those to go."""
    state = a_state()
    move(state, 1, to=B)

    expected = [Ongoing("t", 1, (1, 2, 3, 4), adding=B, removing=A)]
    assert reassignment.ongoing(state) == expected
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 9),
             TopicPartition("x", 0)]
    assert reassignment.ongoing(state, partitions) == expected


def test_new_partitions_go_where_the_topic_goes() -> None:
    """K5: a topic is on one chain, as far as people let it."""
    state = a_state()
    move(state, 0, 1, 2, to=B)

    carry_out(state, create_partitions(state, [NewPartitions("t", 4)], BrokerSettings()))

    assert chain_name(state.topics["t"].partitions[3]) == "b"


def test_a_chain_that_grows_takes_its_partitions_along() -> None:
    """V7: those on their way to it too."""
    state = a_state()
    move(state, 0, to=B)
    advance(state)
    start(state, 6, "b-2")

    carry_out(state, chains.extend(state, "b", "b-2"))
    assert shape(state) == "1 2 3 4 ~6"
    carry_out(state, chains.promote(state, "b", NodeId(6), state.chain_mark("b")))

    assert shape(state) == "1 2 3 4 6"
