"""The listeners of brokers: registered, kept, and read from records that know of none."""

from uuid import UUID

import pytest

from quipu.controller import brokers
from quipu.controller.conversions import broker_record
from quipu.controller.record_bounds import check_record
from quipu.controller.records import BrokerRegistered, ListenerRecord
from quipu.controller.state import ClusterState
from quipu.model.errors import MalformedBytes, RequestError
from quipu.model.ids import NodeId
from quipu.model.listeners import LISTENERS_MAX, ListenerEndpoint

ONE = NodeId(1)
PLAIN = ListenerEndpoint("PLAINTEXT", "in", 1)
OUTSIDE = ListenerEndpoint("OUTSIDE", "out", 2)


def registration(*listeners: ListenerEndpoint) -> brokers.Registration:
    return brokers.Registration(
        node_id=ONE, name="a-0", incarnation=UUID(int=1), host="in", port=1, listeners=listeners)


def registered(*listeners: ListenerEndpoint) -> ClusterState:
    state = ClusterState()
    for record in brokers.register(state, registration(*listeners), quiet=False).records:
        state.apply(record)
    return state


def test_a_broker_has_an_endpoint_for_each_of_its_listeners() -> None:
    """And none for a listener that it does not have."""
    broker = registered(PLAIN, OUTSIDE).brokers[ONE]
    assert broker.endpoint("PLAINTEXT") == PLAIN
    assert broker.endpoint("OUTSIDE") == OUTSIDE
    assert broker.endpoint("OTHER") is None
    assert broker.endpoint("outside") is None, "names are upper case when they come here"


def test_a_broker_that_named_no_listener_has_plaintext_alone() -> None:
    """So has every broker that was registered before listeners had names."""
    broker = registered().brokers[ONE]
    assert broker.endpoint("PLAINTEXT") == PLAIN
    assert broker.endpoint("OUTSIDE") is None


def test_a_broker_without_plaintext_is_not_reached_by_it() -> None:
    """`host` and `port` are for programs that know of no names."""
    broker = registered(OUTSIDE).brokers[ONE]
    assert broker.endpoint("PLAINTEXT") is None
    assert broker.endpoint("OUTSIDE") == OUTSIDE


@pytest.mark.parametrize("listeners", [(), (PLAIN, OUTSIDE)])
def test_a_record_makes_the_broker_that_it_was_made_of(
    listeners: tuple[ListenerEndpoint, ...]
) -> None:
    """Over its encoding too; without names it has the bytes that it always had."""
    broker = registered(*listeners).brokers[ONE]
    data = broker_record(broker).encode(0)
    again = ClusterState()
    again.apply(BrokerRegistered.decode(memoryview(data), 0))
    assert again.brokers[ONE] == broker
    assert (b"out" in data) == bool(listeners)


@pytest.mark.parametrize("listeners", [
    (PLAIN, PLAIN), (PLAIN._replace(listener="lower"),), (PLAIN._replace(port=1 << 16),),
    (PLAIN._replace(host="h" * 2000),), (PLAIN._replace(host="a\nb"),),
    tuple(PLAIN._replace(listener=f"A{number}") for number in range(LISTENERS_MAX + 1)),
], ids=["twice", "no name", "no port", "long", "unprintable", "many"])
def test_listeners_that_cannot_be_are_refused(listeners: tuple[ListenerEndpoint, ...]) -> None:
    """What a node says goes into every client's metadata."""
    with pytest.raises(RequestError):
        brokers.register(ClusterState(), registration(*listeners), quiet=False)


def test_a_record_with_too_many_listeners_is_not_kept() -> None:
    """Whoever sent it."""
    record = BrokerRegistered(node_id=1, listeners=[
        ListenerRecord(name=f"A{number}") for number in range(LISTENERS_MAX + 1)])
    with pytest.raises(MalformedBytes, match="17 listeners"):
        check_record(record, ClusterState())
