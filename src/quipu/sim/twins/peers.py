"""Connections between nodes in a simulated network: simulates `runtime.peers.TcpPeers`.

Each node keeps a session to every node that it knows, and dials again when it is lost.  Messages
are datagrams (net.py), so they can be lost, duplicated and overtaken, depending on the weather;
`PeerNet` allows only loss, but the cores must tolerate all of it.

Invariants
    sim.E1  a message arrives only while the session in which it was sent is open
    sim.E2  sessions belong to processes: a dead process neither sends nor receives
    sim.E3  a session ends when a process ends, when it is reset, and when a cut lasts too long
"""

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.calls import Calls
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
from quipu.sim.loop import Life
from quipu.sim.twins.frames import lend

if TYPE_CHECKING:
    from quipu.sim.twins.net import Door

DIAL_SECONDS: Final = 0.004  # before the first attempt, and between the next ones up to ...
DIAL_SECONDS_MAX: Final = 0.8
LOST_SECONDS: Final = 0.5  # after this time a message no longer counts towards the backlog
SILENCE_SECONDS: Final = 3.0  # a cut of this duration ends a session (sim.E3)
FAR_KINDS: Final = frozenset({PeerKind.RAFT, PeerKind.CHAIN})  # sent as datagrams


@dataclass(slots=True, eq=False)
class SimSession:
    """One connection from a node to another."""

    source: "SimPeers"
    target: "SimPeers"
    is_live: bool = True
    backlog: int = 0
    is_refused: bool = False  # a message was refused: `drained` is to be called

    def carry(self, kind: int, data: bytes) -> None:
        """Send a message; sim.E1 and sim.E2 are checked when it arrives."""
        net = self.source.door.net
        link = net.link(self.source.door.host, self.target.door.host)
        self.backlog += len(data)
        left = [len(data)]  # part of the backlog; a duplicated message is subtracted once

        def leave() -> None:
            if left:
                self.left(left.pop())

        def arrive() -> None:
            if self.is_live:
                leave()
                self.target.arrived(self, kind, data)

        if kind in FAR_KINDS:
            link.datagram(len(data), arrive, self.target.door.process.context)
            net.at(net.loop.now + LOST_SECONDS, leave, None)
        else:
            link.stream(len(data), arrive, self.target.door.process.context)

    def left(self, size: int) -> None:
        """Subtract `size` bytes from the backlog."""
        self.backlog -= size
        if self.is_live and self.is_refused and self.backlog * 2 < self.source.backlog_max:
            self.is_refused = False
            self.source.later(lambda: self.source.drained(self))

    def reply(self, data: bytes) -> None:
        """Send the reply to a call, on the same connection."""
        net = self.source.door.net
        link = net.link(self.target.door.host, self.source.door.host)
        link.stream(len(data), lambda: self.source.replied(self, data),
                    self.source.door.process.context)

    def end(self) -> None:
        """Close the session; the source is notified on a later turn."""
        if self.is_live:
            self.is_live = False
            self.source.later(lambda: self.source.lost(self))


@dataclass(slots=True)
class _Known:
    address: Address
    session: SimSession | None = None
    dials: bool = False
    wait: float = DIAL_SECONDS


@dataclass(slots=True, eq=False)
class SimPeers:
    """A `PeerNet` of sessions over simulated links."""

    door: "Door"
    identity: Identity
    config: PeerConfig
    rng: Rng
    address: Address | None = None
    members: AbstractSet[NodeId] = frozenset()
    stats: PeerStats = field(default_factory=PeerStats)
    accepted: dict[SimSession, None] = field(default_factory=dict)
    _handlers: dict[int, MessageHandler] = field(default_factory=dict)
    _listeners: list[PeerListener] = field(default_factory=list)
    _known: dict[NodeId, _Known] = field(default_factory=dict)
    _met: dict[Address, float] = field(default_factory=dict)
    _hung_up: dict[NodeId, UUID] = field(default_factory=dict)
    _calls: Calls = field(init=False)
    _runs: bool = False

    def __post_init__(self) -> None:
        self._calls = Calls(self.send, self.config.number_of)
        assert self.door.process.life is Life.RUNNING

    @property
    def backlog_max(self) -> int:
        return self.door.net.backlog_max

    def has_hung_up(self, node_id: NodeId, incarnation: UUID) -> bool:
        """As in `PeerNet`; also True after a cut was noticed, which must be harmless."""
        return self._hung_up.get(node_id) == incarnation

    # -- messages

    def on(self, kind: int, handler: MessageHandler) -> None:
        assert kind not in self._handlers, kind
        self._handlers[kind] = handler

    def send(
        self, to: NodeId, kind: int, buffers: list[Buffer], *, at_once: bool = False
    ) -> bool:
        del at_once  # everything is copied
        data = b"".join(buffers)
        if to == self.identity.node_id:
            self.later(lambda: self._hand_over(to, kind, data, None))
            return True
        known = self._known.get(to)
        if known is None or known.session is None or not known.session.is_live:
            return False
        session = known.session
        if session.backlog + len(data) > self.backlog_max:
            session.is_refused = True
            return False
        net = self.door.net
        net.trace.add(net.loop.now, self.identity.name, f"> {session.target.identity.name}",
                      f"{PeerKind(kind).name} {len(data)}")
        session.carry(kind, data)
        net.notify("send", self.door.host)
        return True

    def arrived(self, session: SimSession, kind: int, data: bytes) -> None:
        """Handle a message for this node."""
        if self._runs:
            self._hand_over(session.source.identity.node_id, kind, data, session)

    def _hand_over(
        self, sender: NodeId, kind: int, data: bytes, session: SimSession | None
    ) -> None:
        if kind == PeerKind.CALL:
            def answer(buffers: list[Buffer]) -> None:
                if session is None:
                    self.send(sender, PeerKind.REPLY, buffers)
                else:
                    session.reply(b"".join(buffers))

            self._calls.on_call(sender, memoryview(data), answer)
        elif kind == PeerKind.REPLY:
            self._calls.on_reply(sender, memoryview(data))
        elif kind in self._handlers:
            lend(data, lambda body: self._handlers[kind](sender, body))

    def replied(self, session: SimSession, data: bytes) -> None:
        """Handle the reply to a call."""
        if session.is_live:
            self._calls.on_reply(session.target.identity.node_id, memoryview(data))

    def backlog(self, to: NodeId) -> int:
        known = self._known.get(to)
        return known.session.backlog if known is not None and known.session is not None else 0

    def is_up(self, node_id: NodeId) -> bool:
        if node_id == self.identity.node_id:
            return True
        known = self._known.get(node_id)
        return known is not None and known.session is not None and known.session.is_live

    def watch(self, listener: PeerListener) -> None:
        self._listeners.append(listener)

    def serve(self, kind: int, handler: CallHandler) -> None:
        self._calls.serve(kind, handler)

    async def call(
        self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float | None = None
    ) -> bytes:
        return await self._calls.call(to, kind, body, timeout_seconds=(
            self.config.call_seconds_max if timeout_seconds is None else timeout_seconds))

    def later(self, callback: Callable[[], object]) -> None:
        """Call `callback` on a later turn, in this node's process (runtime.P4)."""
        self.door.net.loop.call_soon(callback, context=self.door.process.context)

    # -- connections

    def know(self, node_id: NodeId, host: str, port: int) -> None:
        if node_id == self.identity.node_id:
            return
        address = Address(host, port)
        known = self._known.get(node_id)
        if known is not None and known.address == address:
            return
        if known is not None and known.session is not None:
            known.session.end()
        self._known[node_id] = _Known(address)
        self._dial_soon(node_id)

    def meet(self, host: str, port: int) -> None:
        address = Address(host, port)
        if address in self._met or any(each.address == address for each in self._known.values()):
            return
        self._met[address] = DIAL_SECONDS
        if self._runs:
            self._meet_soon(address)

    def forget(self, node_id: NodeId) -> None:
        known = self._known.pop(node_id, None)
        if known is not None and known.session is not None:
            known.session.end()

    def known(self) -> Mapping[NodeId, Address]:
        return {node_id: known.address for node_id, known in self._known.items()}

    async def start(self) -> None:
        listener = self.config.listener
        net = self.door.net
        if listener is not None:
            assert listener.host == self.door.host, (listener, self.door.host)
            self.address = Address(listener.host, listener.port or net.free_port())
            net.peers_at[self.address.host, self.address.port] = self
        self._runs = True
        for node_id in list(self._known):
            self._dial_soon(node_id)
        for address in list(self._met):
            self._meet_soon(address)

    async def stop(self) -> None:
        self._runs = False
        self.unlisten()
        self.reset()
        self._calls.close()
        await asyncio.sleep(0)

    def unlisten(self) -> None:
        at = self.door.net.peers_at
        for address in [each for each, peers in at.items() if peers is self]:
            del at[address]

    def reset(self) -> None:
        """End every session to and from this node."""
        for known in self._known.values():
            if known.session is not None:
                known.session.end()
        for session in list(self.accepted):
            session.end()
        self.accepted.clear()

    def _meet_soon(self, address: Address) -> None:
        self.door.net.loop.call_later(
            self._met[address], self._meet, address, context=self.door.process.context)

    def _meet(self, address: Address) -> None:
        other = self._reachable(address)
        if other is None:
            self._met[address] = min(DIAL_SECONDS_MAX, 2 * self._met[address])
            self._meet_soon(address)
            return
        del self._met[address]
        if other is not self:
            self.know(other.identity.node_id, address.host, address.port)

    def _reachable(self, address: Address) -> "SimPeers | None":
        """The node that would accept a connection to `address`; a paused process does not."""
        net = self.door.net
        other = net.peers_at.get((address.host, address.port))
        if other is None or not net.is_open(self.door.host, other.door.host):
            return None
        if other.door.process.life is not Life.RUNNING:
            return None
        ours, theirs = self.identity.cluster_id, other.identity.cluster_id
        if (ours and theirs and ours != theirs) or (
                self.config.secret != other.config.secret):
            return None  # the handshake would fail
        return other

    def _dial_soon(self, node_id: NodeId) -> None:
        known = self._known.get(node_id)
        if known is None or known.dials or not self._runs:
            return
        known.dials = True
        wait = known.wait * (0.5 + self.rng.random())
        known.wait = min(DIAL_SECONDS_MAX, 2 * known.wait)
        self.door.net.loop.call_later(wait, self._dial, node_id, known,
                                      context=self.door.process.context)

    def _dial(self, node_id: NodeId, known: _Known) -> None:
        known.dials = False
        if self._known.get(node_id) is not known or not self._runs:
            return
        other = self._reachable(known.address)
        if other is None or other.identity.node_id != node_id:
            self._dial_soon(node_id)
            return
        known.wait = DIAL_SECONDS
        known.session = session = SimSession(self, other)
        other.accepted[session] = None
        if self.has_hung_up(node_id, other.identity.incarnation):
            del self._hung_up[node_id]
        net = self.door.net
        net.trace.add(net.loop.now, self.identity.name, "up", other.identity.name)
        self._watch_cut(session)
        other.later(lambda: other.greeted(self.identity.node_id, self.address))
        for listener in self._listeners:
            listener.up(node_id)

    def greeted(self, node_id: NodeId, address: Address | None) -> None:
        """A node has connected, and sent its address."""
        known = self._known.get(node_id)
        if address is not None and self._runs and (known is None or known.session is None):
            self.know(node_id, address.host, address.port)

    def _watch_cut(self, session: SimSession) -> None:
        """End a session whose link stays cut, or whose target's process has ended (sim.E3)."""
        net = self.door.net
        silent_since: list[float] = []

        def look() -> None:
            if not session.is_live:
                return
            is_open = net.is_open(self.door.host, session.target.door.host)
            if is_open and session.target.door.process.life is not Life.DEAD:
                silent_since.clear()
            elif not silent_since:
                silent_since.append(net.loop.now)
            elif net.loop.now - silent_since[0] >= SILENCE_SECONDS:
                session.end()
                return
            net.loop.call_later(SILENCE_SECONDS / 4, look, context=self.door.process.context)

        look()

    def lost(self, session: SimSession) -> None:
        """A session of this node has ended."""
        session.target.accepted.pop(session, None)
        node_id = session.target.identity.node_id
        known = self._known.get(node_id)
        net = self.door.net
        net.trace.add(net.loop.now, self.identity.name, "down", session.target.identity.name)
        if known is not None and known.session is session:
            known.session = None
        self._hung_up[node_id] = session.target.identity.incarnation  # or so it seems
        self._calls.lost(node_id)
        for listener in self._listeners:
            listener.down(node_id)
        self._dial_soon(node_id)

    def drained(self, session: SimSession) -> None:
        if session.is_live:
            for listener in self._listeners:
                listener.drained(session.target.identity.node_id)

    def died(self, *, is_silent: bool) -> None:
        """The process has ended; unless `is_silent`, others see their connections reset."""
        self.unlisten()
        for session in list(self.accepted):
            if not is_silent:
                session.end()
        self.accepted.clear()
