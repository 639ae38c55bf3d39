"""Nodes that come back with another data directory: they have nothing that they had."""

import dataclasses
from uuid import UUID

import pytest

from quipu.controller import brokers, chains, elections
from quipu.controller.brokers import Registration
from quipu.controller.elections import ElectionType
from quipu.controller.records import ClusterCreated
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topics import create_topics
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, incarnation, shape, stop

NOTHING = ZERO_UUID


def directory(number: int) -> UUID:
    return UUID(int=0xD00 + number)


def start(state: ClusterState, node_id: int, life: int, directory_id: UUID) -> None:
    """A node's process starts on a directory, registers and is ready."""
    (broker,) = carry_out(state, brokers.register(state, Registration(
        node_id=NodeId(node_id), name=f"a-{node_id - 1}", host="h", port=1,
        incarnation=incarnation(node_id, life), directory_id=directory_id), quiet=True))
    carry_out(state, brokers.unfence(state, broker.node_id, broker.epoch))


def a_chain(count: int, *, is_known: bool = True) -> ClusterState:
    """Nodes 1, 2 and so on of chain a, all serving, each on the directory of its number."""
    state = ClusterState()
    state.apply(ClusterCreated(cluster_id="cluster-of-tests"))
    for node_id in range(1, count + 1):
        start(state, node_id, 1, directory(node_id) if is_known else NOTHING)
    carry_out(state, chains.create(state, "a"))
    return state


def waited(state: ClusterState) -> None:
    """A cold chain has waited long enough for the rest of its nodes."""
    carry_out(state, chains.reconcile(state, chains.cold(state)))


def test_a_node_that_comes_back_with_another_directory_waits_for_the_others() -> None:
    """V7, V16: alone it does not serve; when one that has everything serves, it syncs."""
    state = a_chain(2)
    stop(state, 1)  # 2 is the last that serves
    assert shape(state) == "2 !1"
    start(state, 1, 2, directory(1))
    carry_out(state, chains.promote(state, "a", NodeId(1), state.chain_mark("a")))
    assert shape(state) == "2 1"
    stop(state, 1)
    stop(state, 2)
    assert shape(state) == "2 !1"

    start(state, 2, 2, directory(7))
    start(state, 1, 3, directory(1))
    waited(state)
    assert shape(state) == "2 !1"  # no other node has what 2 had
    assert not any(state.is_live(member) for member in state.chains["a"].serving)

    start(state, 2, 3, directory(2))  # an operator has put the disk back
    assert shape(state) == "2 ~1"
    assert state.is_live(state.chains["a"].head)


def test_a_promotion_that_came_too_late_lets_no_empty_node_serve() -> None:
    """V7: 2 had caught up, died, and lost its disk before anybody had noticed."""
    state = a_chain(2)
    stop(state, 2)
    start(state, 2, 2, directory(2))
    assert shape(state) == "1 ~2"
    carry_out(state, chains.promote(state, "a", NodeId(2), state.chain_mark("a")))
    assert shape(state) == "1 2"  # the report came after its process had ended
    carry_out(state, brokers.fence(state, [NodeId(1), NodeId(2)]))
    assert shape(state) == "1 2"

    start(state, 2, 3, directory(8))
    waited(state)
    assert shape(state) == "1 2"
    assert not any(state.is_live(member) for member in state.chains["a"].serving)
    start(state, 1, 2, directory(1))
    waited(state)
    assert shape(state) == "1 ~2"
    assert state.is_live(state.chains["a"].head)


@pytest.mark.parametrize(("before", "after"), [
    (NOTHING, directory(1)), (directory(1), NOTHING), (NOTHING, NOTHING)])
def test_an_unknown_directory_is_taken_for_the_one_before(before: UUID, after: UUID) -> None:
    """V16: chains of older versions, and nodes that have no id yet, go on."""
    state = a_chain(1, is_known=False)
    stop(state, 1)
    start(state, 1, 2, before)
    stop(state, 1)
    start(state, 1, 3, after)
    assert state.is_live(state.chains["a"].head)


def test_an_unclean_election_takes_an_emptied_member_last() -> None:
    """V7: of two that may lack something, the one that surely does is not chosen."""
    state = a_chain(2)
    carry_out(state, create_topics(
        state, [NewTopic("t", assignments=[(0, (1, 2))])], BrokerSettings(), ids()))
    stop(state, 2)
    stop(state, 1)
    start(state, 1, 2, directory(9))
    start(state, 2, 2, directory(2))
    assert shape(state) == "1 !2"
    (result,) = carry_out(state, elections.elect(
        state, ElectionType.UNCLEAN, [TopicPartition("t", 0)]))
    assert result.code is Code.NONE
    assert shape(state) == "2 ~1"
    assert state.is_live(state.chains["a"].head)


def test_what_is_known_of_directories_lasts() -> None:
    """V16: a snapshot of the metadata has it too."""
    state = a_chain(2)
    again = ClusterState()
    for record in records_of(state):
        again.apply(record)
    assert again.chains == state.chains
    assert again.brokers == state.brokers
    assert {member.directory_id for member in again.chains["a"].members} == {
        directory(1), directory(2)}
    broker = again.brokers[NodeId(1)]
    assert broker.process == dataclasses.replace(broker, fenced=True).process
