"""The real `PeerNet`: a TCP connection to every other node, kept up for as long as it is known."""

from collections.abc import Mapping

from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from quipu.model.settings_types import Address
from quipu.runtime.connection import Buffer
from quipu.runtime.peer_net import CallHandler, Handler, Identity, PeerListener
from quipu.runtime.rng import Rng


class Peers:
    """See `PeerNet`."""

    def __init__(self, identity: Identity, settings: BrokerSettings, rng: Rng) -> None:
        self.identity = identity
        self._settings = settings
        self._rng = rng

    @property
    def address(self) -> Address | None:
        raise NotImplementedError

    def on(self, kind: int, handler: Handler) -> None:
        raise NotImplementedError

    def send(self, to: NodeId, kind: int, buffers: list[Buffer]) -> bool:
        raise NotImplementedError

    def backlog(self, to: NodeId) -> int:
        raise NotImplementedError

    def is_up(self, node_id: NodeId) -> bool:
        raise NotImplementedError

    def watch(self, listener: PeerListener) -> None:
        raise NotImplementedError

    def serve(self, kind: int, handler: CallHandler) -> None:
        raise NotImplementedError

    async def call(self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float) -> bytes:
        raise NotImplementedError

    def know(self, node_id: NodeId, host: str, port: int) -> None:
        raise NotImplementedError

    def meet(self, host: str, port: int) -> None:
        raise NotImplementedError

    def forget(self, node_id: NodeId) -> None:
        raise NotImplementedError

    def known(self) -> Mapping[NodeId, Address]:
        raise NotImplementedError

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError
