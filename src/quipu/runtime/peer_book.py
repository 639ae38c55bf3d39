"""The address book: which other nodes there are, where they are, and the way to each.

A node that is known and not connected is dialled again and again, ever more slowly, up to
RETRY_SECONDS_MAX; at once when it shows up itself or moves to another address.
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
from quipu.runtime.peer_hello import MetBefore
from quipu.runtime.peer_link import Link
from quipu.runtime.peer_net import Identity
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0
PEERS_MAX: Final = 1_000
TROUBLES_MAX: Final = 10  # different ones of one peer that are counted

_log = logging.getLogger(__name__)

Dial = Callable[[Address, NodeId | None], Awaitable[Identity]]  # raises QuipuError


class Troubles:
    """Tells of what goes wrong again and again: the 1st time, the 2nd, 4th, 8th, ..."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def tell(self, about: object, what: str) -> None:
        """Log `what` is wrong with `about`, unless that was told often enough."""
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

    def is_over(self, about: object) -> None:
        """`about` works: the next trouble is news."""
        self._counts.pop(str(about), None)


@dataclass(slots=True, eq=False)
class Peer:
    """A row of the book."""

    node_id: NodeId
    address: Address
    link: Link | None = None  # the one that was dialled, while it is open
    keeper: "asyncio.Task[None] | None" = None
    news: asyncio.Event = field(default_factory=asyncio.Event)  # time to look at it again

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.address}"


class AddressBook:
    """Every other node that is known."""

    def __init__(self, own_id: NodeId, dial: Dial, rng: Rng, troubles: Troubles) -> None:
        self._own_id = own_id
        self._dial = dial
        self._rng = rng
        self._troubles = troubles
        self._met: dict[Address, NodeId] = {}  # who answered at an address that `meet` was given
        self._meeting: set[Address] = set()
        self._is_running = False
        self.peers: dict[NodeId, Peer] = {}

    def start(self) -> None:
        """Begin to dial."""
        self._is_running = True
        for peer in self.peers.values():
            self._keep(peer)

    def stop(self) -> None:
        """Dial no more."""
        self._is_running = False
        for peer in self.peers.values():
            if peer.keeper is not None:
                peer.keeper.cancel()

    def know(self, node_id: NodeId, address: Address) -> Peer | None:
        """The row of a node, written or corrected; None if the node is left alone."""
        if node_id == self._own_id:
            return None
        peer = self.peers.get(node_id)
        if peer is None:
            if len(self.peers) >= PEERS_MAX:
                self._troubles.tell(address, f"is left alone: more than {PEERS_MAX} nodes")
                return None
            peer = self.peers[node_id] = Peer(node_id, address)
        elif peer.address != address:
            peer.address = address
            peer.news.set()
        self._keep(peer)
        return peer

    def remove(self, node_id: NodeId) -> None:
        """Dial a node no more."""
        peer = self.peers.pop(node_id, None)
        if peer is not None and peer.keeper is not None:
            peer.keeper.cancel()

    def meet(self, address: Address) -> None:
        """Dial an address that is nobody's yet."""
        if not self._is_running or address in self._meeting or len(self._meeting) >= PEERS_MAX:
            return
        who = self._met.get(address)
        if who == self._own_id or who in self.peers:
            return
        if all(peer.address != address for peer in self.peers.values()):
            self._meeting.add(address)
            spawn(self._meet(address), f"meet {address}")

    async def _meet(self, address: Address) -> None:
        try:
            who = (await self._dial(address, None)).node_id
        except MetBefore as error:
            who = error.node_id
        except QuipuError as error:
            self._troubles.tell(address, str(error))
            return
        finally:
            self._meeting.discard(address)
        self._troubles.is_over(address)
        if len(self._met) >= PEERS_MAX:
            self._met.clear()
        self._met[address] = who

    def _keep(self, peer: Peer) -> None:
        if self._is_running and peer.keeper is None:
            peer.keeper = spawn(self._keep_up(peer), f"way to {peer}")

    async def _keep_up(self, peer: Peer) -> None:
        """Dial whenever there is no link."""
        loop = asyncio.get_running_loop()
        delay = RETRY_SECONDS_MIN
        while True:
            started = loop.time()
            if peer.link is None:
                try:
                    await self._dial(peer.address, peer.node_id)
                except QuipuError as error:
                    if peer.link is None:  # else it was met in another way meanwhile
                        self._troubles.tell(peer, str(error))
            while peer.link is not None:
                peer.news.clear()
                await peer.news.wait()
            if loop.time() - started > RETRY_SECONDS_MAX:
                delay = RETRY_SECONDS_MIN  # it was up for a while
            peer.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay * (0.5 + self._rng.random())):
                    await peer.news.wait()
            delay = min(2 * delay, RETRY_SECONDS_MAX)
