"""Kafka's controller listener as our peer listener (ADR 54).

Kafka's nodes have one list of listeners, of which controller.listener.names says which are for
controllers.  Ours have `listeners` for clients and `peer.listener` for other nodes.  What a file of
Kafka's says is turned into that once, when settings are read: no other code knows the difference.

    listeners                 those of the controller are taken out
    peer.listener             the first listener of controller.listener.names that is there
    advertised.peer.listener  its entry in advertised.listeners, or else the address that
                              controller.quorum.voters has for this node
    node.name                 quipu-ID, for nodes that have a number and no name

A cluster of one node opens no peer listener: nobody could connect to it.

Not here: whether the result is allowed (settings_sources).
"""

import dataclasses
from typing import Final

from quipu.model.broker_settings import BrokerSettings
from quipu.model.errors import SettingError
from quipu.model.listeners import SERVED_PROTOCOLS, ListenerEndpoint
from quipu.model.settings_types import Address

BROKER_ROLE: Final = "broker"
CONTROLLER_ROLE: Final = "controller"


def with_controller_listener(settings: BrokerSettings) -> BrokerSettings:
    """`settings` with the peer listener that Kafka's settings mean; SettingError if they clash."""
    _check_roles(settings)
    others = [voter for voter in settings.controller_quorum_voters
              if voter.node_id != settings.own_id]
    if others and settings.node_id is not None and "node.name" not in settings.explicit:
        settings = dataclasses.replace(settings, node_name=f"quipu-{settings.node_id}")
    names = settings.controller_listener_names
    if not names:
        return settings
    by_name = {endpoint.listener: endpoint for endpoint in settings.listeners}
    found = [by_name[name] for name in names if name in by_name]
    clients = tuple(each for each in settings.listeners if each.listener not in names)
    if not clients:
        raise SettingError(
            f"listeners has none but those of controller.listener.names={','.join(names)}: every "
            "node serves clients, so add one, such as PLAINTEXT://:9092")
    _check_bootstrap(settings, found, is_alone=not others)
    for name, protocol in settings.listener_security_protocol_map:
        if name in {each.listener for each in found} and protocol not in SERVED_PROTOCOLS:
            raise SettingError(
                f"listener.security.protocol.map={name}:{protocol}: nodes authenticate to each "
                f"other with peer.secret, without TLS and SASL; write {name}:PLAINTEXT, and set "
                "peer.secret")
    kept = dataclasses.replace(
        settings, listeners=clients, advertised_listeners=tuple(
            each for each in settings.advertised_listeners if each.listener not in names))
    if not found or settings.peer_listener is not None:
        return kept
    if not others and settings.peer_discovery is None:
        return dataclasses.replace(kept, controller_quorum_voters=())
    return _with_peer_listener(kept, settings, found[0])


def _with_peer_listener(
    kept: BrokerSettings, given: BrokerSettings, own: ListenerEndpoint
) -> BrokerSettings:
    advertised = kept.advertised_peer_listener
    if advertised is None:
        entries = [each for each in given.advertised_listeners if each.listener == own.listener]
        voters = [voter.address for voter in given.controller_quorum_voters
                  if voter.node_id == given.own_id and voter.address is not None]
        advertised = (Address(entries[0].host, entries[0].port) if entries
                      else voters[0] if voters else None)
    bound = Address(own.host or "0.0.0.0", own.port)  # noqa: S104 Kafka: no host is every interface
    return dataclasses.replace(
        kept, peer_listener=bound, advertised_peer_listener=advertised)


def _check_roles(settings: BrokerSettings) -> None:
    """Raise unless the roles that are given are those that the node will have."""
    roles, voters = settings.process_roles, settings.controller_quorum_voters
    if not roles:
        return
    is_voter = not voters or settings.own_id in {voter.node_id for voter in voters}
    given = ",".join(roles)
    if BROKER_ROLE not in roles:
        raise SettingError(
            f"process.roles={given}: every node serves clients, so there are no nodes that are "
            "controllers alone; write process.roles=broker,controller")
    if CONTROLLER_ROLE in roles and not is_voter:
        raise SettingError(
            f"process.roles={given}: controller.quorum.voters does not name this node "
            f"({settings.own_id}); add it there, or write process.roles=broker")
    if CONTROLLER_ROLE not in roles and is_voter:
        raise SettingError(
            f"process.roles={given}: controller.quorum.voters "
            + ("names" if voters else "is empty, which means")
            + f" this node ({settings.own_id}); write process.roles=broker,controller")


def _check_bootstrap(
    settings: BrokerSettings, own: list[ListenerEndpoint], *, is_alone: bool
) -> None:
    """Raise if other controllers are named, and no quorum: each node would found a cluster."""
    servers = settings.controller_quorum_bootstrap_servers
    ports = {str(endpoint.port) for endpoint in own}
    foreign = [each for each in servers
               if len(servers) > 1 or each.rpartition(":")[2] not in ports]
    if is_alone and foreign and settings.peer_discovery is None:
        raise SettingError(
            f"controller.quorum.bootstrap.servers names another node ({foreign[0]}), and "
            "controller.quorum.voters does not: each node would found a cluster of its own. Write "
            "controller.quorum.voters=ID@HOST:PORT,ID@HOST:PORT with all first controllers, the "
            "same on every node")
