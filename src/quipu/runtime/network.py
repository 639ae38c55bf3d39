"""The door to the network: everything a node does with sockets is made here.

`RealNet` makes real ones; a simulated world passes in its own.
"""

from collections.abc import Callable
from typing import Protocol

from quipu.model.settings import BrokerSettings
from quipu.runtime.connection import Buffer
from quipu.runtime.frame_handler import FrameHandler
from quipu.runtime.net import FrameServer
from quipu.runtime.net_limits import BY_NODE, NetLimits, NetStats
from quipu.runtime.peer_net import Identity, PeerNet
from quipu.runtime.peers import Peers
from quipu.runtime.rng import Rng


class FrameConnection(Protocol):
    """A client's connection, as its handler sees it."""

    peer_host: str
    peer_port: int

    @property
    def closed(self) -> bool: ...

    @property
    def backlog(self) -> int: ...

    def send(self, buffers: list[Buffer]) -> None: ...

    def pause(self, *, read_rest: bool = False) -> None: ...

    def keep(self, frame: memoryview) -> memoryview: ...

    def resume(self) -> None: ...

    def close(self, *, after_sending: bool = False, why: str = BY_NODE) -> None: ...


Accept = Callable[[FrameConnection], FrameHandler]


class FrameListener(Protocol):
    """A server of framed connections, as a node sees it."""

    stats: NetStats

    def bind(self, host: str, port: int) -> tuple[str, int]: ...

    def serve(self) -> None: ...

    def stop_accepting(self) -> None: ...

    async def close(self, *, grace_seconds: float = 5.0) -> None: ...


class Net(Protocol):
    """Makes what clients and other nodes connect to."""

    def frame_server(self, accept: Accept, limits: NetLimits) -> FrameListener:
        """For Kafka clients."""
        ...

    def peers(self, identity: Identity, settings: BrokerSettings, rng: Rng) -> PeerNet:
        """For the other nodes of the cluster."""
        ...


class RealNet:
    """TCP."""

    def frame_server(self, accept: Accept, limits: NetLimits) -> FrameListener:
        return FrameServer(accept=accept, limits=limits)

    def peers(self, identity: Identity, settings: BrokerSettings, rng: Rng) -> PeerNet:
        return Peers(identity, settings, rng)
