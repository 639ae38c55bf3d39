"""Kafka's controller listener becomes our peer listener; what cannot be is refused."""

import pytest

from quipu.model.errors import SettingError
from quipu.model.listeners import ListenerEndpoint
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.model.settings_types import Address, Voter

ALONE = {
    "process.roles": "broker,controller", "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map":
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
}
OF_THREE = {
    "process.roles": "broker,controller", "node.id": "2", "peer.secret": "x" * 16,
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "listeners": "PLAINTEXT://b:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


def read(base: dict[str, str], **changes: str | None) -> BrokerSettings:
    """Settings of `base` with others, _ for dots; None takes one out."""
    given = {**base, **{name.replace("_", "."): value for name, value in changes.items()}}
    return broker_settings(from_assignments(
        f"{name}={value}" for name, value in given.items() if value is not None))


def test_a_cluster_of_one_opens_no_peer_listener() -> None:
    """K1: nobody could connect to it, and it would need a secret."""
    settings = read(ALONE)

    assert settings.listeners == (ListenerEndpoint("PLAINTEXT", "", 9092),)
    assert settings.advertised_listeners == (ListenerEndpoint("PLAINTEXT", "localhost", 9092),)
    assert settings.peer_listener is None
    assert settings.node_name == "quipu-0"
    static = read(ALONE, controller_quorum_voters="1@localhost:9093",
                  controller_quorum_bootstrap_servers=None)
    assert (static.peer_listener, static.controller_quorum_voters) == (None, ())


def test_of_three_the_controller_listener_is_where_nodes_meet() -> None:
    """K1, V5: other nodes are given the address that the quorum has for this one."""
    settings = read(OF_THREE)

    assert settings.peer_listener == Address("0.0.0.0", 9093)
    assert settings.advertised_peer_listener == Address("b", 9093)
    assert settings.node_name == "quipu-2"
    assert settings.controller_quorum_voters[0] == Voter(1, Address("a", 9093))
    advertised = read(OF_THREE, advertised_listeners="PLAINTEXT://b:9092,CONTROLLER://b.in:19093")
    assert advertised.advertised_peer_listener == Address("b.in", 19093)
    assert read(OF_THREE, node_name="a-7").node_name == "a-7"
    own = read(OF_THREE, peer_listener="b:7000")
    assert (own.peer_listener, len(own.listeners)) == (Address("b", 7000), 1)


def test_a_broker_that_is_no_voter() -> None:
    """K1: it has a listener for other nodes, too: batches come by it."""
    settings = read(OF_THREE, node_id="4", process_roles="broker",
                    advertised_listeners="PLAINTEXT://b:9092,CONTROLLER://b:9093")

    assert settings.advertised_peer_listener == Address("b", 9093)


MISTAKES = [
    ("no TLS between nodes", OF_THREE,
     {"listener_security_protocol_map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT"},
     "nodes authenticate to each other with peer.secret"),
    ("a secret is needed", OF_THREE, {"peer_secret": None}, "peer.secret is not set"),
    ("controllers alone", OF_THREE, {"process_roles": "controller"},
     "write process.roles=broker,controller"),
    ("a broker among the voters", OF_THREE, {"process_roles": "broker"}, "names this node"),
    ("a controller that is no voter", OF_THREE, {"node_id": "9"}, "does not name this node"),
    ("nobody for clients", OF_THREE, {"listeners": "CONTROLLER://:9093"}, "serves clients"),
    ("a quorum that is not told", ALONE,
     {"controller_quorum_bootstrap_servers": "a:9093,b:9093,c:9093"},
     "each node would found a cluster of its own"),
    ("another controller", ALONE, {"controller_quorum_bootstrap_servers": "a:19093"},
     "names another node"),
    ("a listener that is not there", ALONE, {"inter_broker_listener_name": "INSIDE"},
     "is not one of listeners; name one of PLAINTEXT"),
    ("TLS for clients", ALONE, {"listeners": "SSL://:9092,CONTROLLER://:9093"},
     "SSL is not supported yet: this version has no TLS"),
    ("a role of its own", ALONE, {"process_roles": "broker,zookeeper"}, "must be a comma list of"),
    ("two directories", ALONE, {"log_dirs": "/a,/b"}, "must be one directory"),
]


@pytest.mark.parametrize(("why", "base", "changes", "said"), MISTAKES,
                         ids=[each[0] for each in MISTAKES])
def test_what_cannot_be_is_refused(
    why: str, base: dict[str, str], changes: dict[str, str | None], said: str
) -> None:
    """K5, K8: with what to write instead."""
    with pytest.raises(SettingError, match=said):
        read(base, **changes)
