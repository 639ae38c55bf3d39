"""A node inside the test's own loop, and a peer that speaks frames with it.

    @looped
    async def test_x(tmp_path: Path) -> None:
        async with NodeHere(tmp_path) as node, node.connect() as peer:
            answer = await peer.ask(MetadataRequest(), 12)

For tests of responses; tests of crashes use a process (node.py).
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quipu.broker.node import Node
from quipu.controller.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from quipu.controller.resources import ResourceType
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.model.settings_types import Address
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.schema import Request, Response

ANSWER_SECONDS_MAX = 20.0


def settings_here(path: Path, **overrides: str) -> BrokerSettings:
    """A node's settings on free ports; `overrides` with _ for dots."""
    pairs = [f"{name.replace('_', '.')}={value}" for name, value in overrides.items()]
    return broker_settings(from_assignments([
        "listeners=127.0.0.1:0", "metrics.listener=127.0.0.1:0", f"log.dirs={path / 'data'}",
        *pairs]))


class NodeHere:
    """A node in this loop."""

    def __init__(self, path: Path, **overrides: str) -> None:
        self.node = Node(settings_here(path, **overrides))
        self.address = Address("", 0)

    async def __aenter__(self) -> Self:
        self.address = Address(*await self.node.start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.node.stop()

    async def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """A topic; gives its id."""
        overrides = [(key.replace("_", "."), value) for key, value in configs.items()]
        await self.node.broker.cluster.controller.create_topics(
            [NewTopic(name, partitions, configs=overrides)])
        return self.node.broker.cluster.state.topics[name].topic_id.bytes

    async def alter(self, name: str, **configs: str) -> None:
        """Set settings of a topic."""
        changes = [ConfigChange(key.replace("_", "."), ConfigOperation.SET, value)
                   for key, value in configs.items()]
        (result,) = await self.node.broker.cluster.controller.alter_configs(
            [ConfigAlteration(ConfigResource(ResourceType.TOPIC, name), changes)])
        assert result.code is Code.NONE, result.message

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["Peer"]:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class Peer:
    """One connection; several requests may be sent before their responses are read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.client_id: str | None = "peer"
        self._reader = reader
        self._writer = writer
        self._next_id = 1
        self._asked: list[tuple[int, int, int]] = []  # correlation id, api key, version

    async def ask(self, request: Request, version: int) -> Any:
        """Send a request and wait for its response."""
        self.send(request, version)
        return await self.answer()

    def send(self, request: Request, version: int) -> None:
        """Send a request; `answer` returns the responses in the order of the requests."""
        self._asked.append((self._next_id, request.KEY, version))
        self._writer.write(encode_request(
            request, version, correlation_id=self._next_id, client_id=self.client_id))
        self._next_id += 1

    def send_bytes(self, data: bytes) -> None:
        """Anything at all."""
        self._writer.write(data)

    async def answer(self) -> Response:
        """The next response, which must be to the first request without one."""
        want, api_key, version = self._asked.pop(0)
        correlation_id, response = decode_response(
            memoryview(await self.frame()), api_key, version)
        assert correlation_id == want, "answers out of order"
        return response

    async def frame(self) -> bytes:
        """The next frame, without its length."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def closed(self) -> bool:
        """Whether the node closed the connection without sending anything more."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True


def batch_of(*values: bytes, timestamp: int | None = None, **header: int) -> bytearray:
    """One batch with a record for each value, made now."""
    made = int(time.time() * 1000) if timestamp is None else timestamp
    return encode_batch([Record(None, value, (), made) for value in values], **header)


def produce(
    topic: str | bytes, *batches: bytes | bytearray | None, acks: int = 1
) -> ProduceRequest:
    """One batch for each partition, from 0 on; `topic` is a name or an id."""
    from uuid import UUID

    parts = [
        PartitionProduceData(
            index=index, records=None if batch is None else memoryview(bytes(batch)))
        for index, batch in enumerate(batches)
    ]
    data = (TopicProduceData(name=topic, partition_data=parts) if isinstance(topic, str)
            else TopicProduceData(topic_id=UUID(bytes=topic), partition_data=parts))
    return ProduceRequest(acks=acks, timeout=10_000, topic_data=[data])
