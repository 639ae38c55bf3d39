"""Partitions on their way between chains: KIP-455, with chains for targets."""

from typing import NamedTuple

import pytest

from quipu.controller import chains, failed_replicas, reassignment
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

    assert [each[0] for each in seen] == ["1 2 ~4 ~3", "1 2 4 3", "4 3", "4 3"]
    assert seen[0][1] < seen[1][1] < seen[2][1] == seen[3][1]
    moved, stayed = state.topics["t"].partitions[:2]
    assert (chain_name(moved)[:2], moved.moving_to, moved.leader, moved.isr) == (
        "b/", None, 4, (4, 3))
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
    Refused("a node twice", Reassignment("t", 1, [3, 4, 4]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("no nodes", Reassignment("t", 1, []), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("an unknown node", Reassignment("t", 1, [1, 9]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("a negative node", Reassignment("t", 1, [-1]), Code.INVALID_REPLICA_ASSIGNMENT),
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
    assert decision.results[0].message


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

    expected = [Ongoing("t", 1, (3, 4, 1, 2), adding=B, removing=A)]
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


# -- lists of nodes that are no chain, and that have nodes in common


class Way(NamedTuple):
    why: str
    to: tuple[int, ...]
    shapes: list[str]
    listed: tuple[tuple[int, ...], ...] | None  # replicas, adding, removing on the way


WAYS = [
    Way("another order", (2, 1), ["2 1"], None),
    Way("fewer nodes", (2,), ["2"], None),
    Way("more nodes", (1, 2, 5), ["1 2 ~5", "1 2 5", "1 2 5"], ((1, 2, 5), (5,), ())),
    Way("one replaced", (1, 3), ["1 2 ~3", "1 2 3", "1 3"], ((1, 3, 2), (3,), (2,))),
    Way("the head replaced", (4, 2), ["1 2 ~4", "1 2 4", "4 2"], ((4, 2, 1), (4,), (1,))),
    Way("of three chains", (5, 3, 1), ["1 2 ~5 ~3", "1 2 5 3", "5 3 1"],
        ((5, 3, 1, 2), (5, 3), (2,))),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.why)
def test_a_partition_moves_to_any_list_of_nodes(way: Way) -> None:
    """K6: in its order; nodes that it has already are not copied to."""
    state = a_state()
    assert move(state, 0, to=way.to) == [Code.NONE]
    listed = [(each.replicas, each.adding, each.removing) for each in reassignment.ongoing(state)]
    shapes = [shape(state)]
    while state.topics["t"].partitions[0].moving_to is not None:
        advance(state)
        shapes.append(shape(state))

    assert shapes == way.shapes
    assert listed == ([] if way.listed is None else [way.listed])
    partition = state.topics["t"].partitions[0]
    assert (partition.replicas, partition.leader) == (way.to, way.to[0])
    assert shape(state, 1) == "1 2"
    assert move(state, 0, to=A) == [Code.NONE]
    for _ in range(2):
        advance(state)
    assert (shape(state), chain_name(state.topics["t"].partitions[0])) == ("1 2", "a")
    carry_out(state, chains.reconcile(state))
    assert sorted(state.chains) == ["a", "b", "c"]  # derived ones are gone


def test_a_new_order_waits_for_a_node_that_does_not_serve() -> None:
    """K6, V15: a node that has just come back leads only once it has every record."""
    state = a_state()
    stop(state, 2)
    start(state, 2, "a-1", 2)
    assert shape(state) == "1 ~2"

    assert move(state, 0, to=(2, 1)) == [Code.NONE]
    assert shape(state) == "1 ~2"
    assert [each.adding for each in reassignment.ongoing(state)] == [()]
    advance(state)
    assert shape(state) == "1 2"
    advance(state)
    assert shape(state) == "2 1"


def test_a_move_does_not_end_without_the_nodes_that_it_adds() -> None:
    """K6, controller.J2: one that is lost on the way syncs again, and the others serve."""
    state = a_state()
    move(state, 0, to=(1, 3, 4))
    advance(state)
    assert shape(state) == "1 2 3 4"
    stop(state, 4)
    assert shape(state) == "1 2 3 !4"
    advance(state)
    assert shape(state) == "1 2 ~3 !4"
    advance(state)
    assert shape(state) == "1 2 ~3 !4"
    start(state, 4, "b-1", 2)
    assert shape(state) == "1 2 ~3 ~4"
    version = state.topics["t"].partitions[0].moving_to
    assert version is not None
    carry_out(state, chains.promote(state, version, NodeId(4), state.chain_mark(version)))
    for _ in range(2):
        advance(state)
    assert shape(state) == "1 3 4"


def test_a_failed_replica_calls_a_move_to_it_off() -> None:
    """controller.F4: also if the partition was on that node before."""
    for node_id, after in ((3, "1 2"), (1, "2 !1")):
        state = a_state()
        move(state, 0, to=(1, 3))
        advance(state)
        assert shape(state) == "1 2 3"
        key = (state.topics["t"].topic_id, 0)
        carry_out(state, failed_replicas.report(state, NodeId(node_id), {key}))
        assert shape(state) == after
        assert reassignment.ongoing(state) == []


def test_a_partition_leaves_a_node_whose_replica_has_failed() -> None:
    """K6, controller.F4: the failed one is not of the target, so the move goes on."""
    state = a_state()
    key = (state.topics["t"].topic_id, 0)
    carry_out(state, failed_replicas.report(state, NodeId(1), {key}))
    assert shape(state) == "2 !1"
    move(state, 0, to=(2, 3))
    assert shape(state) == "2 ~3 !1"
    for _ in range(2):
        advance(state)
    assert shape(state) == "2 3"
    assert not state.is_detached(key)
