"""Chains: how they are made, what becomes of them when nodes come and go."""

from typing import NamedTuple
from uuid import UUID

import pytest

from quipu.controller import chains
from quipu.controller.records import (
    BrokerFencingChanged,
    BrokerRegistered,
    ClusterCreated,
    ConfigRecord,
    PartitionRecord,
    TopicCreated,
)
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topics import create_topics
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.settings import BrokerSettings
from tests.controller.states import (
    carry_out,
    chain_name,
    ids,
    nodes_with,
    shape,
    start,
    state_with,
    stop,
)


def promote(state: ClusterState, node_id: int, name: str = "a") -> None:
    carry_out(state, chains.promote(state, name, NodeId(node_id), state.chain_mark(name)))


# -- made by people


def test_members_are_in_the_order_of_their_numbers() -> None:
    """V6: a-10 comes after a-2; without names, all nodes that are called so."""
    state = nodes_with(["a-10", "b-0", "a-2", "a-b-0"])

    (chain,) = carry_out(state, chains.create(state, "a"))

    assert (shape(state), chain, chain.epoch) == ("3 1", state.chains["a"], 1)
    (other,) = carry_out(state, chains.create(state, "b", ["b-0"]))
    assert other.epoch > chain.epoch  # controller.S6


def test_a_chain_of_the_same_nodes_is_the_one_that_was_asked_for() -> None:
    """V6: a request whose response was lost is sent again; other nodes are another chain."""
    state = nodes_with(["a-0", "a-1", "a-2"])
    (chain,) = carry_out(state, chains.create(state, "a", ["a-0", "a-1"]))

    again = chains.create(state, "a", ["a-1", "a-0"])

    assert (again.records, again.results) == ([], [chain])
    for nodes in (["a-0"], ["a-0", "a-1", "a-2"], ["a-0", "a-0"]):
        with pytest.raises(RequestError) as refused:
            chains.create(state, "a", nodes)
        assert refused.value.code is Code.DUPLICATE_RESOURCE


class Refused(NamedTuple):
    why: str
    name: str
    nodes: list[str]
    code: Code


REFUSED = [
    Refused("there is one", "a", [], Code.DUPLICATE_RESOURCE),
    Refused("no node has that name", "c", [], Code.INVALID_REQUEST),
    Refused("no name", "", [], Code.INVALID_REQUEST),
    Refused("another chain's name", "b", ["b-0", "c-d-0"], Code.INVALID_REQUEST),
    Refused("not registered", "b", ["b-0", "b-7"], Code.BROKER_ID_NOT_REGISTERED),
    Refused("a node twice", "b", ["b-0", "b-0"], Code.INVALID_REQUEST),
    Refused("a node that is down", "b", ["b-0", "b-1"], Code.BROKER_NOT_AVAILABLE),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_chain_that_cannot_be_is_refused(case: Refused) -> None:
    """V6: chains are made explicitly, with all their nodes."""
    state = nodes_with(["a-0", "b-0", "b-1", "c-d-0"])
    carry_out(state, chains.create(state, "a"))
    stop(state, 3)

    with pytest.raises(RequestError) as refused:
        chains.create(state, case.name, case.nodes)

    assert refused.value.code is case.code


def test_a_node_belongs_to_one_chain() -> None:
    """V4: and a chain is extended by nodes of its name."""
    state = state_with(a=1, b=1)
    start(state, 3, "a-1")
    for name, node_name, code in (
            ("a", "a-0", Code.INVALID_REQUEST), ("a", "b-0", Code.INVALID_REQUEST),
            ("b", "a-1", Code.INVALID_REQUEST), ("x", "x-0", Code.RESOURCE_NOT_FOUND),
            ("a", "a-9", Code.BROKER_ID_NOT_REGISTERED), ("a", "", Code.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(RequestError) as refused:
            chains.extend(state, name, node_name)
        assert refused.value.code is code


def test_a_node_joins_at_the_end_and_serves_when_it_has_caught_up() -> None:
    """V7: as the tail, under a new epoch."""
    state = state_with(a=2)
    start(state, 3, "a-2")
    epoch = state.chains["a"].epoch

    carry_out(state, chains.extend(state, "a", "a-2"))
    assert (shape(state), state.chains["a"].epoch) == ("1 2 ~3", epoch)

    promote(state, 3)
    assert shape(state) == "1 2 3"
    assert state.chains["a"].epoch > epoch


def test_a_node_that_is_down_joins_when_it_comes() -> None:
    """V7."""
    state = state_with(a=1)
    start(state, 2, "a-1")
    stop(state, 2)

    carry_out(state, chains.extend(state, "a", "a-1"))

    assert shape(state) == "1 !2"
    start(state, 2, "a-1", life=2)
    assert shape(state) == "1 ~2"


def test_only_the_first_that_syncs_is_promoted_and_only_on_fresh_news() -> None:
    """V7, V14: those behind it have caught up with it at best; a new topic is news."""
    state = state_with(a=3)
    stop(state, 2)
    stop(state, 3)
    start(state, 3, "a-2", life=2)
    start(state, 2, "a-1", life=2)
    assert shape(state) == "1 ~3 ~2"

    def refused(name: str, node: int, mark: int) -> Code:
        with pytest.raises(RequestError) as error:
            chains.promote(state, name, NodeId(node), mark)
        return error.value.code

    mark = state.chain_mark("a")
    assert refused("a", 2, mark) is Code.INELIGIBLE_REPLICA
    assert refused("a", 1, mark) is Code.INELIGIBLE_REPLICA
    assert refused("a", 9, mark) is Code.INELIGIBLE_REPLICA
    assert refused("x", 3, mark) is Code.RESOURCE_NOT_FOUND
    carry_out(state, create_topics(state, [NewTopic("t")], BrokerSettings(), ids()))
    assert refused("a", 3, mark) is Code.INVALID_UPDATE_VERSION

    promote(state, 3)
    promote(state, 2)
    assert shape(state) == "1 3 2"


def test_no_member_is_promoted_while_those_that_serve_are_down() -> None:
    """V14: the chain waits for them; who syncs would serve alone."""
    state = state_with(a=2)
    stop(state, 2)
    start(state, 2, "a-1", life=2)
    stop(state, 1)

    with pytest.raises(RequestError) as refused:
        promote(state, 2)

    assert (refused.value.code, shape(state)) == (Code.INELIGIBLE_REPLICA, "1 ~2")


def test_one_change_of_a_chain_moves_all_of_its_partitions() -> None:
    """V21: and none of another chain."""
    state = state_with(a=2, b=2)
    wanted = [NewTopic(name, 3) for name in "st"]
    carry_out(state, create_topics(state, wanted, BrokerSettings(), ids()))
    before = state.topics["t"]
    assert {chain_name(p) for p in before.partitions} == {"b"}

    stop(state, 1)

    assert [(p.leader, p.isr, p.replicas) for p in state.topics["s"].partitions] == [
        (2, (2,), (1, 2))] * 3  # the replicas stay in the order that is preferred
    assert state.topics["t"] is before


# -- kept up to date


class Life(NamedTuple):
    why: str
    events: str  # -n: no heartbeats of n; +n: n's process sends them again; *n: n restarts
    shape: str  # of a chain that was 1 2 3
    epochs: int  # how many it has gone through


LIVES = [
    Life("the head fails", "-1", "2 3 !1", 1),
    Life("the middle fails", "-2", "1 3 !2", 1),
    Life("the tail fails", "-3", "1 2 !3", 1),
    Life("it was only slow", "-1 +1", "2 3 ~1", 1),
    Life("it restarts before anyone noticed", "*1", "2 3 ~1", 1),
    Life("who syncs fails", "-1 +1 -1", "2 3 !1", 1),
    Life("who syncs restarts", "-1 +1 *1", "2 3 ~1", 1),
    Life("who syncs goes before who fell back later", "-1 +1 *2", "3 ~1 ~2", 2),
    Life("two fail and come back in another order", "-1 -2 +2 +1", "3 ~2 ~1", 2),
    Life("all fail: the last one stays", "-1 -2 -3", "3 !2 !1", 2),
    Life("others come back first", "-1 -2 -3 *1 +2", "3 !2 !1", 2),
    Life("the last one comes back", "-1 -2 -3 *1 *2 *3", "3 ~2 ~1", 3),
    Life("the last one was only slow", "-1 -2 -3 *1 +3", "3 ~1 !2", 2),
]


def live(state: ClusterState, events: str) -> None:
    lives = {1: 1, 2: 1, 3: 1}
    for event in events.split():
        node = int(event[1])
        if event[0] == "-":
            stop(state, node)
        else:
            lives[node] += event[0] == "*"
            start(state, node, f"a-{node - 1}", lives[node])


@pytest.mark.parametrize("case", LIVES, ids=lambda case: case.why)
def test_a_chain_goes_on_with_those_that_live(case: Life) -> None:
    """V14, V15, V21: a new epoch for each change of who serves, and for no other."""
    state = state_with(a=3)
    epoch = state.next_epoch

    live(state, case.events)

    assert (shape(state), state.next_epoch - epoch) == (case.shape, case.epochs)
    assert chains.reconcile(state).records == []


def all_down(state: ClusterState) -> ClusterState:
    """All nodes of chain a fail at once: no member is left to shorten it."""
    for node in state.chains["a"].nodes:
        state.apply(BrokerFencingChanged(node_id=node, fenced=True))
    return state


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_a_cold_chain_waits_for_all_of_its_members(order: tuple[int, ...]) -> None:
    """V14: in whatever order they start, it goes on with all, as it was."""
    state = all_down(state_with(a=3))
    epoch = state.chains["a"].epoch
    for node in order[:2]:
        start(state, node, f"a-{node - 1}", 2)
        assert (shape(state), state.chains["a"].epoch) == ("1 2 3", epoch)
        assert state.leader_of(state.chains["a"]) == NO_NODE
        assert chains.cold(state) == {"a"}

    start(state, order[2], f"a-{order[2] - 1}", 2)

    assert (shape(state), chains.cold(state)) == ("1 2 3", frozenset())
    assert state.chains["a"].epoch > epoch
    assert state.leader_of(state.chains["a"]) == 1


def test_a_cold_chain_waits_only_so_long() -> None:
    """V14: then those that came back serve, and the rest catches up when it comes."""
    state = all_down(state_with(a=3, b=1))
    start(state, 3, "a-2", 2)
    start(state, 2, "a-1", 2)

    carry_out(state, chains.reconcile(state, frozenset({"b"})))
    assert shape(state) == "1 2 3"
    carry_out(state, chains.reconcile(state, frozenset({"a"})))

    assert shape(state) == "2 3 !1"
    start(state, 1, "a-0", 2)
    assert shape(state) == "2 3 ~1"


def test_no_member_serves_that_did_not_serve_last() -> None:
    """V14: however long it takes."""
    state = state_with(a=2)
    stop(state, 1)
    stop(state, 2)
    start(state, 1, "a-0", 2)

    carry_out(state, chains.reconcile(state, frozenset({"a"})))

    assert (shape(state), chains.cold(state)) == ("2 !1", frozenset())


def test_a_chain_is_described() -> None:
    """V6: with who is up, and what is on it."""
    state = state_with(a=2, b=1)
    carry_out(state, create_topics(state, [NewTopic("t", 4)], BrokerSettings(), ids()))
    stop(state, 2)

    first, second = chains.describe(state)

    assert (first.chain.name, first.topic_count, first.partition_count) == ("a", 1, 4)
    assert [(m.broker.name, m.state, m.is_live) for m in first.members] == [
        ("a-0", MemberState.SERVING, True), ("a-1", MemberState.OFFLINE, False)]
    assert chains.describe(state, ["b", "x"]) == [second]


# -- from before there were chains


def old_state() -> ClusterState:
    """What the metadata log of an older program gives."""
    state = ClusterState()
    state.apply(ClusterCreated(cluster_id="old"))
    state.apply(BrokerRegistered(node_id=1, host="h", port=9092))
    for number, name in ((1, "t"), (2, "__consumer_offsets")):
        state.apply(TopicCreated(
            name=name, topic_id=UUID(int=number), configs=[ConfigRecord(name="n", value="v")],
            partitions=[PartitionRecord(replicas=[1], isr=[1], leader=1)] * 2))
    return state


def test_old_metadata_is_read_as_it_was() -> None:
    """T7: and survives a snapshot."""
    state = old_state()

    partition = state.topics["t"].partitions[1]
    assert (partition.leader, partition.replicas, partition.isr) == (1, (1,), (1,))
    assert (chain_name(partition), partition.leader_epoch) == ("", 0)
    assert state.replica_set("t", 1) == ReplicaSet.alone(NodeId(1), epoch=partition.leader_epoch)
    restored = ClusterState()
    for record in records_of(state):
        restored.apply(record)
    assert restored == state


def test_topics_of_an_older_program_join_the_chain_of_their_node() -> None:
    """T7: under a new epoch, with their ids and settings."""
    state = old_state()
    start(state, 1, "quipu-0")

    (chain,) = carry_out(state, chains.bootstrap_alone(state, NodeId(1), "quipu"))

    assert chain == state.chains["quipu"]
    assert chains.bootstrap_alone(state, NodeId(1), "quipu").records == []
    for topic in state.topics.values():
        assert [(chain_name(p), p.leader, p.leader_epoch) for p in topic.partitions] == [
            ("quipu", 1, chain.epoch)] * 2
        assert topic.configs == {"n": "v"}
    assert state.topic_count("quipu") == 2


def test_a_topic_of_two_older_nodes_joins_their_chains_one_by_one() -> None:
    """T7: also a snapshot in between says the same."""
    state = old_state()
    state.apply(BrokerRegistered(node_id=2, host="h", port=9093))
    state.apply(TopicCreated(name="u", topic_id=UUID(int=3), partitions=[
        PartitionRecord(replicas=[node], isr=[node], leader=node, leader_epoch=node)
        for node in (2, 1, 1)]))
    start(state, 1, "a-0")
    start(state, 2, "a-1")

    with pytest.raises(RequestError, match="make a chain for each"):
        chains.create(state, "a")
    carry_out(state, chains.create(state, "a", ["a-0"]))

    assert [chain_name(p) for p in state.topics["u"].partitions] == ["", "a", "a"]
    restored = ClusterState()
    for record in records_of(state):
        restored.apply(record)
    assert restored == state


def test_a_chain_made_around_old_topics_begins_with_the_node_that_has_them() -> None:
    """T7: the others catch up first."""
    state = old_state()
    for node in (1, 2):
        start(state, node, f"a-{2 - node}")

    carry_out(state, chains.create(state, "a"))

    assert shape(state) == "1 ~2"
    assert {chain_name(p) for topic in state.topics.values() for p in topic.partitions} == {"a"}


def test_a_node_with_old_topics_does_not_join_another_chain() -> None:
    """T7: they would be nowhere."""
    state = old_state()
    start(state, 1, "a-1")
    start(state, 2, "a-0")
    carry_out(state, chains.create(state, "a", ["a-0"]))

    with pytest.raises(RequestError, match="would be lost"):
        chains.extend(state, "a", "a-1")
    with pytest.raises(RequestError, match="exists, and node 1 is not in it"):
        chains.bootstrap_alone(state, NodeId(1), "a")


def test_a_chain_of_one_that_restarts_has_a_new_epoch_each_time() -> None:
    """V14: the same code as for many nodes."""
    state = state_with(a=1)
    epochs = [state.chains["a"].epoch]
    for life in (2, 3, 4):
        start(state, 1, "a-0", life)
        epochs.append(state.chains["a"].epoch)
        assert state.leader_of(state.chains["a"]) == 1

    assert epochs == sorted(set(epochs))
