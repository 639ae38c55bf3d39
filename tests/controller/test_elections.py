"""Elections that clients ask for."""

import pytest

from quipu.controller import chains, elections
from quipu.controller.elections import ElectionResult, ElectionType
from quipu.controller.records import BrokerFencingChanged
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topics import create_topics
from quipu.model.errors import Code
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, shape, start, state_with, stop

PREFERRED, UNCLEAN = ElectionType


def a_state(*assignments: tuple[int, ...], **lengths: int) -> ClusterState:
    """Topic t, whose partitions are on the chains of these nodes."""
    state = state_with(**lengths)
    wanted = NewTopic("t", assignments=list(enumerate(assignments)))
    carry_out(state, create_topics(state, [wanted], BrokerSettings(), ids()))
    return state


def elect(
    state: ClusterState, kind: ElectionType, *partitions: int
) -> list[tuple[int, Code]]:
    wanted = [TopicPartition("t", partition) for partition in partitions] or None
    results = carry_out(state, elections.elect(state, kind, wanted))
    return [(result.partition, result.code) for result in results]


def out_of_order() -> ClusterState:
    """Chain a is 2 3 1, all serving; chain b is 4 5 6."""
    state = a_state((1, 2, 3), (4, 5, 6), (1, 2, 3), a=3, b=3)
    start(state, 1, "a-0", life=2)
    carry_out(state, chains.promote(state, "a", NodeId(1), state.chain_mark("a")))
    assert shape(state) == "2 3 1"
    return state


def test_the_first_node_leads_again() -> None:
    """K6: for all partitions of its chain, under one new epoch."""
    state = out_of_order()
    epoch = state.chains["a"].epoch

    assert elect(state, PREFERRED, 0, 1) == [(0, Code.NONE), (1, Code.ELECTION_NOT_NEEDED)]

    assert (shape(state), state.chains["a"].epoch) == ("1 2 3", epoch + 1)
    assert [p.leader for p in state.topics["t"].partitions] == [1, 4, 1]


def test_an_election_of_all_returns_only_those_that_were_needed() -> None:
    """K6: as Kafka does."""
    state = out_of_order()

    assert elect(state, PREFERRED) == [(0, Code.NONE), (2, Code.NONE)]
    assert elect(state, PREFERRED) == []


@pytest.mark.parametrize("life", [1, 2], ids=["down", "catching up"])
def test_a_first_node_that_does_not_serve_is_not_elected(life: int) -> None:
    """V14, K6."""
    state = a_state((1, 2), a=2)
    stop(state, 1)
    if life > 1:
        start(state, 1, "a-0", life)

    assert elect(state, PREFERRED, 0) == [(0, Code.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert state.chains["a"].head.node_id == 2


def test_an_unknown_partition_is_an_error() -> None:
    """K6."""
    state = a_state((1,))
    wanted = [TopicPartition("x", 0), TopicPartition("t", 1), TopicPartition("t", -1)]

    results = elections.elect(state, PREFERRED, wanted).results

    assert [result[:3] for result in results] == [
        ElectionResult(*each, Code.UNKNOWN_TOPIC_OR_PARTITION)[:3] for each in wanted]
    assert all(result.message for result in results)


def test_an_unclean_election_makes_the_first_that_is_up_serve_alone() -> None:
    """V14: an explicit request, which loses what the member lacks; the others sync from it."""
    state = a_state((1, 2, 3), a=3)
    for node in (1, 2, 3):
        stop(state, node)
    assert (shape(state), elect(state, UNCLEAN, 0)) == (
        "3 !2 !1", [(0, Code.ELIGIBLE_LEADERS_NOT_AVAILABLE)])
    start(state, 1, "a-0", 2)
    epoch = state.chains["a"].epoch

    assert elect(state, UNCLEAN, 0) == [(0, Code.NONE)]

    assert shape(state) == "1 !3 !2"
    assert state.chains["a"].epoch > epoch
    start(state, 3, "a-2", 2)
    assert shape(state) == "1 ~3 !2"
    assert chains.reconcile(state).records == []


def test_an_unclean_election_prefers_those_that_lose_nothing() -> None:
    """V14: a serving member that came back is taken, and the wait for the others ends."""
    state = a_state((1, 2), a=2)
    for node in (1, 2):  # both at once: no member is left to shorten the chain
        state.apply(BrokerFencingChanged(node_id=node, fenced=True))
    start(state, 2, "a-1", 3)
    assert chains.cold(state) == {"a"}

    assert elect(state, UNCLEAN, 0) == [(0, Code.NONE)]

    assert shape(state) == "2 !1"


def test_an_unclean_election_is_not_needed_while_someone_serves() -> None:
    """V14."""
    state = a_state((1, 2), a=2)
    stop(state, 1)

    assert elect(state, UNCLEAN, 0) == [(0, Code.ELECTION_NOT_NEEDED)]
    assert elect(state, UNCLEAN) == []
