"""The real `PeerNet`: keeps a TCP connection to every other known node.

Two nodes have two connections, one dialled by each: a node sends on the one that it dialled.  The
address book decides which nodes to dial; it learns addresses by `know` and from hellos.

Invariants
    runtime.B1  there is at most one open link to a node, and one from it
    runtime.B2  all open links of one node id belong to one process.  A second process with the same
                id is refused as long as the first one responds; after that it replaces the first
    runtime.B3  links that have not authenticated are few and short-lived, and never displace one
                that has: above `peer.max.unauthenticated.connections` the oldest of them is
                closed.  Links whose first hello had a valid mac are counted separately, so that
                strangers cannot keep a node from authenticating
    runtime.B4  authenticated nodes that are no members (about to join, or misconfigured) have at
                most GUESTS_MAX links and address book entries: there is room for every member

Not here: the handshake (hello.py), one connection (link.py), when to dial (address_book.py),
calls (calls.py).
"""

import asyncio
import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.net.connection import Buffer, Connection
from quipu.runtime.net.limits import NetLimits
from quipu.runtime.net.server import FrameServer
from quipu.runtime.peers.address_book import PEERS_MAX, AddressBook, KnownPeer, Troubles
from quipu.runtime.peers.calls import Calls
from quipu.runtime.peers.hello import (
    NONCE_SIZE,
    AlreadyConnected,
    Hello,
    PeerRefused,
    RefusedByPeer,
)
from quipu.runtime.peers.link import SILENT_TICKS_MAX, Link
from quipu.runtime.peers.peer_net import (
    CallHandler,
    Identity,
    MessageHandler,
    PeerConfig,
    PeerKind,
    PeerListener,
    PeerStats,
)
from quipu.runtime.rng import Rng

DIAL_SECONDS_MAX: Final = 3.0
STOP_SECONDS_MAX: Final = 1.0
FRAME_SIZE_MAX: Final = 128 << 20
FRAME_ROOM: Final = 1 << 20  # for the fields around a forwarded request
PARTIAL_SIZE_MAX: Final = 256 << 20
GUESTS_MAX: Final = 100  # nodes that are no members (runtime.B4)
LINKS_MAX: Final = 2 * (PEERS_MAX + GUESTS_MAX)  # that are open: one to each node, and one from it
_NEVER_SECONDS: Final = 10 * 365 * 86_400.0
_KINDS: Final = frozenset(PeerKind)

_log = logging.getLogger(__name__)


class TcpPeers:
    """A `PeerNet` of TCP connections."""

    def __init__(self, identity: Identity, config: PeerConfig, rng: Rng) -> None:
        self._identity = identity
        self._config = config
        self._tick_seconds = config.silence_seconds_max / SILENT_TICKS_MAX
        self._frame_size_max = max(FRAME_SIZE_MAX, config.request_size_max + FRAME_ROOM)
        self._rng = rng
        self._handlers: dict[int, MessageHandler] = {}
        self._listeners: list[PeerListener] = []
        self._calls = Calls(self.send, config.number_of)
        self._troubles = Troubles()
        self._book = AddressBook(identity.node_id, self._dial, rng, self._troubles)
        self._peers = self._book.peers
        self._links: set[Link] = set()  # every one, open or not
        self._hung_up: dict[NodeId, UUID] = {}  # the last process that closed its connection
        self._opening: dict[Link, asyncio.Future[Identity]] = {}  # dialled, and not open yet
        # Accepted links that sent no valid hello yet, the oldest first (runtime.B3) ...
        self._strangers: dict[Link, None] = {}
        self._vouched: dict[Link, None] = {}  # ... and those that did, but have not authenticated
        self._peer_log = LimitedLog(_log)
        self.members: AbstractSet[NodeId] = config.members
        self.stats = PeerStats()
        self._address: Address | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._server: FrameServer

    # -- messages

    @property
    def identity(self) -> Identity:
        return self._identity

    @identity.setter
    def identity(self, identity: Identity) -> None:
        before, self._identity = self._identity, identity
        assert identity._replace(cluster_id=before.cluster_id) == before, (before, identity)
        assert before.cluster_id in ("", identity.cluster_id), "a node stays in its cluster"
        if identity != before:
            for link in [each for each in self._links if each.is_open]:
                link.announce_cluster()

    @property
    def address(self) -> Address | None:
        return self._address

    def on(self, kind: int, handler: MessageHandler) -> None:
        assert kind not in self._handlers, f"messages of kind {kind} have a handler"
        assert kind not in (PeerKind.CONTROL, PeerKind.CALL, PeerKind.REPLY), kind
        self._handlers[kind] = handler

    def watch(self, listener: PeerListener) -> None:
        self._listeners.append(listener)

    def serve(self, kind: int, handler: CallHandler) -> None:
        self._calls.serve(kind, handler)

    def send(
        self, to: NodeId, kind: int, buffers: list[Buffer], *, at_once: bool = False
    ) -> bool:
        peer = self._peers.get(to)
        if peer is not None and peer.link is not None:
            return peer.link.send(kind, buffers, at_once=at_once)
        if to == self._identity.node_id:
            whole = memoryview(b"".join(buffers))
            asyncio.get_running_loop().call_soon(self._deliver_here, kind, whole)  # runtime.P4
            return True
        return False

    def backlog(self, to: NodeId) -> int:
        peer = self._peers.get(to)
        return 0 if peer is None or peer.link is None else peer.link.backlog

    def is_up(self, node_id: NodeId) -> bool:
        peer = self._peers.get(node_id)
        return node_id == self._identity.node_id or (peer is not None and peer.link is not None)

    def has_hung_up(self, node_id: NodeId, incarnation: UUID) -> bool:
        return self._hung_up.get(node_id) == incarnation

    async def call(
        self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float | None = None
    ) -> bytes:
        return await self._calls.call(to, kind, body, timeout_seconds=(
            self._config.call_seconds_max if timeout_seconds is None else timeout_seconds))

    def _deliver_here(self, kind: int, body: memoryview) -> None:
        own_id = self._identity.node_id
        if kind == PeerKind.CALL:
            self._calls.on_call(
                own_id, body, lambda buffers: self.send(own_id, PeerKind.REPLY, buffers))
        elif kind == PeerKind.REPLY:
            self._calls.on_reply(own_id, body)
        else:
            self._handlers[kind](own_id, body)

    # -- known nodes

    def known(self) -> Mapping[NodeId, Address]:
        return {node_id: peer.address for node_id, peer in sorted(self._peers.items())}

    def know(self, node_id: NodeId, host: str, port: int) -> None:
        self._book.know(node_id, Address(host, port))

    def meet(self, host: str, port: int) -> None:
        self._book.meet(Address(host, port))

    def forget(self, node_id: NodeId) -> None:
        for link in self._links_of(node_id):
            link.close("the node was removed from the cluster")
        self._hung_up.pop(node_id, None)
        self._book.remove(node_id)

    def _links_of(self, node_id: NodeId) -> list[Link]:
        return [link for link in self._links if link.is_open and link.peer.node_id == node_id]

    # -- start and stop

    async def start(self) -> None:
        self._server = FrameServer(accept=self._accept, limits=NetLimits(
            frame_size_max=self._frame_size_max,
            connections_max=LINKS_MAX + 2 * self._config.unproved_max + 1,  # runtime.B3
            partial_size_max=max(PARTIAL_SIZE_MAX, 2 * self._frame_size_max),
            idle_seconds_max=_NEVER_SECONDS))
        listener, advertised = self._config.listener, self._config.advertised
        if listener is not None:
            host, port = self._server.bind(*listener, option="--set peer.listener=HOST:PORT")
            self._address = Address(host, port) if advertised is None else Address(
                advertised.host, advertised.port or port)
            self._server.serve()
        self._book.start()
        self._tick()

    async def stop(self) -> None:
        if self._ticker is None:
            return
        self._ticker.cancel()
        self._book.stop()
        self._calls.close()
        await self._server.close(grace_seconds=STOP_SECONDS_MAX)

    def _tick(self) -> None:
        for link in list(self._links):
            link.tick()
        self._ticker = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    # -- links

    async def _dial(self, address: Address, expected: NodeId | None) -> Identity:
        """Connect and authenticate; returns when the link is open and in the address book."""
        connection = await self._server.dial(*address, seconds_max=DIAL_SECONDS_MAX)
        link = self._link(connection, is_dialled=True, expected=expected)
        opened: asyncio.Future[Identity] = asyncio.get_running_loop().create_future()
        self._opening[link] = opened
        try:
            connection.start(link)
            link.greet()
            return await opened  # the link's ticks limit the wait
        except asyncio.CancelledError:
            link.close("no longer wanted")
            raise
        finally:
            del self._opening[link]

    def _accept(self, connection: Connection) -> Link:
        link = self._link(connection, is_dialled=False)
        self._make_room(self._strangers)
        self._strangers[link] = None
        return link

    def _make_room(self, unproved: dict[Link, None]) -> None:
        """Close the oldest link that has not authenticated if they are too many (runtime.B3)."""
        if len(unproved) >= self._config.unproved_max:
            oldest = next(iter(unproved))
            self.stats.unproved_evicted += 1
            oldest.close(f"{len(unproved)} connections have not authenticated "
                         "(peer.max.unauthenticated.connections)")

    def vouched(self, link: Link) -> None:
        """Count a link with a valid hello no longer as a stranger's (runtime.B3)."""
        if self._strangers.pop(link, self) is None:
            self._make_room(self._vouched)
            self._vouched[link] = None

    def _link(
        self, connection: Connection, *, is_dialled: bool, expected: NodeId | None = None
    ) -> Link:
        mine = Hello(self._identity, self._rng.token(NONCE_SIZE), self._address,
                     self._config.signs_frames)
        link = Link(self, connection, mine, self._config.secret, is_dialled=is_dialled,
                    expected=expected)
        self._links.add(link)
        return link

    def admit(self, link: Link) -> None:
        """Raise `PeerRefused` if a node may not have this link (runtime.B2)."""
        mine, theirs = self._identity, link.peer
        if link.is_dialled:
            self._check_dialled(link)
        if theirs.node_id == mine.node_id:
            raise PeerRefused(
                f"two nodes have the id {mine.node_id}: {mine.name} and {theirs.name}")
        self._check_guest(link)
        rivals = [other for other in self._links_of(theirs.node_id)
                  if other.peer.incarnation != theirs.incarnation]
        for rival in rivals:
            rival.probe()  # a process that has ended is found out soon
        if rivals:
            raise PeerRefused(
                f"another process is node {theirs.node_id} ({rivals[0].peer.name}, seen from "
                f"{mine.name} at {rivals[0].remote}); stop one of the two")

    def _check_guest(self, link: Link) -> None:
        """Raise `PeerRefused` for a node that is no member if there are too many (runtime.B4)."""
        node_id = link.peer.node_id
        if node_id in self.members or link.is_dialled:
            return
        guests = {other.peer.node_id for other in self._links
                  if other.is_open and other.peer.node_id not in self.members}
        if len(guests - {node_id}) >= GUESTS_MAX:
            self.stats.guests_refused += 1
            raise PeerRefused(
                f"{GUESTS_MAX} nodes that are not members of the cluster are connected already")

    def _check_dialled(self, link: Link) -> None:
        """Raise before the other side opens a link that would be closed at once (runtime.B1)."""
        theirs = link.peer
        if theirs.incarnation == self._identity.incarnation:
            raise AlreadyConnected("a node needs no connection to itself", theirs.node_id)
        if link.expected not in (None, theirs.node_id):
            raise PeerRefused(
                f"node {theirs.node_id} ({theirs.name}) is at the address of node {link.expected}")
        peer = self._peers.get(theirs.node_id)
        if peer is not None and peer.link is not None and (
                peer.link.peer.incarnation == theirs.incarnation):
            raise AlreadyConnected(f"{theirs.name} is connected already", theirs.node_id)

    def opened(self, link: Link) -> None:
        """Use a link from now on, instead of an older one if there is one (runtime.B1)."""
        node_id = link.peer.node_id
        self._vouched.pop(link, None)
        if link.is_dialled:
            self._opened_there(link)
            return
        for other in self._links_of(node_id):
            if other is not link and not other.is_dialled:
                other.close("the peer has made a new connection")
        peer = self._peers.get(node_id)
        if link.address is not None and (peer is None or peer.link is None):
            peer = self._learn(node_id, link.address)
        if peer is not None and peer.link is None:
            peer.changed.set()  # it is running: dial it at once

    def _opened_there(self, link: Link) -> None:
        node_id = link.peer.node_id
        peer = self._peers.get(node_id) or self._learn(node_id, link.address or link.remote)
        opening = self._opening.get(link)
        if opening is not None and not opening.done():
            opening.set_result(link.peer)
        if peer is None or peer.link is not None:
            link.close("there is a connection already")
            return
        peer.link = link
        if self._hung_up.get(node_id) == link.peer.incarnation:
            del self._hung_up[node_id]
        self._troubles.resolved(peer)
        _log.info("connected to node %d (%s) at %s", node_id, link.peer.name, link.remote)
        for listener in self._listeners:
            listener.up(node_id)

    def _learn(self, node_id: NodeId, address: Address) -> KnownPeer | None:
        """Store the address that a node sent, unless too many nodes are no members (runtime.B4)."""
        if node_id not in self.members and node_id not in self._peers:
            guests = [peer for peer in self._peers.values() if peer.node_id not in self.members]
            if len(guests) >= GUESTS_MAX:
                gone = next((peer for peer in guests if not self._links_of(peer.node_id)), None)
                if gone is None:
                    return None
                self._book.remove(gone.node_id)
        return self._book.know(node_id, address)

    def received(self, link: Link, kind: int, body: memoryview) -> None:
        """Pass a message to its handler."""
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(link.peer.node_id, body)
        elif kind == PeerKind.CALL:
            self._calls.on_call(link.peer.node_id, body, link.send_reply)
        elif kind == PeerKind.REPLY:
            self._calls.on_reply(link.peer.node_id, body)
        elif kind not in _KINDS:  # of a later version; a known kind has no handler yet
            self._peer_log.warning(
                "unknown kind", "node %d: messages of kind %d are unknown here",
                link.peer.node_id, kind)

    def drained(self, link: Link) -> None:
        """Notify the listeners that messages are accepted again (runtime.P5)."""
        node_id = link.peer.node_id
        peer = self._peers.get(node_id)
        if peer is not None and peer.link is link:
            for listener in self._listeners:
                listener.drained(node_id)

    def lost(self, link: Link, why: QuipuError) -> None:
        """Remove a closed link."""
        self._links.discard(link)
        is_stranger = self._strangers.pop(link, self) is None
        if self._vouched.pop(link, self) is None or is_stranger:
            self.stats.unproved_lost += 1
        opening = self._opening.get(link)
        if opening is not None:
            if not opening.done():
                opening.set_exception(why)
        elif is_stranger:
            if not link.was_left:  # a port check connects and closes: not worth a log line
                self._peer_log.warning(
                    "unproved peer", "connection of %s: %s", link.caller, why)
        elif not link.is_dialled and isinstance(why, PeerRefused) and not isinstance(
                why, RefusedByPeer):
            self._troubles.report(f"connection of {link.caller}", str(why))
        if link.is_dialled:
            self._lost_there(link, why)

    def _lost_there(self, link: Link, why: QuipuError) -> None:
        node_id = link.peer.node_id
        peer = self._peers.get(node_id)
        if peer is None or peer.link is not link:
            return
        peer.link = None
        if link.has_hung_up:
            self._hung_up[node_id] = link.peer.incarnation
        peer.changed.set()
        _log.info("lost node %d (%s): %s", node_id, link.peer.name, why)
        self._calls.lost(node_id)
        for listener in self._listeners:
            listener.down(node_id)
