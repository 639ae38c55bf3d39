"""How nodes of one cluster talk: the words that all who send and receive share.

Messages between nodes are best effort.  A message is lost, or arrives whole, once, and after those
that were sent before it while one connection lives; whoever needs more sends again.

Invariants
    P1  what `send` took leaves in the order in which it was given, or not at all
    P2  `send` never waits: it says no when the peer cannot be reached or takes too little
    P3  a handler's body is borrowed: it is gone when the handler returns
    P4  messages to the own node are delivered on a later turn of the loop, and never lost
    P5  between `up` and `down` of a peer, messages to it are taken (P2); a refused one is
        followed by `drained` or by `down`

Not here: sockets (peers.py), request and answer (peer_calls.py), who the peers are (the
controller knows, discovery.py finds the first ones).
"""

from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from quipu.model.errors import Code, Kind, QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.connection import Buffer

PEER_BACKLOG_MAX: Final = 8 << 20  # bytes for one peer that wait; more are refused (P2)


class PeerKind(IntEnum):
    """What a message is about; the first byte of its frame."""

    CONTROL = 0  # between the links themselves
    RAFT = 1
    CHAIN = 2
    CALL = 3  # a request that waits for its answer
    REPLY = 4


class Identity(NamedTuple):
    """Who a node says it is."""

    node_id: NodeId
    name: str
    incarnation: UUID  # of the process: another one each time that it starts
    cluster_id: str = ""  # empty as long as it is not known


@dataclass(slots=True)
class PeerStats:
    """Plain counters, read by whoever shows metrics."""

    unproved_lost: int = 0  # connections that ended before they had proved anything
    unproved_evicted: int = 0  # of these, closed to make room for others
    guests_refused: int = 0  # nodes that know the secret, are no members, and were too many
    messages_refused: int = 0  # of nodes that may not say so, or with numbers that cannot be


class PeerUnavailable(QuipuError):
    """The peer cannot be reached, or did not answer in time: what it did is not known."""

    kind = Kind.RETRY
    code = Code.BROKER_NOT_AVAILABLE


class PeerError(QuipuError):
    """The peer answered with an error; `code` and `kind` are those that it was given there."""


class PeerListener(Protocol):
    """Hears about the ways to other nodes."""

    def up(self, node_id: NodeId) -> None:
        """Messages to `node_id` are taken from now on."""
        ...

    def down(self, node_id: NodeId) -> None:
        """Messages to `node_id` are refused from now on; those under way may be lost."""
        ...

    def drained(self, node_id: NodeId) -> None:
        """There is room again, after a message was refused for want of it."""
        ...


Handler = Callable[[NodeId, memoryview], None]  # sender, borrowed body (P3)
CallHandler = Callable[[NodeId, bytes], Awaitable[bytes]]


class PeerNet(Protocol):
    """The ways from this node to the others, and from them to it."""

    identity: Identity  # set it again when the cluster id becomes known
    members: AbstractSet[NodeId]  # as far as is known; others make room for them
    stats: PeerStats

    @property
    def address(self) -> Address | None:
        """Where other nodes are told to connect to; None before `start` and without listener."""
        ...

    def on(self, kind: int, handler: Handler) -> None:
        """Have `handler` called with every message of `kind`."""
        ...

    def send(
        self, to: NodeId, kind: int, buffers: list[Buffer], *, at_once: bool = False
    ) -> bool:
        """Send one message; False if it was not taken.

        Buffers must not change until it left, at the end of this turn or later; what is sent
        `at_once` may change as soon as this returns.
        """
        ...

    def backlog(self, to: NodeId) -> int:
        """Bytes for `to` that were taken and have not left yet."""
        ...

    def is_up(self, node_id: NodeId) -> bool:
        """Would `send` find a way?  Always true of the own node."""
        ...

    def has_hung_up(self, node_id: NodeId, incarnation: UUID) -> bool:
        """Was the connection to this process closed from its side, and not made again since?

        That is what the end of a process looks like; but the network may have closed it.
        """
        ...

    def watch(self, listener: PeerListener) -> None:
        """Tell `listener` what happens from now on."""
        ...

    def serve(self, kind: int, handler: CallHandler) -> None:
        """Answer calls of `kind` (a number of its own, 0 to 65535)."""
        ...

    async def call(
        self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        """Ask and wait for the answer; raises `PeerUnavailable` or `PeerError`."""
        ...

    def know(self, node_id: NodeId, host: str, port: int) -> None:
        """Where a node is; it is connected to, and again whenever the connection is lost."""
        ...

    def meet(self, host: str, port: int) -> None:
        """Connect to whoever is there; it becomes known if it belongs to this cluster."""
        ...

    def forget(self, node_id: NodeId) -> None:
        """Leave a node alone."""
        ...

    def known(self) -> Mapping[NodeId, Address]:
        """Every other node whose address is known."""
        ...

    async def start(self) -> None:
        """Listen, and connect to whom is known."""
        ...

    async def stop(self) -> None:
        """Close everything; waiting calls fail."""
        ...
