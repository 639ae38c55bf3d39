"""`PeerNet`: the protocol by which the nodes of a cluster send each other messages and calls.

Messages between nodes are best effort.  While one connection lasts, a message is lost or arrives
whole, once, and after those sent before it; senders that need more send again.

Invariants
    runtime.P1  accepted messages are sent in the order of the calls to `send`, or not at all
    runtime.P2  `send` never waits: it returns False if the peer cannot be reached or is too slow
    runtime.P3  a handler's body is borrowed: it is overwritten once the handler returns
    runtime.P4  messages to the own node are delivered on a later turn of the loop, and never lost
    runtime.P5  between `up` and `down` of a peer, messages to it are accepted (runtime.P2); after a
                refused one, `drained` or `down` is called

Not here: sockets (peers.py), calls (calls.py), which nodes there are (the controller decides,
discovery.py finds the first ones).
"""

from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from quipu.model.errors import ErrorKind, QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.net.connection import Buffer

UNNUMBERED: Final = -1  # the number of an error without a number of its own
PEER_BACKLOG_MAX: Final = 8 << 20  # bytes that wait for one peer; more are refused (runtime.P2)


class PeerKind(IntEnum):
    """The kind of a message; the first byte of its frame."""

    CONTROL = 0  # between the links themselves
    RAFT = 1
    CHAIN = 2
    CALL = 3  # a request that waits for a REPLY
    REPLY = 4


class Identity(NamedTuple):
    """The identity of a node's process."""

    node_id: NodeId
    name: str
    incarnation: UUID  # of the process: a new one at each start
    cluster_id: str = ""  # empty until it is known


@dataclass(slots=True)
class PeerStats:
    """Counters, which metrics read."""

    unproved_lost: int = 0  # connections that ended before they had authenticated
    unproved_evicted: int = 0  # of these, closed to make room for others
    guests_refused: int = 0  # authenticated nodes that are no members, above their limit
    messages_refused: int = 0  # of a node that may not send them, or with impossible numbers


class PeerUnavailable(QuipuError):
    """The peer cannot be reached, or did not reply in time: it may have carried out the call."""

    kind = ErrorKind.RETRY


class PeerError(QuipuError):
    """The peer replied with an error.

    `number` is the one that the peer's `PeerConfig.number_of` returned, `kind` the error's kind.
    """

    def __init__(self, message: str, *, number: int, kind: ErrorKind) -> None:
        super().__init__(message, kind=kind)
        self.number = number


class UnknownCall(QuipuError):
    """A call of a kind that this node does not serve."""


def _unnumbered(error: QuipuError) -> int:
    """The number for errors that callers do not distinguish."""
    del error
    return UNNUMBERED


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """The configuration of a `PeerNet`; `broker/listening.py` makes it from settings."""

    listener: Address | None = None  # that other nodes connect to; port 0: any free one
    advertised: Address | None = None  # for other nodes, if it differs; port 0: the same port
    secret: bytes = field(default=b"", repr=False)  # peer.secret; empty: none
    signs_frames: bool = True  # if False on both sides, only the handshake is authenticated
    unproved_max: int = 128  # connections that have not authenticated (runtime.B3)
    silence_seconds_max: float = 3.0  # a link that is silent for this long is closed
    request_size_max: int = 100 << 20  # of a client's request that is forwarded whole
    members: frozenset[NodeId] = frozenset()  # as far as they are known at the start
    call_seconds_max: float = 10.0  # default timeout of a call
    number_of: Callable[[QuipuError], int] = _unnumbered  # the number sent for an error


class PeerListener(Protocol):
    """Is notified of connections to other nodes."""

    def up(self, node_id: NodeId) -> None:
        """Messages to `node_id` are accepted from now on."""
        ...

    def down(self, node_id: NodeId) -> None:
        """Messages to `node_id` are refused from now on; those not delivered yet may be lost."""
        ...

    def drained(self, node_id: NodeId) -> None:
        """Messages are accepted again after one was refused for lack of room."""
        ...


MessageHandler = Callable[[NodeId, memoryview], None]  # sender, borrowed body (runtime.P3)
CallHandler = Callable[[NodeId, bytes], Awaitable[bytes]]


class PeerNet(Protocol):
    """The connections between this node and the others."""

    identity: Identity  # set again when the cluster id becomes known
    members: AbstractSet[NodeId]  # as far as they are known; they have precedence over others
    stats: PeerStats

    @property
    def address(self) -> Address | None:
        """The advertised address of this node; None before `start` and without a listener."""
        ...

    def on(self, kind: int, handler: MessageHandler) -> None:
        """Call `handler` with every message of `kind`."""
        ...

    def send(
        self, to: NodeId, kind: int, buffers: list[Buffer], *, at_once: bool = False
    ) -> bool:
        """Send one message; False if it was refused.

        Buffers must not change until they are sent, at the end of this turn or later; buffers sent
        `at_once` may change as soon as this returns.
        """
        ...

    def backlog(self, to: NodeId) -> int:
        """Bytes for `to` that were accepted and have not been sent yet."""
        ...

    def is_up(self, node_id: NodeId) -> bool:
        """Whether there is a connection to `node_id`; always True for the own node."""
        ...

    def has_hung_up(self, node_id: NodeId, incarnation: UUID) -> bool:
        """Whether this process closed its connection, and there has been none since.

        This happens when a process ends; but the network may have closed the connection, too.
        """
        ...

    def watch(self, listener: PeerListener) -> None:
        """Notify `listener` of connections that come up and go down from now on."""
        ...

    def serve(self, kind: int, handler: CallHandler) -> None:
        """Have `handler` serve calls of `kind`, a number from 0 to 65535."""
        ...

    async def call(
        self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float | None = None
    ) -> bytes:
        """Send a call and return its reply; raises `PeerUnavailable` or `PeerError`.

        The default timeout is `PeerConfig.call_seconds_max`.
        """
        ...

    def know(self, node_id: NodeId, host: str, port: int) -> None:
        """Set the address of a node, and keep a connection to it."""
        ...

    def meet(self, host: str, port: int) -> None:
        """Connect to the node at an address; it becomes known if it is of this cluster."""
        ...

    def forget(self, node_id: NodeId) -> None:
        """Close the connections to a node, and dial it no more."""
        ...

    def known(self) -> Mapping[NodeId, Address]:
        """Every other node whose address is known."""
        ...

    async def start(self) -> None:
        """Listen, and connect to the known nodes."""
        ...

    async def stop(self) -> None:
        """Close all connections; waiting calls fail."""
        ...
