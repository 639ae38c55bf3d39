"""Members that have caught up: what counts, for how long, and who adds up."""

from uuid import UUID

from quipu.broker.cluster.caught_up import CaughtUpReports, CaughtUpTally
from quipu.controller import brokers, chains, reassignment, topics
from quipu.controller.decision import Decision
from quipu.controller.placement import ChainPlacement
from quipu.controller.reassignment import CaughtUp, Reassignment
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.settings import BrokerSettings

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
TOPIC_ID = UUID(int=9)


def carry_out(state: ClusterState, decision: Decision[object]) -> None:
    for record in decision.records:
        state.apply(record)


def a_state(*names: str) -> ClusterState:
    """Registered nodes that are up, from number 1 on."""
    state = ClusterState()
    for number, name in enumerate(names, start=1):
        registration = brokers.Registration(NodeId(number), name, UUID(int=number), "h", 1)
        carry_out(state, brokers.register(state, registration, quiet=False))
        carry_out(state, brokers.unfence(
            state, NodeId(number), state.brokers[NodeId(number)].epoch))
    return state


def extended() -> ClusterState:
    """A chain of nodes 1 and 2 with a topic of two partitions, which 3 has just joined."""
    state = a_state("a-0", "a-1", "a-2")
    carry_out(state, chains.create(state, "a", ["a-0", "a-1"]))
    carry_out(state, topics.create_topics(
        state, [NewTopic("t", 2)], BrokerSettings(), lambda: TOPIC_ID))
    carry_out(state, chains.extend(state, "a", "a-2"))
    return state


def version(state: ClusterState, partition: int = 0) -> int:
    return state.topics["t"].partitions[partition].replica_set.version


def test_a_member_is_told_of_when_all_partitions_have_been_seen() -> None:
    """V7: by the tail, with the mark of the state in which it was seen."""
    state, reports = extended(), CaughtUpReports(TWO)
    assert reports.see((TOPIC_ID, 0), THREE, version(state))
    assert reports.caught_up_chains(state) == []
    assert reports.see((TOPIC_ID, 1), THREE, version(state, 1))
    assert not reports.see((TOPIC_ID, 1), THREE, version(state, 1))  # known

    (report,) = reports.caught_up_chains(state)

    carry_out(state, chains.promote(state, report.chain, NodeId(report.node_id), report.version))
    assert state.chains["a"].replica_set.serving == (ONE, TWO, THREE)
    assert reports.caught_up_chains(state) == []


def test_only_the_tail_tells() -> None:
    """V7: others may have been the tail when they saw something."""
    state, reports = extended(), CaughtUpReports(ONE)
    for partition in (0, 1):
        reports.see((TOPIC_ID, partition), THREE, version(state, partition))

    assert reports.caught_up_chains(state) == []


def test_what_was_seen_before_a_change_does_not_count() -> None:
    """V7, V15, broker.cluster.U1: a member that syncs anew has to be seen anew."""
    state, reports = extended(), CaughtUpReports(TWO)
    for partition in (0, 1):
        reports.see((TOPIC_ID, partition), THREE, version(state, partition))
    carry_out(state, brokers.fence(state, [THREE]))
    carry_out(state, brokers.unfence(state, THREE, state.brokers[THREE].epoch))

    assert reports.caught_up_chains(state) == []
    assert reports.caught_up_partitions(state) == []
    assert not reports._seen  # and is forgotten


def test_a_member_of_a_chain_without_topics_has_caught_up() -> None:
    """V7: there is nothing to wait for."""
    state = a_state("a-0", "a-1")
    carry_out(state, chains.create(state, "a", ["a-0"]))
    carry_out(state, chains.extend(state, "a", "a-1"))

    assert [report.node_id for report in CaughtUpReports(ONE).caught_up_chains(state)] == [TWO]


def test_a_moving_partition_goes_on_when_all_have_been_seen_by_whomever() -> None:
    """K6, broker.cluster.U2: each node reports what it saw; all serve, then the new chain alone."""
    state = a_state("a-0", "b-0", "b-1")
    for chain in ("a", "b"):
        carry_out(state, chains.create(state, chain))
    carry_out(state, topics.create_topics(
        state, [NewTopic("t", replication_factor=1)], BrokerSettings(), lambda: TOPIC_ID))
    carry_out(state, reassignment.alter(state, [Reassignment("t", 0, [2, 3])]))
    arrivals, key = CaughtUpTally(), (TOPIC_ID, 0)
    seen_by = {node_id: CaughtUpReports(node_id) for node_id in (ONE, TWO)}
    seen_by[ONE].see(key, TWO, version(state))
    seen_by[TWO].see(key, THREE, version(state))
    stale = seen_by[TWO].caught_up_partitions(state)

    assert arrivals.add(state, seen_by[ONE].caught_up_partitions(state), ONE) == []
    strange = seen_by[TWO].caught_up_partitions(state)
    assert arrivals.add(state, strange, NodeId(9)) == []  # of one that has no part in it
    arrived = arrivals.add(state, seen_by[TWO].caught_up_partitions(state), TWO)
    assert arrived == [CaughtUp(TOPIC_ID, 0, version(state))]
    carry_out(state, reassignment.advance(state, arrived))

    placement = state.topics["t"].partitions[0].placement
    assert isinstance(placement, ChainPlacement)
    assert placement.joined
    assert arrivals.add(state, stale, TWO) == []
    seen_by[ONE].see(key, NO_NODE, version(state))
    arrived = arrivals.add(state, seen_by[ONE].caught_up_partitions(state), ONE)
    carry_out(state, reassignment.advance(state, arrived))

    assert state.topics["t"].partitions[0].replicas == (TWO, THREE)
    assert arrivals.add(state, [], ONE) == []
    assert not arrivals._seen
