"""Listeners: the named addresses that clients connect to, and how each is secured.

A node may listen on several addresses.  Each has an upper-case name that is the same on every node
of the cluster: a client that connects to one listener is given the addresses of all nodes for
the listener of that name.

Not here: parsing them (settings_types), who sends a request (principals).
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

LISTENERS_MAX: Final = 16  # per node
NAME_SIZE_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Z0-9][A-Z0-9_.-]*")


class SecurityProtocol(StrEnum):
    """What protects a listener's connections, with Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


SERVED_PROTOCOLS: Final = frozenset({SecurityProtocol.PLAINTEXT})


class ClientListener(NamedTuple):
    """The listener at which a request arrived."""

    name: str
    protocol: SecurityProtocol


class ListenerEndpoint(NamedTuple):
    """The address of one listener of a node; with port 0 the system chooses a free port.

    Without a host, a listener accepts connections on all interfaces.
    """

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class ListenerProtocol(NamedTuple):
    """The security protocol of the listener of that name."""

    listener: str
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.listener}:{self.protocol}"


class ListenerZone(NamedTuple):
    """The zone (rack) that the clients of the listener of that name are in."""

    listener: str
    zone: str

    def __str__(self) -> str:
        return f"{self.listener}:{self.zone}"


DEFAULT: Final = ClientListener("PLAINTEXT", SecurityProtocol.PLAINTEXT)
DEFAULT_PROTOCOLS: Final = tuple(  # the default of listener.security.protocol.map
    ListenerProtocol(str(protocol), protocol) for protocol in SecurityProtocol)


def is_listener_name(name: str) -> bool:
    return len(name) <= NAME_SIZE_MAX and _NAME.fullmatch(name) is not None


def is_default(endpoints: Iterable[ListenerEndpoint]) -> bool:
    """Whether there is one listener, PLAINTEXT, as on every node before listeners had names."""
    return [endpoint.listener for endpoint in endpoints] == [DEFAULT.name]
