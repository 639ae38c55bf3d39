"""The logs that the control plane knows follow the topics of the cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from quipu.broker.diskless.registration import ClusterView, LogRegistration
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.model.errors import Code, QuipuError, RequestError
from tests.looped import LoopClock, timeless

ONE, TWO = UUID(int=1), UUID(int=2)


class Cluster:
    """What the registration sees of a cluster, and what it has told."""

    def __init__(self) -> None:
        self.topics: set[UUID] = set()
        self.is_controller = True
        self.is_confirmed = True
        self.known: list[tuple[bytes, int]] = []
        self.failed: list[tuple[bytes, int]] = []

    async def confirm(self) -> None:
        if not self.is_confirmed:
            raise RequestError("another node is the controller", code=Code.NOT_CONTROLLER)

    def view(self) -> ClusterView:
        return ClusterView(topics=lambda: self.topics, is_controller=lambda: self.is_controller,
                           confirm=self.confirm)


class FlakyPlane(MemoryControlPlane):
    """A control plane that can be out of reach."""

    is_down = False
    create_count = 0

    async def create_logs(self, topic_id: UUID, topic: str, partition_count: int) -> None:
        self.create_count += 1
        if self.is_down:
            raise ControlPlaneUnavailable("down for a test")
        await super().create_logs(topic_id, topic, partition_count)

    async def delete_topic(self, topic_id: UUID, now_ms: int) -> None:
        if self.is_down:
            raise ControlPlaneUnavailable("down for a test")
        await super().delete_topic(topic_id, now_ms)


@asynccontextmanager
async def registering(
    plane: FlakyPlane, cluster: Cluster, **options: float
) -> AsyncIterator[LogRegistration]:
    registration = LogRegistration(plane, cluster.view(), LoopClock(), **options)
    registration.on_known = lambda topic_id, count: cluster.known.append((topic_id, count))

    def failed(topic_id: bytes, count: int, error: QuipuError) -> None:
        assert isinstance(error, ControlPlaneUnavailable)
        cluster.failed.append((topic_id, count))

    registration.on_failed = failed
    task = asyncio.ensure_future(registration.run())
    try:
        yield registration
    finally:
        task.cancel()


@timeless
async def test_logs_are_known_before_they_are_used() -> None:
    """broker.diskless.L1: also those that are added, and after the control plane was down."""
    plane, cluster = FlakyPlane(), Cluster()
    async with registering(plane, cluster) as registration:
        registration.want(ONE, "one", 2)
        await asyncio.sleep(0.1)
        assert cluster.known == [(ONE.bytes, 2)]
        assert await plane.topics() == {ONE: ("one", 2)}
        plane.is_down = True
        registration.want(ONE, "one", 3)
        registration.want(TWO, "two", 1)
        await asyncio.sleep(1)
        assert cluster.known == [(ONE.bytes, 2)]
        assert (ONE.bytes, 3) in cluster.failed
        assert registration.trouble is not None
        plane.is_down = False
        await asyncio.sleep(10)
        assert sorted(cluster.known) == [(ONE.bytes, 2), (ONE.bytes, 3), (TWO.bytes, 1)]
        assert registration.trouble is None


@timeless
async def test_a_start_asks_once_for_all_that_is_known() -> None:
    """broker.diskless.L1: ten thousand topics are not created again."""
    plane, cluster = FlakyPlane(), Cluster()
    await plane.create_logs(ONE, "one", 2)
    await plane.create_logs(TWO, "two", 1)
    count = plane.create_count
    registration = LogRegistration(plane, cluster.view(), LoopClock())
    registration.on_known = lambda topic_id, size: cluster.known.append((topic_id, size))
    registration.want(ONE, "one", 2)
    registration.want(TWO, "two", 4)
    task = asyncio.ensure_future(registration.run())
    await asyncio.sleep(1)
    task.cancel()
    assert sorted(cluster.known) == [(ONE.bytes, 2), (TWO.bytes, 4)]
    assert plane.create_count == count + 1


@timeless
async def test_the_controller_deletes_logs() -> None:
    """D7, broker.diskless.L2: at once, until it succeeds; other nodes do not."""
    plane, cluster = FlakyPlane(), Cluster()
    async with registering(plane, cluster) as registration:
        for topic_id, name in ((ONE, "one"), (TWO, "two")):
            registration.want(topic_id, name, 1)
        await asyncio.sleep(0.1)
        plane.is_down = True
        registration.deleted(ONE)
        await asyncio.sleep(1)
        plane.is_down = False
        await asyncio.sleep(10)
        assert await plane.topics() == {TWO: ("two", 1)}
        cluster.is_confirmed = False
        registration.deleted(TWO)
        await asyncio.sleep(10)
        cluster.is_controller = False
        registration.deleted(TWO)
        await asyncio.sleep(10)
        assert await plane.topics() == {TWO: ("two", 1)}


@timeless
async def test_logs_that_a_crash_has_left_are_deleted() -> None:
    """D7, broker.diskless.L2: of topics that are in no metadata, in two looks of the controller."""
    plane, cluster = FlakyPlane(), Cluster()
    await plane.create_logs(ONE, "one", 1)
    await plane.create_logs(TWO, "two", 1)
    cluster.topics = {TWO}
    cluster.is_controller = False
    async with registering(plane, cluster, sweep_seconds=10):
        await asyncio.sleep(60)
        assert set(await plane.topics()) == {ONE, TWO}
        cluster.is_controller = True
        await asyncio.sleep(5)
        assert set(await plane.topics()) == {ONE, TWO}
        await asyncio.sleep(30)
        assert set(await plane.topics()) == {TWO}
