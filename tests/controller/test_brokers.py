"""Brokers: who may register, and what follows when one comes, goes quiet or leaves."""

from typing import NamedTuple
from uuid import UUID

import pytest

from quipu.controller import brokers, chains
from quipu.controller.brokers import Registration
from quipu.controller.records import BrokerRegistered
from quipu.controller.state import ClusterState
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from tests.controller.states import (
    carry_out,
    incarnation,
    nodes_with,
    register,
    shape,
    start,
    state_with,
    stop,
)

GOOD = Registration(node_id=NodeId(1), name="a-0", incarnation=UUID(int=7), host="h", port=9092)


class Refused(NamedTuple):
    why: str
    wanted: Registration
    code: Code
    words: str


REFUSED = [
    Refused("its number is in use", GOOD, Code.DUPLICATE_BROKER_REGISTRATION,
            "node 1 is up already, as a-0 at host-1:9092"),
    Refused("its name is in use", GOOD._replace(node_id=NodeId(9)),
            Code.DUPLICATE_BROKER_REGISTRATION, "taken by node 1"),
    Refused("the number is another member's", GOOD._replace(name="b-0"),
            Code.DUPLICATE_BROKER_REGISTRATION, "node 1 is a-0 of chain a"),
    Refused("a name without a number", GOOD._replace(name="a"), Code.INVALID_REQUEST, "CHAIN-N"),
    Refused("a name without a chain", GOOD._replace(name="-3"), Code.INVALID_REQUEST, "CHAIN-N"),
    Refused("a name too long", GOOD._replace(name="a" * 64 + "-0"), Code.INVALID_REQUEST,
            "CHAIN-N"),
    Refused("no incarnation", GOOD._replace(incarnation=ZERO_UUID), Code.INVALID_REQUEST, "cannot"),
    Refused("a host too long", GOOD._replace(host="h" * 1001), Code.INVALID_REQUEST, "cannot"),
    Refused("a port that is none", GOOD._replace(port=70_000), Code.INVALID_REQUEST, "cannot"),
    Refused("a number that is none", GOOD._replace(node_id=NO_NODE), Code.INVALID_REQUEST,
            "cannot"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_broker_that_cannot_be_is_refused(case: Refused) -> None:
    """V16: and the error says why."""
    with pytest.raises(RequestError, match=case.words) as refused:
        brokers.register(state_with(a=2), case.wanted, quiet=False)

    assert refused.value.code is case.code


def test_a_broker_is_fenced_until_it_is_ready() -> None:
    state = nodes_with([])
    (broker,) = carry_out(state, register(state, 1, "a-0"))
    assert (state.brokers[NodeId(1)], broker.fenced, state.up()) == (broker, True, {})

    carry_out(state, brokers.unfence(state, broker.node_id, broker.epoch))

    assert state.up() == {1: broker.process}
    assert broker.incarnation == incarnation(1)
    assert state.find_broker("a-0") == state.brokers[NodeId(1)]


def test_asking_again_gives_the_same_epoch() -> None:
    """V16: a repeat of a lost response is the same; another address replaces the old one."""
    state = state_with(a=1)
    before = state.brokers[NodeId(1)]

    again = register(state, 1, "a-0")
    moved = brokers.register(state, GOOD._replace(incarnation=incarnation(1)), quiet=False)

    assert (again.records, again.results) == ([], [before])
    (after,) = carry_out(state, moved)
    assert (after.host, after.epoch, after.fenced) == ("h", before.epoch, False)
    assert shape(state) == "1"


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "quiet"])
def test_a_new_process_takes_the_place_of_one_that_failed(fenced: bool) -> None:
    """V15, V16: the old one's epoch is worth nothing from then on."""
    state = state_with(a=2)
    old = state.brokers[NodeId(1)]
    if fenced:
        stop(state, 1)

    (new,) = carry_out(state, brokers.register(state, GOOD, quiet=not fenced))

    assert new.epoch > old.epoch
    assert (shape(state), state.leader_of(state.chains["a"])) == ("2 !1", 2)
    assert brokers.current(state, NodeId(1), new.epoch) == new
    with pytest.raises(RequestError) as stale:
        brokers.current(state, NodeId(1), old.epoch)
    assert stale.value.code is Code.STALE_BROKER_EPOCH


def test_a_broker_that_registered_before_there_were_incarnations_comes_back() -> None:
    """T7: with the metadata of an older program."""
    state = nodes_with([])
    state.apply(BrokerRegistered(node_id=1, host="old", port=1))

    carry_out(state, brokers.register(state, GOOD, quiet=False))

    assert state.brokers[NodeId(1)].host == "h"


def test_a_fenced_broker_and_its_chain_change_in_one_decision() -> None:
    """V21: so a node that fails is replaced in one step."""
    state = state_with(a=3)

    decision = brokers.fence(state, [NodeId(1)])
    carry_out(state, decision)

    assert [type(record).__name__ for record in decision.records] == [
        "BrokerFencingChanged", "ChainChanged"]
    assert shape(state) == "2 3 !1"
    assert brokers.fence(state, [NodeId(1)]).records == []


def test_a_node_that_stops_in_order_leaves_its_chain() -> None:
    """K10: and is not brought back by a heartbeat that was on its way."""
    state = state_with(a=2)
    broker = state.brokers[NodeId(1)]

    carry_out(state, brokers.stop(state, NodeId(1), broker.epoch))
    carry_out(state, brokers.unfence(state, NodeId(1), broker.epoch))

    assert shape(state) == "2 !1"
    assert brokers.stop(state, NodeId(1), broker.epoch).records == []
    start(state, 1, "a-0", life=2)
    assert shape(state) == "2 ~1"


def step_back(state: ClusterState, node: int) -> None:
    carry_out(state, brokers.step_back(state, NodeId(node), state.brokers[NodeId(node)].epoch))


def test_a_node_whose_log_has_failed_goes_while_another_serves() -> None:
    """V10, V21: it stays away until it is another process; the last one that serves stays."""
    state = state_with(a=3)
    for _ in range(2):
        step_back(state, 2)
        assert shape(state) == "1 3 !2"
    step_back(state, 1)
    assert shape(state) == "3 !1 !2"
    step_back(state, 3)
    assert (shape(state), state.leader_of(state.chains["a"])) == ("3 !1 !2", 3)

    start(state, 2, "a-1", life=2)

    assert shape(state) == "3 ~2 !1"
    step_back(state, 2)
    assert shape(state) == "3 !2 !1"


def test_a_node_whose_log_has_failed_serves_what_it_can_where_no_other_does() -> None:
    """V14: also if it was away; but one that does not serve is no help."""
    state = state_with(a=2)
    step_back(state, 1)
    stop(state, 2)
    step_back(state, 1)
    assert (shape(state), state.brokers[NodeId(1)].fenced) == ("2 !1", True)

    step_back(state, 2)

    assert (shape(state), state.leader_of(state.chains["a"])) == ("2 !1", 2)
    alone = nodes_with(["a-0"])
    stop(alone, 1)
    step_back(alone, 1)
    assert not alone.brokers[NodeId(1)].fenced


def test_the_last_one_that_stops_leaves_its_chain_as_it_is() -> None:
    """K10, V14: no other member has every record."""
    state = state_with(a=2)
    for node in (1, 2):
        carry_out(state, brokers.stop(state, NodeId(node), state.brokers[NodeId(node)].epoch))

    assert (shape(state), state.leader_of(state.chains["a"])) == ("2 !1", NO_NODE)
    start(state, 1, "a-0", life=2)
    assert shape(state) == "2 !1"
    start(state, 2, "a-1", life=2)
    assert (shape(state), state.leader_of(state.chains["a"])) == ("2 ~1", 2)


def test_a_broker_is_unregistered_once_it_is_down_and_in_no_chain() -> None:
    """K6: UnregisterBroker."""
    state = state_with(a=1)
    start(state, 2, "a-1")
    for node, code in ((1, Code.INVALID_REQUEST), (2, Code.INVALID_REQUEST),
                       (3, Code.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(RequestError) as refused:
            brokers.unregister(state, NodeId(node))
        assert refused.value.code is code

    stop(state, 2)
    carry_out(state, brokers.unregister(state, NodeId(2)))

    assert list(state.brokers) == [1]
    with pytest.raises(RequestError) as gone:
        brokers.current(state, NodeId(2), 1)
    assert gone.value.code is Code.BROKER_ID_NOT_REGISTERED


def test_whether_a_process_may_act_on_the_replica_sets_of_its_node() -> None:
    """V13: a replica set may speak of the process before this one."""
    state = state_with(a=1)
    assert state.is_part(NodeId(1), incarnation(1))
    assert not state.is_part(NodeId(1), incarnation(1, 2))
    assert not state.is_part(NodeId(9), incarnation(9))

    stop(state, 1)

    assert not state.is_part(NodeId(1), incarnation(1))
    assert chains.cold(state) == frozenset()
