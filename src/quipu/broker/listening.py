"""Turns a node's settings into the configuration of its sockets: listeners, limits, peers.

`runtime` does not know the settings; it is given the values that are made here.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Final

from quipu.broker.error_codes import code_of
from quipu.model.ids import NodeId
from quipu.model.listeners import ClientListener, ListenerEndpoint
from quipu.model.settings import BROKER, BrokerSettings
from quipu.runtime.disks.descriptors import shares
from quipu.runtime.disks.disk import raise_file_limit
from quipu.runtime.disks.files import OpenFiles
from quipu.runtime.net.admission import address_key
from quipu.runtime.net.limits import NetLimits
from quipu.runtime.peers.peer_net import PeerConfig

_log = logging.getLogger(__name__)

NEVER_IDLE_SECONDS: Final = 10 * 365 * 86_400.0


def net_limits(settings: BrokerSettings, files: OpenFiles) -> NetLimits:
    """The limits on client connections; the descriptors that they leave are for `files`."""
    connections_max = _share_descriptors(settings, files)
    idle_ms = settings.connections_max_idle_ms
    rate_max = settings.max_connection_creation_rate
    return NetLimits(
        frame_size_max=settings.socket_request_max_bytes,
        partial_size_max=settings.queued_max_request_bytes,
        connections_max=connections_max,
        idle_seconds_max=idle_ms / 1000 if idle_ms >= 0 else NEVER_IDLE_SECONDS,
        per_address_max=_or_half(connections_max, settings.max_connections_per_ip),
        per_address_overrides={
            address_key(host): count
            for host, count in settings.max_connections_per_ip_overrides},
        rate_max=rate_max,
        rate_per_address_max=_or_half(rate_max, settings.max_connection_creation_rate_per_ip),
    )


def use_limits(limits: NetLimits, settings: BrokerSettings, files: OpenFiles) -> None:
    """Change the limits in force to those of `settings`."""
    new = net_limits(settings, files)
    for each in dataclasses.fields(NetLimits):
        setattr(limits, each.name, getattr(new, each.name))


def _share_descriptors(settings: BrokerSettings, files: OpenFiles) -> int:
    """Divide the file descriptors between logs and connections; returns the latter."""
    limit, wanted = raise_file_limit(), settings.max_connections
    connections, files.count_max = shares(limit, connections_max=wanted)
    if connections < wanted and wanted != BROKER["max.connections"].default:
        _log.warning("max.connections is %d instead of %d: this process may open %d files "
                     "(ulimit -n)", connections, wanted, limit)
    return connections


def _or_half(all_max: int, given: int | None) -> int:
    """The share of one address: `given`, or half of all."""
    return max(1, all_max // 2) if given is None else given


def client_listeners(settings: BrokerSettings) -> dict[str, ClientListener]:
    """The listeners that clients can connect to, by name."""
    protocols = dict(settings.listener_security_protocol_map)
    return {endpoint.listener: ClientListener(endpoint.listener, protocols[endpoint.listener])
            for endpoint in settings.listeners}


def advertised(
    settings: BrokerSettings, bound: Sequence[ListenerEndpoint], machine_name: Callable[[], str]
) -> tuple[ListenerEndpoint, ...]:
    """The address of each listener that clients are given; `bound` are the bound addresses.

    It is the listener's entry in `advertised.listeners`, or else its bound address.  A listener
    that was given without a host is bound on all interfaces, and is given with this machine's name.
    """
    overrides = {endpoint.listener: endpoint for endpoint in settings.advertised_listeners}
    hosts = {endpoint.listener: endpoint.host for endpoint in settings.listeners}
    found = []
    for own in bound:
        entry = overrides.get(own.listener)
        if entry is not None:
            found.append(entry._replace(port=entry.port or own.port))
        else:
            found.append(own if hosts[own.listener] else own._replace(host=machine_name()))
    return tuple(found)


def peer_config(settings: BrokerSettings) -> PeerConfig:
    """The configuration of the connections to other nodes."""
    return PeerConfig(
        listener=settings.peer_listener,
        advertised=settings.advertised_peer_listener,
        secret=(settings.peer_secret or "").encode(),
        signs_frames=settings.peer_frame_authentication_enable,
        unproved_max=settings.peer_max_unauthenticated_connections,
        silence_seconds_max=settings.broker_session_timeout_ms / 2000,
        request_size_max=settings.socket_request_max_bytes,
        members=frozenset(NodeId(voter.node_id) for voter in settings.controller_quorum_voters),
        call_seconds_max=settings.peer_request_timeout_ms / 1000,
        number_of=code_of,
    )
