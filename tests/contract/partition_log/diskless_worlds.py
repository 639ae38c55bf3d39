"""Diskless partitions to hold to the contract: on one node, and read on another than it is written.

What the tests ask of a rig is answered without a chain: there are no members, and no network.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from quipu.broker.diskless.partition import DisklessPartition
from quipu.broker.diskless.refreshes import Refreshes
from quipu.broker.diskless.services import DisklessServices
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.diskless.reading.reader import DisklessReader, ReaderLimits
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.partition_log import PartitionLog
from quipu.model.settings import TopicSettings
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.rng import SeededRng
from tests.broker.replication.rig import RULES

TOPIC_ID: Final = UUID(int=77)
NAME: Final = TopicPartition("t", 0)


class NoNet:
    """Nodes of a diskless topic send each other nothing that could be cut off."""

    def cut(self, one: int, other: int) -> None:
        pass


class DisklessRig:
    """What the contract's tests ask of a rig."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.rules = RULES
        self.net = NoNet()
        self.members: dict[NodeId, Any] = {}

    async def turns(self, count: int = 1) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def pass_time(self, ticks: int = 1) -> None:
        await asyncio.sleep(ticks / 100)


class DisklessNode:
    """Writer, reader and partition of one node."""

    def __init__(self, rig: DisklessRig, store: ObjectStore, plane: ControlPlane,
                 number: int) -> None:
        self.reader = DisklessReader(store, plane, rig.clock, limits=ReaderLimits(),
                                     on_advance=self._advanced)
        self.writer = DisklessWriter(
            store, plane, rig.clock, SeededRng(number), node_id=NodeId(number),
            limits=WriterLimits(flush_interval_ms=1), on_committed=self.reader.committed)
        self.partition = DisklessPartition(
            NAME, TOPIC_ID, TopicSettings(diskless_enable=True), DisklessServices(
                writer=self.writer, reader=self.reader, plane=plane,
                refreshes=Refreshes(self.reader.refresh)))
        self.partition.rules = rig.rules

    def _advanced(self, log: LogKey) -> None:
        assert log == self.partition.key
        self.partition.advanced()

    async def open(self) -> None:
        self.reader.start()
        self.partition.became_known()
        await self.partition.refresh()


class DisklessWorld:
    """A partition on one node, with SQLite and a directory."""

    node_count = 1
    lacks: Mapping[str, str] = {
        "failure": "no storage of its own can fail: a request fails, the partition does not",
        "leadership": "every node leads, always",
        "replicas": "there are no replicas that could be too few or silent",
        "internal": "coordinators keep nothing in a diskless log",
        "retention": "retention is applied in the control plane, by one node for all",
        "ignorance": "other nodes may have written more: the control plane must be asked",
        "forgetting": "what was read is kept in the cache for others",
        "fullness": "a read returns what the cache holds, and the rest is fetched for the next one",
    }

    def __init__(self, path: Path, **settings: Any) -> None:
        del settings  # of segments, flushes and replicas: they have no effect
        self.path = path
        self.rig: Any = DisklessRig()
        self.nodes: list[DisklessNode] = []
        self.log: PartitionLog
        self.reader: PartitionLog

    def make_plane(self) -> ControlPlane:
        return SqliteControlPlane(str(self.path / "plane.sqlite"))

    async def open(self) -> None:
        plane = self.make_plane()
        await plane.open()
        await plane.create_logs(TOPIC_ID, "t", 1)
        store = LocalStore(str(self.path / "objects"))
        self.nodes = [DisklessNode(self.rig, store, plane, number)
                      for number in range(1, self.node_count + 1)]
        for node in self.nodes:
            await node.open()
        self.log, self.reader = self.nodes[0].partition, self.nodes[-1].partition

    async def lose_leadership(self) -> None:
        raise AssertionError("every node leads")

    async def move_to_tier(self) -> None:
        pass


class FarReaderWorld(DisklessWorld):
    """A partition that is written on one node and read on another."""

    node_count = 2

    def make_plane(self) -> ControlPlane:
        return MemoryControlPlane()
