"""Chains, and nodes of chains, that are taken out for good."""

import pytest

from quipu.controller import brokers, chains, reassignment, removal
from quipu.controller.reassignment import CaughtUp, Reassignment
from quipu.controller.removal import Removal, RemovalProgress
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topics import create_topics
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, nodes_with, shape, start, state_with, stop

IDS = ids()


def topics(state: ClusterState, **lists: list[tuple[int, ...]]) -> None:
    """Topics with partitions on these lists of nodes."""
    wanted = [NewTopic(name, assignments=list(enumerate(each))) for name, each in lists.items()]
    assert not any(result.code for result in carry_out(
        state, create_topics(state, wanted, BrokerSettings(), IDS)))


def replicas(state: ClusterState, name: str) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in state.topics[name].partitions]


def advance(state: ClusterState) -> None:
    """Whatever moves has caught up, and takes its next step."""
    carry_out(state, reassignment.advance(state, [
        CaughtUp(topic.topic_id, index, partition.partition_epoch)
        for topic in state.topics.values() for index, partition in enumerate(topic.partitions)
        if partition.moving_to is not None]))


def step(state: ClusterState, wanted: Removal) -> RemovalProgress:
    (progress,) = carry_out(state, removal.remove(state, wanted))
    return progress


def finish(state: ClusterState, wanted: Removal, steps_max: int = 20) -> list[RemovalProgress]:
    """Ask again and again until it is done, as the command does."""
    seen = []
    for _ in range(steps_max):
        seen.append(step(state, wanted))
        if seen[-1].is_done:
            return seen
        advance(state)
    raise AssertionError(seen)


def test_an_empty_chain_is_removed() -> None:
    """V7, controller.W1: its nodes are in no chain then, can be unregistered, or join another."""
    state = state_with(a=2, b=1)
    assert step(state, Removal("a")).is_done
    assert sorted(state.chains) == ["b"]
    assert state.chain_of(NodeId(1)) is None
    stop(state, 1)
    carry_out(state, brokers.unregister(state, NodeId(1)))
    assert sorted(state.brokers) == [2, 3]


def test_a_chain_with_topics_is_removed_only_by_draining() -> None:
    """V7, controller.W1: the error says so, and nothing has changed."""
    state = state_with(a=2, b=2)
    topics(state, t=[(1, 2), (2, 1)])
    with pytest.raises(RequestError, match=r"2 partitions of 1 topics, such as t-0.*draining"):
        removal.remove(state, Removal("a"))
    with pytest.raises(RequestError, match="no chain x"):
        removal.remove(state, Removal("x"))
    derived = state.chain_index.derived()[0].name
    with pytest.raises(RequestError, match="no chain"):
        removal.remove(state, Removal(derived, drain=True))


def test_a_chain_is_drained() -> None:
    """V7: each topic goes to the chain with the fewest, as a whole, with as many replicas."""
    state = state_with(a=2, b=2, c=2, d=3)
    topics(state, s=[(1, 2), (2, 1)], t=[(1, 2)], u=[(3, 4)], v=[(2,)], w=[(1, 3)])
    seen = finish(state, Removal("a", drain=True))
    assert [each.partitions_left for each in seen] == [5, 5, 0]
    assert [each.partitions_moving for each in seen] == [5, 5, 0]
    assert "a" not in state.chains
    assert replicas(state, "s") in ([(3, 4), (4, 3)], [(5, 6), (6, 5)])  # rotated, as before
    assert replicas(state, "u") == [(3, 4)]
    for name, length in (("t", 2), ("v", 1), ("w", 2)):
        assert all(not {1, 2} & set(each) and len(each) == length
                   for each in replicas(state, name)), name
    carry_out(state, chains.reconcile(state))
    assert not state.chain_index.with_node(NodeId(1))


def test_replicas_get_fewer_only_if_that_is_said() -> None:
    """V7: no other chain is as long."""
    state = state_with(a=3, b=2)
    topics(state, t=[(1, 2, 3)])
    with pytest.raises(RequestError, match="t-0 has 3 replicas, and no other chain has so many"):
        removal.remove(state, Removal("a", drain=True))
    finish(state, Removal("a", drain=True, shorten=True))
    assert replicas(state, "t") == [(4, 5)]
    with pytest.raises(RequestError, match="no chain but b"):
        removal.remove(state, Removal("b", drain=True, shorten=True))


def test_a_node_is_replaced_by_another() -> None:
    """V16: in each of its partitions, in its place; the chain goes on without it."""
    state = state_with(a=3)
    start(state, 4, "a-3")
    topics(state, t=[(1, 2, 3)], u=[(2, 1), (3, 2)])
    removing = Removal("a", "a-0", replace_by="a-3")
    seen = finish(state, removing)
    assert [each.partitions_left for each in seen] == [2, 2, 0]
    assert replicas(state, "t") == [(4, 2, 3)]
    assert replicas(state, "u") == [(2, 4), (3, 2)]
    assert shape(state) == "2 3"
    assert step(state, removing).is_done  # again
    carry_out(state, chains.extend(state, "a", "a-3"))
    stop(state, 1)
    carry_out(state, brokers.unregister(state, NodeId(1)))
    with pytest.raises(RequestError) as refused:
        removal.remove(state, removing)
    assert refused.value.code is Code.BROKER_ID_NOT_REGISTERED


def test_a_dead_node_is_replaced_or_left_out() -> None:
    """V16: nothing of it is needed."""
    state = state_with(a=3)
    start(state, 4, "b-0")
    topics(state, t=[(1, 2, 3)], u=[(2, 1)])
    stop(state, 1)
    with pytest.raises(RequestError, match="2 partitions are on a-0, such as t-0: name the node"):
        removal.remove(state, Removal("a", "a-0"))
    assert replicas(state, "t") == [(1, 2, 3)]
    progress = step(state, Removal("a", "a-0", shorten=True))
    assert (progress.is_done, progress.partitions_left) == (False, 2)
    assert (replicas(state, "t"), replicas(state, "u")) == ([(2, 3)], [(2,)])  # nothing to copy
    assert step(state, Removal("a", "a-0", shorten=True)).is_done
    finish(state, Removal("a", "a-1", replace_by="b-0"))
    assert (replicas(state, "t"), replicas(state, "u")) == ([(4, 3)], [(4,)])
    assert shape(state) == "3"


class TestRefusals:
    """What cannot be is refused with what to do."""

    @pytest.mark.parametrize(("wanted", "why"), [
        (Removal("a", "a-9"), "no node called 'a-9'"),
        (Removal("b", "a-0"), "a-0 is not in chain b, but in a"),
        (Removal("a", "a-0", replace_by="a-9"), "no node called 'a-9'"),
        (Removal("a", "a-0", replace_by="a-0"), "starts under its name with an empty directory"),
        (Removal("a", "a-0", replace_by="b-0"), "b-0 is not up"),
        (Removal("a", "a-0", replace_by="a-1"), "t-0 is on node 2 already"),
        (Removal("a", "a-0", shorten=True), "s-0 is on a-0 alone"),
    ])
    def test_it_is_refused(self, wanted: Removal, why: str) -> None:
        """V16."""
        state = state_with(a=2, b=1)
        topics(state, t=[(1, 2)], s=[(1,)])
        stop(state, 3)
        with pytest.raises(RequestError, match=why):
            removal.remove(state, wanted)


def test_what_is_created_or_called_off_meanwhile_moves_too() -> None:
    """V7: the request does whatever is due when it comes again."""
    state = state_with(a=1, b=1)
    topics(state, t=[(1,)])
    wanted = Removal("a", drain=True)
    assert step(state, wanted).partitions_left == 1
    topics(state, u=[(1,)])
    carry_out(state, reassignment.alter(state, [Reassignment("t", 0, None)]))
    assert step(state, wanted) == RemovalProgress(
        is_done=False, partitions_left=2, partitions_moving=2)
    finish(state, wanted)
    assert (replicas(state, "t"), replicas(state, "u")) == ([(2,)], [(2,)])


def test_many_partitions_move_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """V7: a decision is bounded."""
    monkeypatch.setattr(removal, "MOVES_MAX", 3)
    state = state_with(a=1, b=1)
    topics(state, t=[(1,)] * 8)
    wanted = Removal("a", drain=True)
    assert [step(state, wanted).partitions_moving for _ in range(4)] == [3, 6, 8, 8]


def test_a_chain_whose_nodes_are_down_is_drained_when_they_are_back() -> None:
    """V7, V14: nothing is given up; what cannot be copied waits."""
    state = state_with(a=1, b=1)
    topics(state, t=[(1,)])
    stop(state, 1)
    wanted = Removal("a", drain=True)
    for _ in range(3):
        assert not step(state, wanted).is_done
    start(state, 1, "a-0", 2)
    carry_out(state, chains.reconcile(state, chains.cold(state)))
    finish(state, wanted)
    assert replicas(state, "t") == [(2,)]


def test_the_last_node_of_a_chain_takes_the_chain_with_it() -> None:
    """V7."""
    state = nodes_with(["a-0", "b-0"])
    carry_out(state, chains.create(state, "a"))
    assert step(state, Removal("a", "a-0")).is_done
    assert dict(state.chains) == {}
