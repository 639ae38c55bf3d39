"""A node in the test's loop that is the controller of brokers in several racks.

    async with RackedNode(tmp_path, "r1") as node:
        await node.join(2, "r2")
        await node.leave(2)
        numbers = await node.scrape()

The other brokers are registrations only: they come and go by the requests that real ones send, and
serve nothing.
"""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from prometheus_client.parser import text_string_to_metric_families

from quipu.broker.cluster.requests import BrokerRegistrationRequest, ControlledShutdownRequest
from quipu.controller.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from quipu.controller.resources import ResourceType
from quipu.model.errors import Code
from quipu.model.ids import NodeId
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.harness.here import NodeHere

SECONDS_MAX = 20.0

Labels = frozenset[tuple[str, str]]
Scrape = dict[str, dict[Labels, float]]  # by name of metric


class RackedNode(NodeHere):
    """Node 1, the controller, in a rack of its own choice."""

    def __init__(self, path: Path, rack: str | None = "r1", **overrides: str) -> None:
        racked = {} if rack is None else {"broker_rack": rack}
        super().__init__(path, **{
            "diskless_storage_system_enable": "true", "diskless_flush_interval_ms": "5",
            **racked, **overrides})
        self._lives = 0

    async def join(self, node_id: int, rack: str | None) -> None:
        """A broker starts in a rack."""
        self._lives += 1
        await self.node.broker.cluster._liveness.register(
            NodeId(node_id), BrokerRegistrationRequest(
                node_id=node_id, name=f"x-{node_id}", host="broker.test", port=9092, rack=rack,
                incarnation=UUID(int=self._lives)))

    async def leave(self, node_id: int) -> None:
        """A broker stops."""
        broker = self.node.broker.cluster.state.brokers[NodeId(node_id)]
        await self.node.broker.cluster._liveness.leave(
            NodeId(node_id), ControlledShutdownRequest(
                node_id=node_id, broker_epoch=broker.epoch, incarnation=broker.incarnation))

    async def create_diskless(self, name: str, partitions: int = 1) -> None:
        await self.create(name, partitions, diskless_enable="true")

    async def set_of_brokers(self, **settings: str) -> None:
        """Set dynamic settings of all brokers."""
        changes = [ConfigChange(key.replace("_", "."), ConfigOperation.SET, each)
                   for key, each in settings.items()]
        (result,) = await self.node.broker.cluster.controller.alter_configs(
            [ConfigAlteration(ConfigResource(ResourceType.BROKER, ""), changes)])
        assert result.code is Code.NONE, result.message

    async def move(self, topic: str, partition: int, *replicas: int) -> None:
        """An operator moves a partition, with the standard request."""
        request = AlterPartitionReassignmentsRequest(timeout=10_000, topics=[ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(
                partition_index=partition, replicas=list(replicas))])])
        async with self.connect() as peer:
            response = await peer.ask(request, 0)
        part = response.responses[0].partitions[0]
        assert (response.error_code, part.error_code) == (Code.NONE, Code.NONE), response

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a page of the HTTP port, made just now."""
        assert self.node._http is not None
        self.node._http._pages.clear()  # one that was made a moment ago is used again
        reader, writer = await asyncio.open_connection(*self.node._http.address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(SECONDS_MAX):
            data = await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    async def page(self, path: str) -> Any:
        """The JSON of a page."""
        status, body = await self.get(path)
        assert status == 200, body
        return json.loads(body)

    async def scrape(self) -> Scrape:
        """All metrics."""
        status, body = await self.get("/metrics")
        assert status == 200, body
        return parsed(body.decode())


def parsed(text: str) -> Scrape:
    """Metrics as a Prometheus server takes them in."""
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series, f"twice: {sample}"
            series[labels] = sample.value
    return found


def value(scrape: Scrape, name: str, **labels: object) -> float:
    """One number."""
    return scrape[name][frozenset((key, str(each)) for key, each in labels.items())]
