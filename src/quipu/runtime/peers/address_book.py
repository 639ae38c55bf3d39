"""The address book: the other nodes, their addresses, and the link to each.

A known node without a connection is dialled again with growing delays, up to RETRY_SECONDS_MAX; at
once when it connects itself or its address changes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings_types import Address
from quipu.runtime.peers.hello import AlreadyConnected
from quipu.runtime.peers.link import Link
from quipu.runtime.peers.peer_net import Identity
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0
PEERS_MAX: Final = 1_000
TROUBLES_MAX: Final = 10  # different messages about one peer that are counted

_log = logging.getLogger(__name__)

Dial = Callable[[Address, NodeId | None], Awaitable[Identity]]  # raises QuipuError


class Troubles:
    """Logs a problem that repeats the 1st, 2nd, 4th, 8th, ... time."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def report(self, about: object, what: str) -> None:
        """Count the problem `what` of `about`, and log it if its count is a power of two."""
        counts = self._counts.get(str(about))
        if counts is None:
            if len(self._counts) >= PEERS_MAX:
                self._counts.clear()
            counts = self._counts[str(about)] = Counter()
        if len(counts) >= TROUBLES_MAX:
            counts.clear()
        counts[what] += 1
        count = counts[what]
        if count & (count - 1) == 0:
            _log.warning("%s: %s%s", about, what, f" ({count} times)" if count > 2 else "")

    def resolved(self, about: object) -> None:
        """Reset the counts of `about`: its next problem is logged at once."""
        self._counts.pop(str(about), None)


@dataclass(slots=True, eq=False)
class KnownPeer:
    """An entry of the address book."""

    node_id: NodeId
    address: Address
    link: Link | None = None  # the dialled link, while it is open
    dialling: "asyncio.Task[None] | None" = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # wakes up `dialling`

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.address}"


class AddressBook:
    """Every other node that is known."""

    def __init__(self, own_id: NodeId, dial: Dial, rng: Rng, troubles: Troubles) -> None:
        self._own_id = own_id
        self._dial = dial
        self._rng = rng
        self._troubles = troubles
        self._met: dict[Address, NodeId] = {}  # the node found at an address passed to `meet`
        self._meeting: set[Address] = set()
        self._is_running = False
        self.peers: dict[NodeId, KnownPeer] = {}

    def start(self) -> None:
        """Start to dial the known nodes."""
        self._is_running = True
        for peer in self.peers.values():
            self._start_dialling(peer)

    def stop(self) -> None:
        """Stop dialling."""
        self._is_running = False
        for peer in self.peers.values():
            if peer.dialling is not None:
                peer.dialling.cancel()

    def know(self, node_id: NodeId, address: Address) -> KnownPeer | None:
        """Add or correct the entry of a node, and return it; None if there are too many."""
        if node_id == self._own_id:
            return None
        peer = self.peers.get(node_id)
        if peer is None:
            if len(self.peers) >= PEERS_MAX:
                self._troubles.report(address, f"is not dialled: more than {PEERS_MAX} nodes")
                return None
            peer = self.peers[node_id] = KnownPeer(node_id, address)
        elif peer.address != address:
            peer.address = address
            peer.changed.set()
        self._start_dialling(peer)
        return peer

    def remove(self, node_id: NodeId) -> None:
        """Remove a node, and stop dialling it."""
        peer = self.peers.pop(node_id, None)
        if peer is not None and peer.dialling is not None:
            peer.dialling.cancel()

    def meet(self, address: Address) -> None:
        """Dial an address whose node is not known yet."""
        if not self._is_running or address in self._meeting or len(self._meeting) >= PEERS_MAX:
            return
        found = self._met.get(address)
        if found == self._own_id or found in self.peers:
            return
        if all(peer.address != address for peer in self.peers.values()):
            self._meeting.add(address)
            spawn(self._meet(address), f"meet {address}")

    async def _meet(self, address: Address) -> None:
        try:
            found = (await self._dial(address, None)).node_id
        except AlreadyConnected as error:
            found = error.node_id
        except QuipuError as error:
            self._troubles.report(address, str(error))
            return
        finally:
            self._meeting.discard(address)
        self._troubles.resolved(address)
        if len(self._met) >= PEERS_MAX:
            self._met.clear()
        self._met[address] = found

    def _start_dialling(self, peer: KnownPeer) -> None:
        if self._is_running and peer.dialling is None:
            peer.dialling = spawn(self._keep_connected(peer), f"connection to {peer}")

    async def _keep_connected(self, peer: KnownPeer) -> None:
        """Dial the node whenever there is no link to it."""
        loop = asyncio.get_running_loop()
        delay = RETRY_SECONDS_MIN
        while True:
            started = loop.time()
            if peer.link is None:
                try:
                    await self._dial(peer.address, peer.node_id)
                except QuipuError as error:
                    if peer.link is None:  # else `meet` has connected to it meanwhile
                        self._troubles.report(peer, str(error))
            while peer.link is not None:
                peer.changed.clear()
                await peer.changed.wait()
            if loop.time() - started > RETRY_SECONDS_MAX:
                delay = RETRY_SECONDS_MIN  # it was up for a while
            peer.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay * (0.5 + self._rng.random())):
                    await peer.changed.wait()
            delay = min(2 * delay, RETRY_SECONDS_MAX)
