"""The part of a broker's settings that Kafka's KRaft has for the roles and listeners of a node.

A node of ours is always a broker and may be a voter, and other nodes reach it at peer.listener;
`controller_listener` makes the one of the other (ADR 54).  `BrokerSettings` inherits the class.
"""

from dataclasses import dataclass

from quipu.model.diskless_settings import DisklessSettings
from quipu.model.settings_rules import LISTENER_NAMES, ROLES, SERVERS
from quipu.model.settings_types import optional_line, ruled

_NONE: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KraftSettings(DisklessSettings):
    """Roles and controller listeners, as Kafka's server.properties has them."""

    process_roles: tuple[str, ...] = ruled(
        _NONE, ROLES,
        "Roles of the node, as Kafka names them: broker,controller, or broker for one that is not "
        "among controller.quorum.voters. Every node serves clients, so controller alone is "
        "refused. Where it is given, the voters become a chain when all of them are up for the "
        "first time, as if an operator had created it.")
    controller_listener_names: tuple[str, ...] = ruled(
        _NONE, LISTENER_NAMES,
        "Names of those of listeners that are for other nodes, as Kafka has it: the first that is "
        "there is used as peer.listener, and its advertised address as advertised.peer.listener. "
        "A cluster of one node does not open it.")
    controller_quorum_bootstrap_servers: tuple[str, ...] = ruled(
        _NONE, SERVERS,
        "Addresses of controllers, as Kafka has it. A cluster of one node names itself; if other "
        "nodes are named, controller.quorum.voters is needed as well.")
    inter_broker_listener_name: str | None = optional_line(
        "Name of the listener that brokers of Kafka use among themselves; it must be one of "
        "listeners.", ignored="nodes connect to each other at peer.listener.")
