"""A simulated network: hosts, the directed links between them, and their faults.

    Weather   the quality of links: delay, loss, duplicates, reordering, bandwidth
    SimLink   one direction between two hosts
    SimNet    all links and listeners
    Door      the `Net` of one process

A link carries two kinds of traffic.  A `datagram` may be lost, duplicated or overtaken; messages
between nodes are datagrams, which is worse than the TCP that they really use.  A `stream` is TCP as
clients see it: in order and without loss; it stops while the link is cut and continues afterwards.

Invariants
    sim.W1  nothing arrives over a link while it is cut
    sim.W2  a stream arrives in order
"""

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quipu.runtime.net.limits import NetLimits
from quipu.runtime.net.network import Accept
from quipu.runtime.peers.peer_net import Identity, PeerConfig
from quipu.runtime.rng import Rng
from quipu.sim.dice import Dice
from quipu.sim.loop import Process, SimLoop
from quipu.sim.trace import Trace

if TYPE_CHECKING:  # they point back to the network that they are in
    from quipu.sim.twins.frames import SimFrameServer
    from quipu.sim.twins.peers import SimPeers

FIRST_FREE_PORT: Final = 40_000

Deliver = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """The quality of a link."""

    delay_min: float = 0.0002  # seconds
    delay_max: float = 0.002
    loss: float = 0.0  # probabilities, per message
    duplicate: float = 0.0
    reorder: float = 0.0
    late_max: float = 0.3  # largest additional delay of overtaken and duplicated messages
    bytes_per_second: float = 50e6


CALM: Final = Weather()


class SimLink:
    """One direction between two hosts."""

    def __init__(self, net: "SimNet", source: str, target: str) -> None:
        self.weather = net.weather
        self.is_cut = False
        self._net = net
        self._name = f"{source}>{target}"
        self._dice = net.dice.fork(f"link/{self._name}")
        self._free_at = 0.0  # when all earlier messages have been sent
        self._last_arrival = 0.0  # of a stream (sim.W2)
        self._held: list[tuple[Deliver, Context | None]] = []  # stream data that waits for a cut
        self._released = 0  # pieces of a stream that wait for a paused host

    def datagram(self, size: int, deliver: Deliver, context: Context | None) -> None:
        """Deliver one message, or lose it."""
        dice, weather = self._dice, self.weather
        if self.is_cut or (weather.loss and dice.flip(weather.loss)):
            return
        self._at(self._arrival(size), deliver, context)
        if weather.duplicate and dice.flip(weather.duplicate):
            self._at(self._arrival(size) + dice.between(0, weather.late_max), deliver, context)

    def _arrival(self, size: int) -> float:
        dice, weather = self._dice, self.weather
        now = self._net.loop.now
        self._free_at = max(self._free_at, now) + size / weather.bytes_per_second
        arrival = self._free_at + dice.between(weather.delay_min, weather.delay_max)
        if weather.reorder and dice.flip(weather.reorder):
            return arrival + dice.between(0, weather.late_max)
        self._last_arrival = arrival = max(arrival, self._last_arrival)
        return arrival

    def _at(self, arrival: float, deliver: Deliver, context: Context | None) -> None:
        def arrive() -> None:
            if not self.is_cut:  # sim.W1
                deliver()

        self._net.at(arrival, arrive, context)

    def stream(self, size: int, deliver: Deliver, context: Context | None) -> None:
        """Deliver a piece of a stream; it waits while the link is cut (sim.W2)."""
        now, weather = self._net.loop.now, self.weather
        self._free_at = max(self._free_at, now) + size / weather.bytes_per_second
        arrival = self._free_at + self._dice.between(weather.delay_min, weather.delay_max)
        self._last_arrival = arrival = max(arrival, self._last_arrival)

        def arrive() -> None:
            if self.is_cut or self._held:
                self._held.append((deliver, context))
            elif self._released:
                self._release(deliver, context)  # after the earlier pieces (sim.W2)
            else:
                deliver()

        self._net.at(arrival, arrive, context)

    def _release(self, deliver: Deliver, context: Context | None) -> None:
        def arrive() -> None:
            self._released -= 1
            deliver()

        self._released += 1
        self._net.at(self._net.loop.now, arrive, context)

    def cut(self) -> None:
        self.is_cut = True

    def heal(self) -> None:
        self.is_cut = False
        held, self._held = self._held, []
        for deliver, context in held:
            self._release(deliver, context)


@dataclass(slots=True, eq=False)
class SimNet:
    """All hosts and the links between them."""

    loop: SimLoop
    dice: Dice
    trace: Trace
    weather: Weather = CALM
    climate: Weather = CALM  # the weather between storms
    backlog_max: int = 1 << 20  # unsent bytes per node; less than in reality
    notify: Callable[[str, str], None] = lambda _what, _name: None  # called for sent messages
    clients_at: "dict[tuple[str, int], SimFrameServer]" = field(default_factory=dict)
    peers_at: "dict[tuple[str, int], SimPeers]" = field(default_factory=dict)
    _links: dict[tuple[str, str], SimLink] = field(default_factory=dict)
    _next_port: int = FIRST_FREE_PORT

    def at(self, when: float, deliver: Deliver, context: Context | None) -> None:
        """Call `deliver` at a time; with a context, in the process that it belongs to."""
        self.loop.universal_at(when, deliver, context=context)

    def link(self, source: str, target: str) -> SimLink:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = SimLink(self, source, target)
        return link

    def is_open(self, source: str, target: str) -> bool:
        """Whether a connection can be made, which needs both directions."""
        return not (self.link(source, target).is_cut or self.link(target, source).is_cut)

    def cut(self, source: str, target: str) -> None:
        """Cut one direction; datagrams that have not arrived are lost."""
        self.trace.add(self.loop.now, "net", "cut", f"{source} > {target}")
        self.link(source, target).cut()

    def mend(self, source: str, target: str) -> None:
        """Undo the cut of one direction."""
        self.trace.add(self.loop.now, "net", "mend", f"{source} > {target}")
        self.link(source, target).heal()

    def hosts(self) -> list[str]:
        """Every host that has sent or received anything."""
        return sorted({host for pair in self._links for host in pair})

    def heal(self) -> None:
        """Undo all cuts."""
        self.trace.add(self.loop.now, "net", "heal")
        for link in self._links.values():
            link.heal()

    def set_weather(self, weather: Weather) -> None:
        """Set the weather of all links, present and future."""
        self.weather = weather
        for link in self._links.values():
            link.weather = weather

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def door(self, process: Process, host: str) -> "Door":
        """The `Net` of a process."""
        return Door(self, process, host)


@dataclass(frozen=True, slots=True)
class Door:
    """The `runtime.net.network.Net` of one process."""

    net: SimNet
    process: Process
    host: str

    def frame_server(self, accept: Accept, limits: NetLimits) -> "SimFrameServer":
        from quipu.sim.twins.frames import SimFrameServer  # noqa: PLC0415 it points back here

        return SimFrameServer(self, accept, limits)

    def peers(self, identity: Identity, config: PeerConfig, rng: Rng) -> "SimPeers":
        from quipu.sim.twins.peers import SimPeers  # noqa: PLC0415 it points back here

        return SimPeers(self, identity, config, rng)
