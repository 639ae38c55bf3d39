"""Replication factors, rotated orders, topics that are spread, and the chains derived for them."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.controller import brokers, chains, elections, failed_replicas, topics
from quipu.controller.elections import ElectionType
from quipu.controller.records import ChainRemoved, DerivedChainChanged
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from quipu.model.topics import CONSUMER_OFFSETS
from tests.controller.states import (
    LETTERS,
    carry_out,
    chain_name,
    ids,
    nodes_with,
    register,
    start,
    state_with,
    stop,
)

FIXED = BrokerSettings(chain_rotate="false")
ROTATED = BrokerSettings(chain_rotate="true")
SPREAD = BrokerSettings(chain_rotate="true", chain_spread="partition")

NEW_ID = ids()


def create(
    state: ClusterState, *wanted: NewTopic, settings: BrokerSettings = ROTATED
) -> ClusterState:
    for result in carry_out(state, topics.create_topics(state, wanted, settings, NEW_ID)):
        assert result.code is Code.NONE, result
    return state


def orders(state: ClusterState, topic: str) -> str:
    """The replicas of each partition, as Metadata shows them: `12 21`."""
    return " ".join("".join(map(str, p.replicas)) for p in state.topics[topic].partitions)


def leaders(state: ClusterState, topic: str) -> str:
    return " ".join(str(p.leader) for p in state.topics[topic].partitions)


def shape_of(state: ClusterState, topic: str, partition: int = 0) -> str:
    """The members of a partition as they are now: serving, then `~` syncing, then `!` offline."""
    return " ".join(f"{LETTERS[member.state]}{member.node_id}"
                    for member in state.replica_set(topic, partition).members)


def catch_up(state: ClusterState, topic: str, partition: int = 0) -> None:
    """The first syncing member of a partition's chain has every record."""
    name = chain_name(state.topics[topic].partitions[partition])
    (node_id, *_) = state.chains[name].replica_set.syncing
    carry_out(state, chains.promote(state, name, node_id, state.chain_mark(name)))


# -- which nodes a partition gets


class Layout(NamedTuple):
    why: str
    lengths: dict[str, int]
    topic: NewTopic
    orders: str
    settings: BrokerSettings = ROTATED


LAYOUTS = [
    Layout("a fixed order", {"a": 3}, NewTopic("t", 4), "123 123 123 123", FIXED),
    Layout("rotated", {"a": 3}, NewTopic("t", 4), "123 231 312 123"),
    Layout("one replica", {"a": 3}, NewTopic("t", 4, 1), "1 2 3 1"),
    Layout("two replicas", {"a": 3}, NewTopic("t", 4, 2), "12 23 31 12"),
    Layout("two replicas, fixed", {"a": 3}, NewTopic("t", 3, 2), "12 12 12", FIXED),
    Layout("part of a chain is rotated unless that is turned off", {"a": 3}, NewTopic("t", 3, 2),
           "12 23 31", BrokerSettings()),
    Layout("a whole chain is not, unless that is set", {"a": 3}, NewTopic("t", 3),
           "123 123 123", BrokerSettings()),
    Layout("as many as a chain has", {"a": 2, "b": 3}, NewTopic("t", 2, 3), "345 453"),
    Layout("the nearest longer chain", {"a": 1, "b": 4, "c": 3}, NewTopic("t", 3, 2), "67 78 86"),
    Layout("more than any chain has", {"a": 2, "b": 1}, NewTopic("t", 3, 3), "123 231 312"),
    Layout("the default factor", {"a": 3}, NewTopic("t", 2), "1 2",
           replace(ROTATED, default_replication_factor=1)),
    Layout("spread over chains", {"a": 2, "b": 2}, NewTopic("t", 4), "12 34 21 43", SPREAD),
    Layout("spread, fixed", {"a": 2, "b": 2}, NewTopic("t", 4), "12 34 12 34",
           replace(FIXED, chain_spread="partition")),
    Layout("spread by the topic's own setting", {"a": 2, "b": 2}, NewTopic(
        "t", 2, configs=[("chain.spread", "partition")]), "12 34"),
    Layout("rotated by the topic's own setting", {"a": 2}, NewTopic(
        "t", 2, configs=[("chain.rotate", "true")]), "12 21", FIXED),
    Layout("by hand: any list of nodes", {"a": 2, "b": 2}, NewTopic(
        "t", assignments=[(0, [3, 1, 4]), (1, [2, 3, 1])]), "314 231"),
    Layout("by hand: another order of a chain", {"a": 3}, NewTopic(
        "t", assignments=[(0, [2, 1, 3])]), "213", FIXED),
]


@pytest.mark.parametrize("case", LAYOUTS, ids=lambda case: case.why)
def test_a_partition_gets_as_many_nodes_as_it_asks_for(case: Layout) -> None:
    """K5, V2: any factor from 1 to the number of nodes; Metadata shows the list; its head leads."""
    state = create(state_with(**case.lengths), case.topic, settings=case.settings)

    assert orders(state, "t") == case.orders
    assert leaders(state, "t").split() == [order[0] for order in case.orders.split()]
    assert [p.isr for p in state.topics["t"].partitions] == [
        p.replicas for p in state.topics["t"].partitions]


def test_a_list_that_is_the_chain_s_own_order_is_the_chain() -> None:
    """V2: a fixed order costs nothing: no derived chain is made."""
    state = create(state_with(a=3), NewTopic("t", 4), settings=FIXED)
    assert list(state.chains) == ["a"]

    create(state, NewTopic("u", 6))

    assert chain_name(state.topics["u"].partitions[2]) == "a"  # it begins at the second node
    assert len(state.chains) == 3


def test_topics_of_one_partition_are_led_by_all_nodes() -> None:
    """V3: each topic begins with the next node."""
    state = create(state_with(a=3), *(NewTopic(name, 1) for name in "pqrstu"))

    assert Counter(leaders(state, name) for name in "pqrstu") == {"1": 2, "2": 2, "3": 2}


def test_partitions_that_are_added_go_on_in_turn() -> None:
    """K5: CreatePartitions; with an assignment, any list of as many nodes."""
    state = create(state_with(a=3), NewTopic("s", 1), NewTopic("t", 2))
    assert orders(state, "t") == "231 312"

    carry_out(state, topics.create_partitions(state, [NewPartitions("t", 4)], ROTATED))
    carry_out(state, topics.create_partitions(
        state, [NewPartitions("t", 5, [[3, 2, 1]])], ROTATED))

    assert orders(state, "t") == "231 312 123 231 321"


@given(count=st.integers(1, 40), factor=st.integers(1, 5), nodes=st.integers(1, 5))
def test_every_node_leads_as_many_as_any_other(count: int, factor: int, nodes: int) -> None:
    """V3: to within one partition, and holds as many replicas to within the factor."""
    state = create(state_with(a=nodes), NewTopic("t", count, min(factor, nodes)))
    partitions = state.topics["t"].partitions
    led, held = Counter(p.leader for p in partitions), Counter(
        node for p in partitions for node in p.replicas)

    assert max(led.values()) - min(led[NodeId(node)] for node in range(1, nodes + 1)) <= 1
    assert max(held.values()) - min(held[NodeId(node)] for node in range(1, nodes + 1)) <= factor


def test_nodes_that_are_down_are_not_chosen_if_others_can_be() -> None:
    """K5, controller.E3: with fewer replicas than nodes, a topic is on those that are up.

    All of those that are up serve at once.
    """
    state = state_with(a=3)
    stop(state, 2)

    create(state, NewTopic("one", 3, 1), NewTopic("two", 3, 2), NewTopic("all", 3))

    assert "2" not in orders(state, "one") + orders(state, "two")
    assert orders(state, "all") == "312 123 231"  # their order is the one that is preferred
    assert leaders(state, "all") == "3 1 3"


def test_a_manual_assignment_to_nodes_that_are_all_down_is_refused() -> None:
    """K5: as Kafka refuses it."""
    state = state_with(a=3)
    stop(state, 2)

    (result,) = topics.create_topics(
        state, [NewTopic("t", assignments=[(0, [2])])], ROTATED, NEW_ID).results

    assert result.code is Code.INVALID_REPLICA_ASSIGNMENT


def test_the_cluster_s_own_topics_are_rotated_too() -> None:
    """V3: so that all nodes coordinate groups."""
    state = state_with(a=2, b=2)

    carry_out(state, topics.create_internal_topics(
        state, [NewTopic(CONSUMER_OFFSETS, 6)], ROTATED, NEW_ID))

    assert orders(state, CONSUMER_OFFSETS) == "12 34 21 43 12 34"


# -- a derived chain lives like any other


def test_each_order_has_its_own_head_and_tail() -> None:
    """V2, V3: writes go to the head of the partition's list, committed reads to its tail."""
    state = create(state_with(a=3), NewTopic("t", 3))

    assert [(state.replica_set("t", index).head, state.replica_set("t", index).tail)
            for index in range(3)] == [(1, 3), (2, 1), (3, 2)]


def test_a_node_that_fails_leaves_every_order_that_it_is_in() -> None:
    """V21: in one decision; each continues with its next node."""
    state = create(state_with(a=3), NewTopic("t", 3))

    stop(state, 1)

    assert [shape_of(state, "t", index) for index in range(3)] == ["2 3 !1", "2 3 !1", "3 2 !1"]
    assert leaders(state, "t") == "2 2 3"
    assert orders(state, "t") == "123 231 312"


def test_a_node_that_is_back_catches_up_in_each_order_for_itself() -> None:
    """V16: it serves where it has every record, and syncs where it has not yet."""
    state = create(state_with(a=3), NewTopic("t", 3))
    stop(state, 1)
    start(state, 1, "a-0", life=2)
    assert [shape_of(state, "t", index) for index in range(3)] == ["2 3 ~1", "2 3 ~1", "3 2 ~1"]

    catch_up(state, "t", 2)

    assert [shape_of(state, "t", index) for index in range(3)] == ["2 3 ~1", "2 3 ~1", "3 2 1"]


def test_a_partition_on_one_node_of_three_waits_for_that_node() -> None:
    """V14, controller.C1: the others serve in the chain, and have none of its records."""
    state = create(state_with(a=3), NewTopic("t", assignments=[(0, [2])]))

    stop(state, 2)
    assert (leaders(state, "t"), shape_of(state, "t")) == (str(NO_NODE), "2")

    start(state, 2, "a-1", life=2)
    assert leaders(state, "t") == "2"


def test_of_two_nodes_the_one_that_served_last_leads_after_both_were_down() -> None:
    """V14, controller.C1: although the third node of the chain was up all the time."""
    state = create(state_with(a=3), NewTopic("t", assignments=[(0, [1, 2])]))
    stop(state, 1)
    stop(state, 2)

    start(state, 1, "a-0", life=2)
    assert (leaders(state, "t"), shape_of(state, "t")) == (str(NO_NODE), "2 !1")

    start(state, 2, "a-1", life=2)
    assert (leaders(state, "t"), shape_of(state, "t")) == ("2", "2 ~1")


def test_a_preferred_election_gives_each_order_its_own_head_again() -> None:
    """K6: ElectLeaders PREFERRED, by partition: the head of its list."""
    state = create(state_with(a=3), NewTopic("t", 3))
    stop(state, 2)
    start(state, 2, "a-1", life=2)
    for partition in range(3):
        catch_up(state, "t", partition)
    assert leaders(state, "t") == "1 3 3"

    results = carry_out(state, elections.elect(
        state, ElectionType.PREFERRED, [TopicPartition("t", index) for index in range(3)]))

    assert [result.code for result in results] == [
        Code.ELECTION_NOT_NEEDED, Code.NONE, Code.ELECTION_NOT_NEEDED]
    assert leaders(state, "t") == "1 2 3"
    assert shape_of(state, "t", 1) == "2 3 1"


def test_a_failed_replica_detaches_one_partition_of_an_order() -> None:
    """controller.F1: the others of the same order go on, and it is attached again."""
    state = create(state_with(a=3), NewTopic("t", 6))
    key = state.topics["t"].topic_id, 1

    carry_out(state, failed_replicas.report(state, NodeId(2), {key}))
    assert [shape_of(state, "t", index) for index in (1, 4)] == ["3 1 !2", "2 3 1"]
    assert orders(state, "t").split()[1] == "231"

    carry_out(state, failed_replicas.report(state, NodeId(2), set()))
    carry_out(state, failed_replicas.promote(
        state, key, NodeId(2), state.replica_set("t", 1).version))
    assert [shape_of(state, "t", index) for index in (1, 4)] == ["2 3 1", "2 3 1"]


def test_a_node_that_joins_a_chain_joins_all_orders_of_the_whole_chain() -> None:
    """V7: at the end of each; partitions with fewer replicas stay as they are."""
    state = create(state_with(a=2), NewTopic("whole", 2), NewTopic("part", 2, 1))
    start(state, 3, "a-2")

    carry_out(state, chains.extend(state, "a", "a-2"))

    assert (orders(state, "whole"), orders(state, "part")) == ("123 213", "2 1")
    assert [shape_of(state, "whole", index) for index in (0, 1)] == ["1 2 ~3", "2 1 ~3"]


def test_a_step_back_needs_another_node_in_each_order() -> None:
    """V5: a node whose disk has failed goes on where it is the only one that serves."""
    state = create(state_with(a=3), NewTopic("alone", 3, 1), NewTopic("two", 3, 2))
    broker = state.brokers[NodeId(1)]
    (after,) = brokers.step_back(state, broker.node_id, broker.epoch).results
    assert after.fenced

    stop(state, 2)  # now it serves alone on the list 1 2
    (after,) = brokers.step_back(state, broker.node_id, broker.epoch).results
    assert not after.fenced


# -- they come and go


def test_a_derived_chain_goes_with_its_last_partition() -> None:
    """controller.S8: and is found again as long as it is there."""
    state = create(state_with(a=3), NewTopic("t", 3), NewTopic("u", 3))
    assert len(state.chains) == 3
    carry_out(state, topics.delete_topics(state, [("t", ZERO_UUID)], ROTATED))
    assert chains.reconcile(state).records == []

    carry_out(state, topics.delete_topics(state, [("u", ZERO_UUID)], ROTATED))
    removed = chains.reconcile(state)
    carry_out(state, removed)

    assert [type(record) for record in removed.records] == [ChainRemoved, ChainRemoved]
    assert list(state.chains) == ["a"]
    assert chains.reconcile(state).records == []


def test_a_topic_that_is_refused_makes_no_chain() -> None:
    """K5: nothing of it is left in the metadata."""
    few = replace(ROTATED, max_partitions=2)

    decision = topics.create_topics(state_with(a=3), [NewTopic("t", 3)], few, NEW_ID)

    assert decision.results[0].code is Code.POLICY_VIOLATION
    assert decision.records == []


def test_people_see_derived_chains_as_orders_of_their_chain() -> None:
    """V6: a chain's topics and partitions include those that are on its nodes in another order."""
    state = create(state_with(a=3, b=1), NewTopic("t", 4, 3), NewTopic("u", 3, 2))
    view, other = chains.describe(state)

    assert (view.chain.name, view.topic_count, view.partition_count) == ("a", 2, 7)
    assert [(order.chain.order, order.partition_count) for order in view.orders] == [
        ((), 2), ((2, 3, 1), 1), ((3, 1, 2), 1), ((2, 3), 1), ((3, 1), 1), ((1, 2), 1)]
    assert (other.chain.name, other.topic_count, len(other.orders)) == ("b", 0, 1)
    assert chains.describe(state, ["a/9", "b"]) == [other]


def test_the_weight_of_a_chain_counts_all_of_its_orders() -> None:
    """V8: the next topic goes to the chain with fewer topics, whatever their orders."""
    state = create(state_with(a=2, b=2), NewTopic("t", 2, 1), NewTopic("u", 2, 1))
    assert (state.topic_count("a"), state.topic_count("b")) == (1, 1)

    create(state, NewTopic("v", 1), NewTopic("w", 1))

    assert (state.topic_count("a"), state.topic_count("b")) == (2, 2)


def test_a_node_with_partitions_is_not_unregistered() -> None:
    """controller.S7: also if it is in no operator's chain; the message names a topic."""
    state = state_with(a=1)
    start(state, 2, "b-0")
    create(state, NewTopic("t", assignments=[(0, [1, 2])]))
    stop(state, 2)

    with pytest.raises(Exception, match="partitions of topic t"):
        brokers.unregister(state, NodeId(2))


def test_a_snapshot_has_them() -> None:
    """controller.S5: with their orders and states."""
    state = create(state_with(a=3), NewTopic("t", 5, 2), NewTopic("u", 3))
    stop(state, 2)

    built = ClusterState()
    for record in records_of(state):
        built.apply(record)

    assert built == state
    assert orders(built, "t") == orders(state, "t")


# -- limits, and versions that do not know them


def old_node(state: ClusterState, node_id: int, name: str) -> None:
    """A node of an earlier version registers: it does not say which records it can read."""
    decision = register(state, node_id, name, life=2)
    record = decision.records[0]
    record.metadata_level = 0  # type: ignore[union-attr]
    carry_out(state, decision)
    broker = state.brokers[NodeId(node_id)]
    carry_out(state, brokers.unfence(state, broker.node_id, broker.epoch))


def test_beside_a_node_of_an_earlier_version_topics_are_on_whole_chains() -> None:
    """K5, controller.E2: no record that it cannot read; a longer chain carries what is wanted."""
    state = nodes_with(["a-0", "a-1", "b-0"])
    old_node(state, 2, "a-1")
    carry_out(state, chains.create(state, "a"))
    carry_out(state, chains.create(state, "b"))

    decision = topics.create_topics(state, [
        NewTopic("t", 2, 2), NewTopic("u", 2), NewTopic("v", 1, 3),
        NewTopic("w", assignments=[(0, [1])]), NewTopic("x", assignments=[(0, [2, 1])])],
        ROTATED, NEW_ID)
    results = carry_out(state, decision)

    assert not [record for record in decision.records if isinstance(record, DerivedChainChanged)]
    assert [result.code for result in results] == [
        Code.NONE, Code.NONE, Code.INVALID_REPLICATION_FACTOR, Code.INVALID_REPLICA_ASSIGNMENT,
        Code.NONE]
    assert "a-1" in (results[3].message or "")
    assert (orders(state, "t"), orders(state, "x")) == ("12 12", "12")


def test_as_soon_as_the_last_node_is_upgraded_topics_are_rotated() -> None:
    """controller.R4: its heartbeat says so, if an older controller had registered it."""
    state = nodes_with(["a-0", "a-1"])
    old_node(state, 2, "a-1")
    carry_out(state, chains.create(state, "a"))
    epoch = state.brokers[NodeId(2)].epoch

    carry_out(state, brokers.upgrade(state, NodeId(2), epoch, 1))
    create(state, NewTopic("t", 2))

    assert orders(state, "t") == "12 21"
    assert brokers.upgrade(state, NodeId(2), epoch, 1).records == []


def test_there_is_a_limit_to_lists_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """controller.E1: then a new topic is on a whole chain, and an assignment by hand is refused."""
    monkeypatch.setattr("quipu.controller.derived_chains.DERIVED_CHAINS_MAX", 3)
    state = create(state_with(a=3), NewTopic("t", 3))

    decision = topics.create_topics(
        state, [NewTopic("u", 3, 2), NewTopic("v", assignments=[(0, [1, 3]), (1, [2, 3])])],
        ROTATED, NEW_ID)
    results = carry_out(state, decision)

    assert orders(state, "u") == "123 123 123"
    assert results[1].code is Code.INVALID_REPLICA_ASSIGNMENT
    assert "3 is the most" in (results[1].message or "")
