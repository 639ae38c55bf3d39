"""Nodes' ways to each other in a simulated network: the twin of `runtime.peers.Peers`.

Each node keeps a session to every node that it knows, dialled again when it was lost.  Messages
travel as datagrams (sim/net.py), so they can be lost, doubled and overtaken where the weather says
so; that is more than the contract of `PeerNet` allows, and what the cores are built to bear.

Invariants
    E1  a message arrives only while the session lives that it was sent in
    E2  who sent and who receives are processes: nothing leaves or reaches a dead one
    E3  a session ends when a process ends, when it is reset, and when a cut lasts
"""

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from quipu.model.settings_types import Address
from quipu.runtime.connection import Buffer
from quipu.runtime.peer_calls import Calls
from quipu.runtime.peer_net import (
    CallHandler,
    Handler,
    Identity,
    PeerKind,
    PeerListener,
    PeerStats,
)
from quipu.runtime.rng import Rng
from quipu.sim.frames import lend
from quipu.sim.loop import Life

if TYPE_CHECKING:
    from quipu.sim.net import Door

DIAL_SECONDS: Final = 0.004  # before the first attempt, and between the next ones up to ...
DIAL_SECONDS_MAX: Final = 0.8
LOST_SECONDS: Final = 0.5  # then what did not arrive no longer counts as under way
SILENCE_SECONDS: Final = 3.0  # a cut that lasts so long ends a session (E3)
FAR_KINDS: Final = frozenset({PeerKind.RAFT, PeerKind.CHAIN})  # whose doubles are borne


@dataclass(slots=True, eq=False)
class Session:
    """One connection from a node to another."""

    source: "SimPeers"
    target: "SimPeers"
    is_live: bool = True
    backlog: int = 0
    is_refused: bool = False  # somebody waits for `drained`

    def carry(self, kind: int, data: bytes) -> None:
        """On its way; E1 and E2 are looked after when it arrives."""
        net = self.source.door.net
        link = net.link(self.source.door.host, self.target.door.host)
        self.backlog += len(data)
        left = [len(data)]  # of the backlog; a doubled message leaves it once

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
        """So many bytes are no longer under way."""
        self.backlog -= size
        if self.is_live and self.is_refused and self.backlog * 2 < self.source.backlog_max:
            self.is_refused = False
            self.source.later(lambda: self.source.drained(self))

    def reply(self, data: bytes) -> None:
        """Back to where a call came from, on the same connection."""
        net = self.source.door.net
        link = net.link(self.target.door.host, self.source.door.host)
        link.stream(len(data), lambda: self.source.replied(self, data),
                    self.source.door.process.context)

    def end(self) -> None:
        """Both sides notice, each in its time."""
        if self.is_live:
            self.is_live = False
            self.source.later(lambda: self.source.lost(self))


@dataclass(slots=True)
class _Known:
    address: Address
    session: Session | None = None
    dials: bool = False
    wait: float = DIAL_SECONDS


@dataclass(slots=True, eq=False)
class SimPeers:
    """See `PeerNet`."""

    door: "Door"
    identity: Identity
    settings: BrokerSettings
    rng: Rng
    address: Address | None = None
    members: AbstractSet[NodeId] = frozenset()
    stats: PeerStats = field(default_factory=PeerStats)
    accepted: dict[Session, None] = field(default_factory=dict)
    _handlers: dict[int, Handler] = field(default_factory=dict)
    _listeners: list[PeerListener] = field(default_factory=list)
    _known: dict[NodeId, _Known] = field(default_factory=dict)
    _met: dict[Address, float] = field(default_factory=dict)
    _hung_up: dict[NodeId, UUID] = field(default_factory=dict)
    _calls: Calls = field(init=False)
    _runs: bool = False

    def __post_init__(self) -> None:
        self._calls = Calls(self.send)
        assert self.door.process.life is Life.RUNNING

    @property
    def backlog_max(self) -> int:
        return self.door.net.backlog_max

    def has_hung_up(self, node_id: NodeId, incarnation: UUID) -> bool:
        """See `PeerNet`; a cut that was noticed looks the same here, which must do no harm."""
        return self._hung_up.get(node_id) == incarnation

    # -- messages

    def on(self, kind: int, handler: Handler) -> None:
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

    def arrived(self, session: Session, kind: int, data: bytes) -> None:
        """A message for this node."""
        if self._runs:
            self._hand_over(session.source.identity.node_id, kind, data, session)

    def _hand_over(self, sender: NodeId, kind: int, data: bytes, session: Session | None) -> None:
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

    def replied(self, session: Session, data: bytes) -> None:
        """The answer to a call."""
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

    async def call(self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float) -> bytes:
        return await self._calls.call(to, kind, body, timeout_seconds=timeout_seconds)

    def later(self, callback: Callable[[], object]) -> None:
        """On a later turn, in this node's process (P4)."""
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
        listener = self.settings.peer_listener
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
        """End every session, to and from here."""
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
        """Who would answer there; a process that is paused does not."""
        net = self.door.net
        other = net.peers_at.get((address.host, address.port))
        if other is None or not net.is_open(self.door.host, other.door.host):
            return None
        if other.door.process.life is not Life.RUNNING:
            return None
        ours, theirs = self.identity.cluster_id, other.identity.cluster_id
        if (ours and theirs and ours != theirs) or (
                self.settings.peer_secret != other.settings.peer_secret):
            return None  # it would be refused
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
        known.session = session = Session(self, other)
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
        """Somebody has connected, and said where it is."""
        known = self._known.get(node_id)
        if address is not None and self._runs and (known is None or known.session is None):
            self.know(node_id, address.host, address.port)

    def _watch_cut(self, session: Session) -> None:
        """End a session whose link stays cut, and one to a machine that is gone (E3)."""
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

    def lost(self, session: Session) -> None:
        """A session of ours has ended."""
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

    def drained(self, session: Session) -> None:
        if session.is_live:
            for listener in self._listeners:
                listener.drained(session.target.identity.node_id)

    def died(self, *, is_silent: bool) -> None:
        """The process is gone; if its machine is not, others see their connections reset."""
        self.unlisten()
        for session in list(self.accepted):
            if not is_silent:
                session.end()
        self.accepted.clear()
