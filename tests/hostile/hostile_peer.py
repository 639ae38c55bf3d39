"""A peer that says what it likes to the nodes of a real cluster: any id, any message, any number.

    with HostilePeer(node_id=66, secret=SECRET) as peer:
        peer.meet("127.0.0.1", port)          # as a node would: hello, proof, tags
        peer.send(1, PeerKind.RAFT, body)     # and then anything

It is a real `TcpPeers`, so what it says arrives as what a node says would.  Without the secret it
never gets so far; see the attacks with raw sockets for those.
"""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from quipu.broker.listening import peer_config
from quipu.model.ids import NodeId
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.peers.peer_net import Identity
from quipu.runtime.peers.peers import TcpPeers
from quipu.runtime.rng import SystemRng

UP_SECONDS_MAX = 20.0


class HostilePeer:
    """Runs in a thread with a loop of its own."""

    def __init__(self, *, node_id: int, secret: str, name: str = "evil-0",
                 cluster_id: str = "") -> None:
        self.node_id = node_id
        settings = broker_settings(from_assignments([
            "peer.listener=127.0.0.1:0", f"peer.secret={secret}"]))
        self._loop = asyncio.new_event_loop()
        identity = Identity(NodeId(node_id), name, SystemRng().uuid(), cluster_id)
        self._peers = TcpPeers(identity, peer_config(settings), SystemRng())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.heard = 0  # messages that nodes have sent to it
        for kind in (1, 2):
            self._peers.on(kind, self._hear)

    def _hear(self, sender: NodeId, body: memoryview) -> None:
        del sender, body
        self.heard += 1

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._peers.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._peers.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def meet(self, host: str, port: int) -> None:
        self._call(lambda: self._peers.meet(host, port))

    def connect(self, node_id: int, address: tuple[str, int]) -> None:
        """Be connected to a node, both ways."""
        self._call(lambda: self._peers.know(NodeId(node_id), *address))
        self.await_up(node_id)

    def await_up(self, node_id: int) -> None:
        async def wait() -> None:
            async with asyncio.timeout(UP_SECONDS_MAX):
                while not self._peers.is_up(NodeId(node_id)):
                    await asyncio.sleep(0.01)

        self._do(wait())

    def is_up(self, node_id: int) -> bool:
        up: bool = self._call(lambda: self._peers.is_up(NodeId(node_id)))
        return up

    def send(self, to: int, kind: int, body: bytes) -> bool:
        sent: bool = self._call(lambda: self._peers.send(NodeId(to), kind, [body]))
        return sent

    def ask(self, to: int, kind: int, body: bytes) -> bytes:
        """Make a call, as nodes do; raises the error of the reply."""
        answer: bytes = self._do(
            self._peers.call(NodeId(to), kind, body, timeout_seconds=10))
        return answer

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(UP_SECONDS_MAX + 5)

    def _call(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return self._do(run())
