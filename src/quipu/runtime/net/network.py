"""`Net`: makes all servers and connections of a node.

`RealNet` makes real ones; the simulator passes in its own.
"""

import socket
from collections.abc import Callable
from typing import Final, Protocol

from quipu.runtime.net.connection import Buffer
from quipu.runtime.net.frame_handler import FrameHandler
from quipu.runtime.net.limits import BY_NODE, NetLimits, NetStats
from quipu.runtime.net.server import FrameServer
from quipu.runtime.peers.peer_net import Identity, PeerConfig, PeerNet
from quipu.runtime.peers.peers import TcpPeers
from quipu.runtime.rng import Rng

EVERY_HOST: Final = "0.0.0.0"  # noqa: S104 all interfaces, for listeners without a host


class FrameConnection(Protocol):
    """A client's connection, as its handler sees it."""

    listener: str  # name of the listener that the client connected to
    peer_host: str
    peer_port: int

    closed: bool

    @property
    def peer_name(self) -> str | None:
        """The authenticated name of the client; None without authentication."""
        ...

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

    def bind(self, host: str, port: int, *, listener: str = "") -> tuple[str, int]: ...

    def serve(self) -> None: ...

    def stop_accepting(self) -> None: ...

    async def close(self, *, grace_seconds: float = 5.0) -> None: ...


class Net(Protocol):
    """Makes the servers that clients and other nodes connect to."""

    def frame_server(self, accept: Accept, limits: NetLimits) -> FrameListener:
        """A server for Kafka clients."""
        ...

    def peers(self, identity: Identity, config: PeerConfig, rng: Rng) -> PeerNet:
        """The connections to the other nodes of the cluster."""
        ...


def machine_name() -> str:
    """The name by which other machines may reach this one, as the system knows it."""
    return socket.getfqdn()


class RealNet:
    """Makes real TCP servers and connections."""

    def frame_server(self, accept: Accept, limits: NetLimits) -> FrameListener:
        return FrameServer(accept=accept, limits=limits)

    def peers(self, identity: Identity, config: PeerConfig, rng: Rng) -> PeerNet:
        return TcpPeers(identity, config, rng)
