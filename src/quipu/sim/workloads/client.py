"""A Kafka client in a simulated world: real request frames over simulated connections.

It knows what any client knows: some bootstrap addresses, and the last Metadata response.  It sends
one request at a time.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from quipu.model.errors import Code
from quipu.sim.twins.frames import ClientLink, SimDisconnected
from quipu.sim.world import World
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from quipu.wire.schema import Request

ASK_SECONDS_MAX: Final = 5.0
METADATA_VERSION: Final = 9


class BrokerAddress(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int


class Client:
    """One client, on a host of its own."""

    def __init__(self, world: World, name: str, bootstrap: Sequence[BrokerAddress]) -> None:
        self.name = name
        self.dice = world.dice.fork(f"client/{name}")
        self.brokers: dict[int, BrokerAddress] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.world = world
        self._bootstrap = list(bootstrap)
        self._links: dict[BrokerAddress, ClientLink] = {}
        self._next_id = 0

    async def ask(
        self, place: BrokerAddress, request: Request, version: int, *,
        seconds: float = ASK_SECONDS_MAX,
    ) -> Any:  # noqa: ANN401 the response that belongs to the request
        """The response; raises `SimDisconnected` if there is none: it may have been carried out."""
        link = await self.link(place)
        number = self.next_id()
        try:
            link.send(encode_request(
                request, version, correlation_id=number, client_id=self.name))
            async with asyncio.timeout(seconds):
                frame = await link.answer()
        except TimeoutError:
            self.drop(place)
            raise SimDisconnected(f"{place.host} did not respond within {seconds:g} s") from None
        except SimDisconnected:
            self.drop(place)
            raise
        correlation_id, response = decode_response(memoryview(frame), request.KEY, version)
        assert correlation_id == number, "responses out of order (Q1)"
        return response

    def next_id(self) -> int:
        """A correlation id that no other request of this client has."""
        self._next_id += 1
        return self._next_id

    async def link(self, place: BrokerAddress) -> ClientLink:
        """The open connection to `place`, or a new one; raises `SimDisconnected`."""
        link = self._links.get(place)
        if link is None or not link.is_open:
            link = ClientLink(self.world.net, self.name)
            await link.connect(place.host, place.port)
            self._links[place] = link
        return link

    def drop(self, place: BrokerAddress) -> None:
        """Close a connection."""
        link = self._links.pop(place, None)
        if link is not None:
            link.close()

    def anyone(self) -> BrokerAddress:
        """A random known broker, or a bootstrap address."""
        return self.dice.choose(list(self.brokers.values()) or self._bootstrap)

    def strangers(self) -> BrokerAddress:
        """A random bootstrap address."""
        return self.dice.choose(self._bootstrap)

    async def refresh(self, topic: str | None = None) -> bool:
        """Request metadata; return whether there was a response."""
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        place = self.anyone() if self.dice.flip(0.7) else self.strangers()
        try:
            answer = await self.ask(
                place, MetadataRequest(topics=topics, allow_auto_topic_creation=False),
                METADATA_VERSION)
        except SimDisconnected:
            await asyncio.sleep(self.dice.between(0.05, 0.3))
            return False
        self.brokers = {
            each.node_id: BrokerAddress(each.host, each.port) for each in answer.brokers}
        for each in answer.topics:
            for partition in each.partitions:
                self.leaders[each.name, partition.partition_index] = (
                    partition.leader_id if partition.error_code == Code.NONE else -1)
        return True

    async def leader(self, topic: str, partition: int) -> BrokerAddress:
        """The leader of a partition; requests metadata until there is one."""
        while True:
            leader = self.leaders.get((topic, partition), -1)
            if leader in self.brokers:
                return self.brokers[leader]
            if await self.refresh(topic):
                await asyncio.sleep(self.dice.between(0.02, 0.2))

    def forget_leader(self, topic: str, partition: int) -> None:
        """Look up the leader again: the known one is not the leader or does not respond."""
        self.leaders.pop((topic, partition), None)
