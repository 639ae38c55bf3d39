"""Partitions one of whose replicas has failed: who serves them, and who serves all the others."""

from collections.abc import Iterable

import pytest

from quipu.controller import brokers, chains, elections, failed_replicas, reassignment, topics
from quipu.controller.elections import ElectionType
from quipu.controller.state import ClusterState, Key
from quipu.controller.topic_state import PartitionState
from quipu.model.chains import MemberState
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, nodes_with, register

A, B, C = NodeId(1), NodeId(2), NodeId(3)


def three(*, partitions: int = 2) -> ClusterState:
    state = nodes_with(["a-0", "a-1", "a-2"])
    carry_out(state, chains.create(state, "a"))
    carry_out(state, topics.create_topics(
        state, [topics.NewTopic("t", partitions)], BrokerSettings(), ids()))
    return state


def key(state: ClusterState, index: int = 0) -> Key:
    return state.topics["t"].topic_id, index


def part(state: ClusterState, index: int = 0) -> PartitionState:
    return state.topics["t"].partitions[index]


def report(state: ClusterState, node: NodeId, failed: Iterable[int] = ()) -> int:
    """A heartbeat; gives how many records it made."""
    decision = failed_replicas.report(state, node, {key(state, index) for index in failed})
    carry_out(state, decision)
    assert chains.reconcile(state).records == []
    return len(decision.records)


def catch_up(state: ClusterState, node: NodeId) -> None:
    carry_out(state, failed_replicas.promote(state, key(state), node, part(state).partition_epoch))


@pytest.mark.parametrize("node", [A, B, C])
def test_one_partition_goes_on_without_the_node(node: NodeId) -> None:
    """V13, V21: under a new epoch; the chain and its other partitions do not change at all."""
    state = three()
    chain, before, other = state.chains["a"], part(state), part(state, 1)
    assert report(state, node, [0]) == 1
    now = part(state)
    assert now.isr == tuple(each for each in (A, B, C) if each != node)
    assert now.leader == now.isr[0]
    assert now.leader_epoch > before.leader_epoch
    assert now.failed_replicas == (node,)
    assert state.chains["a"] is chain
    assert part(state, 1) is other
    assert report(state, node, [0]) == 0, "it is said again and again"
    assert report(state, node) == 1
    assert part(state).replica_set.syncing == (node,)
    assert part(state).leader_epoch == now.leader_epoch
    catch_up(state, node)
    assert set(part(state).isr) == {A, B, C}
    assert state.detached_partitions() == []
    assert part(state).replica_set.replicas == chain.nodes
    assert part(state).leader_epoch > now.leader_epoch


def test_the_last_one_that_serves_is_never_taken_off() -> None:
    """V14, controller.F1: the last member has every record; it goes on when its log is open, in a
    new epoch.
    """
    state = three()
    for node in (A, B, C):
        report(state, node, [0])
    now = part(state)
    assert now.isr == (C,)
    assert now.replica_set.state_of(A) is MemberState.OFFLINE
    report(state, A)
    assert part(state).isr == (C,), "it may lack records"
    assert part(state).replica_set.state_of(A) is MemberState.OFFLINE
    before = part(state)
    report(state, C)
    assert part(state).isr == (C,)
    assert part(state).leader_epoch > before.leader_epoch
    assert part(state).replica_set.syncing == (A,)


def test_a_node_that_is_alone_keeps_its_partition() -> None:
    """V13: no other member has it; when its log is open again a new epoch begins."""
    state = nodes_with(["a-0"])
    carry_out(state, chains.create(state, "a"))
    carry_out(state, topics.create_topics(
        state, [topics.NewTopic("t", 1)], BrokerSettings(), ids()))
    before = part(state)
    assert report(state, A, [0]) == 1
    assert (part(state).leader, part(state).isr) == (A, (A,))
    assert part(state).leader_epoch == before.leader_epoch
    assert report(state, A) == 1
    assert part(state).leader_epoch > before.leader_epoch
    assert state.detached_partitions() == []


def test_those_who_have_it_all_are_waited_for() -> None:
    """V14, V15: a chain that shrinks to the failed node does not give it the partition."""
    state = three()
    report(state, B, [0])
    carry_out(state, brokers.fence(state, [A]))
    carry_out(state, brokers.fence(state, [C]))
    assert state.chains["a"].serving[0].node_id == B
    assert part(state, 1).leader == B
    assert part(state).leader == NO_NODE
    report(state, B)
    assert part(state).leader == NO_NODE
    assert B not in part(state).isr
    carry_out(state, brokers.unfence(state, C, state.brokers[C].epoch))
    assert part(state).leader == C
    assert part(state).replica_set.syncing == (B,)


def test_a_restarted_node_is_asked_anew() -> None:
    """V16, controller.F2: it syncs, until it says that the log has failed again."""
    state = three()
    report(state, B, [0])
    carry_out(state, brokers.fence(state, [B]))
    carry_out(state, register(state, 2, "a-1", 7))
    carry_out(state, brokers.unfence(state, B, state.brokers[B].epoch))
    assert part(state).failed_replicas == ()
    assert part(state).replica_set.syncing == (B,)
    report(state, B, [0])
    assert part(state).replica_set.state_of(B) is MemberState.OFFLINE
    assert part(state, 1).replica_set.syncing == (B,)
    mark = state.chain_mark("a")
    carry_out(state, chains.promote(state, "a", B, mark))
    assert part(state, 1).isr[-1] == B, "what failed does not hold up what did not"
    assert part(state).replica_set.state_of(B) is MemberState.OFFLINE


def test_a_report_of_another_version_does_not_count() -> None:
    """V7, V13, controller.F3: nor has anybody but the first that syncs."""
    state = three()
    report(state, A, [0])
    report(state, B, [0])
    report(state, A)
    report(state, B)
    assert part(state).replica_set.syncing == (A, B)
    version = part(state).partition_epoch
    for node, seen in ((A, version - 1), (B, version), (C, version), (NodeId(9), version)):
        assert failed_replicas.promote(state, key(state), node, seen).records == []
    carry_out(state, brokers.fence(state, [C]))
    catch_up(state, A)
    assert part(state).isr == (C,), "no node can have caught up with a dead one"


def test_a_move_is_called_off_if_a_log_fails_where_it_goes() -> None:
    """V13, K6, controller.F4: copying or joined; the partition stays where it is, whole."""
    for is_joined in (False, True):
        state = nodes_with(["a-0", "a-1", "b-0", "b-1"])
        carry_out(state, chains.create(state, "a"))
        carry_out(state, chains.create(state, "b"))
        carry_out(state, topics.create_topics(
            state, [topics.NewTopic("t", assignments=[(0, [1, 2])])], BrokerSettings(), ids()))
        carry_out(state, reassignment.alter(state, [reassignment.Reassignment("t", 0, [3, 4])]))
        if is_joined:
            carry_out(state, reassignment.advance(state, [reassignment.CaughtUp(
                *key(state), part(state).partition_epoch)]))
            assert part(state).isr == (1, 2, 3, 4)
        before = part(state)
        report(state, NodeId(4), [0])
        assert part(state).moving_to is None
        assert part(state).replicas == part(state).isr == (1, 2)
        assert (part(state).leader_epoch > before.leader_epoch) == is_joined
        assert state.detached_partitions() == []


def test_a_detached_partition_moves_and_is_whole_there() -> None:
    """V13, K6."""
    state = nodes_with(["a-0", "a-1", "b-0", "b-1"])
    carry_out(state, chains.create(state, "a"))
    carry_out(state, chains.create(state, "b"))
    carry_out(state, topics.create_topics(
        state, [topics.NewTopic("t", assignments=[(0, [1, 2])])], BrokerSettings(), ids()))
    report(state, B, [0])
    carry_out(state, reassignment.alter(state, [reassignment.Reassignment("t", 0, [3, 4])]))
    assert part(state).isr == (1,)
    for _ in range(2):
        carry_out(state, reassignment.advance(state, [reassignment.CaughtUp(
            *key(state), part(state).partition_epoch)]))
    assert part(state).replicas == part(state).isr == (3, 4)
    assert state.detached_partitions() == []
    assert report(state, B, [0]) == 0, "it has no more part in it"


def test_an_unclean_election_is_of_the_one_partition() -> None:
    """V14: the last replica cannot be opened; an operator chooses to lose what only it had."""
    state = three()
    for node in (A, B, C):
        report(state, node, [0])
    report(state, A)
    epoch = part(state, 1).leader_epoch
    decision = elections.elect(state, ElectionType.UNCLEAN, [TopicPartition("t", 0)])
    assert [result.code for result in decision.results] == [Code.NONE]
    carry_out(state, decision)
    assert (part(state).leader, part(state).isr) == (A, (A,))
    assert part(state, 1).leader_epoch == epoch
    refused = elections.elect(state, ElectionType.UNCLEAN, [TopicPartition("t", 1)])
    assert [result.code for result in refused.results] == [Code.ELECTION_NOT_NEEDED]


def test_a_node_that_joins_the_chain_joins_the_partition() -> None:
    """V7, V13."""
    state = three()
    report(state, B, [0])
    carry_out(state, register(state, 4, "a-3", 1))
    carry_out(state, brokers.unfence(state, NodeId(4), state.brokers[NodeId(4)].epoch))
    carry_out(state, chains.extend(state, "a", "a-3"))
    assert part(state).replica_set.syncing == (4,)
    assert part(state).replica_set.state_of(B) is MemberState.OFFLINE


def test_what_is_deleted_is_not_detached() -> None:
    """K5, U2."""
    state = three()
    report(state, B, [0, 1])
    assert len(state.detached_partitions()) == 2
    carry_out(state, topics.delete_topics(
        state, [("t", topics.ZERO_UUID)], BrokerSettings()))
    assert state.detached_partitions() == []
    assert chains.reconcile(state).records == []
