"""Makes the parts of diskless topics from a node's settings, and starts and stops them.

Defaults: a node without others stores objects in `diskless/` below its directory, and orders them
in a SQLite file beside it.  Nodes of a cluster need a store and a PostgreSQL database that all of
them can reach (model/diskless_rules.py).

Invariant
    broker.diskless.C1  the control plane is asked for nothing, and changed in nothing, before it is
                        known to belong to this cluster (diskless.C11)

Stopping, in this order: `drain` takes no more batches and answers all that it has, while clients
are still connected; `stop` releases everything, after the connections are closed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quipu.broker.diskless.cleaning import cleaning_limits, retention_rules
from quipu.broker.diskless.partitions import DisklessPartitions
from quipu.broker.diskless.refreshes import Refreshes
from quipu.broker.diskless.registration import SWEEP_SECONDS, ClusterView, LogRegistration
from quipu.broker.diskless.services import DisklessServices
from quipu.diskless.cleaning.cleaner import DisklessCleaner
from quipu.diskless.cleaning.stats import CleaningStats
from quipu.diskless.control_plane.belonging import belong
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.errors import ForeignControlPlane
from quipu.diskless.reading.reader import DisklessReader, ReaderLimits
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.diskless_rules import why_unavailable
from quipu.model.errors import QuipuError
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import OpenStore, open_store
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

if TYPE_CHECKING:  # it holds this too
    from quipu.broker.serving.context import Broker

OPEN_RETRY_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 5.0  # between two questions whether the control plane can be reached
DRAIN_SECONDS_MAX: Final = 15.0  # for everything that is buffered to be written and answered
COORDINATES_MS_MAX: Final = 5 * 60_000

OpenPlane = Callable[[str, Rng], ControlPlane]

_log = logging.getLogger(__name__)


def _open_plane(url: str, rng: Rng) -> ControlPlane:
    return open_control_plane(url, rng=rng)


class Diskless:
    """Diskless topics on one node."""

    def __init__(
        self, settings: BrokerSettings, *, clock: Clock, rng: Rng,
        open_store: OpenStore = open_store, open_plane: OpenPlane = _open_plane,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.store: ObjectStore = open_store(storage_url(settings), clock.now_ms)
        self.plane: ControlPlane = open_plane(control_plane_url(settings), rng)
        self._rng = rng
        coordinates_ms = min(settings.diskless_object_grace_ms // 2, COORDINATES_MS_MAX)
        self.reader = DisklessReader(self.store, self.plane, clock, limits=ReaderLimits(
            cache_bytes=settings.diskless_cache_bytes,
            hot_reads_max=settings.diskless_fetch_threads,
            cold_reads_max=settings.diskless_fetch_lagging_threads,
            coordinates_ms_max=coordinates_ms))
        writer_limits = WriterLimits(
            flush_interval_ms=settings.diskless_flush_interval_ms,
            flush_bytes=settings.diskless_flush_bytes,
            uploads_max=settings.diskless_upload_threads,
            buffer_bytes=settings.diskless_buffer_bytes)
        self.writer = DisklessWriter(
            self.store, self.plane, clock, rng, node_id=settings.own_id, limits=writer_limits,
            on_committed=self.reader.committed)
        self.cleaning_stats = CleaningStats()
        self._cleaner: DisklessCleaner | None = None
        self._cleaning_limits = cleaning_limits(
            settings, coordinates_ms=coordinates_ms, writer=writer_limits)
        self.services = DisklessServices(
            writer=self.writer, reader=self.reader, plane=self.plane,
            refreshes=Refreshes(self.reader.refresh))
        self.partitions: DisklessPartitions
        self._registration: LogRegistration
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble: str | None = None  # why the control plane could not be reached
        self._is_foreign = False  # it is that of another cluster
        self._limited = LimitedLog(_log, clock.monotonic)

    def start(self, broker: "Broker") -> None:
        """Follow the metadata, and serve as soon as the control plane can be reached."""
        cluster = broker.cluster

        async def confirm() -> object:
            return await cluster.describe_quorum()

        self._registration = LogRegistration(
            self.plane, ClusterView(
                topics=lambda: set(cluster.state.topics_by_id),
                is_controller=lambda: cluster.is_controller, confirm=confirm),
            self.clock,
            sweep_seconds=min(SWEEP_SECONDS, self.settings.diskless_object_grace_ms / 4000))
        self.partitions = DisklessPartitions(
            self.services, self._registration, cluster.topic_settings)
        self.reader.on_advance = self.partitions.advanced
        broker.diskless = self
        broker.partitions.use_diskless(self.partitions, self.services)
        cluster.follow(self.partitions)
        self._cleaner = DisklessCleaner(
            self.store, self.plane, self.clock, self._rng, node_id=self.settings.own_id,
            live_nodes=lambda: sorted(cluster.state.up()) or [self.settings.own_id],
            rules=retention_rules(self.partitions.all), limits=self._cleaning_limits,
            stats=self.cleaning_stats)
        self._tasks.append(spawn(self._run(cluster.state.cluster_id), "diskless topics"))
        self._tasks.append(spawn(self._probe(), "reach the control plane"))

    async def _run(self, cluster_id: str) -> None:
        """Open the control plane, however long that takes, then register logs until cancelled."""
        while True:
            try:
                await self.plane.open()
                await belong(self.plane, cluster_id)  # broker.diskless.C1
            except QuipuError as error:
                self._trouble = str(error)
                self._is_foreign = isinstance(error, ForeignControlPlane)
                self.partitions.fail_early(error)
                self._limited.warning("open", "diskless topics cannot be written or read: %s",
                                      error)
                await asyncio.sleep(OPEN_RETRY_SECONDS)
            else:
                break
        self._trouble, self._is_foreign = None, False
        self.reader.start()
        assert self._cleaner is not None
        self._tasks.append(spawn(self._cleaner.run(), "clean-up of diskless topics"))
        await self._registration.run()

    async def _probe(self) -> None:
        """Ask the control plane for something small now and then, so that `trouble` is true."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            logs: Sequence[LogKey] = self.partitions.some_known()
            if logs:
                try:
                    async with asyncio.timeout(PROBE_SECONDS):
                        await self.plane.bounds(logs)
                except QuipuError as error:
                    self._trouble = str(error)
                except TimeoutError:
                    self._trouble = f"no response within {PROBE_SECONDS:g} s"
                else:
                    self._trouble = None

    # -- back pressure

    @property
    def is_full(self) -> bool:
        """Whether requests to diskless partitions must wait until batches are written."""
        return self.writer.is_full

    def when_room(self, call: Callable[[], None]) -> None:
        """Call once, as soon as there is room; at once if there is."""
        self.writer.when_room(call)

    async def room(self) -> None:
        """Return as soon as there is room."""
        if self.writer.is_full:
            has_room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.writer.when_room(lambda: None if has_room.done() else has_room.set_result(None))
            await has_room

    # -- health

    @property
    def is_reachable(self) -> bool:
        """Whether there are diskless topics, and the control plane responded the last time."""
        return self._trouble is None and bool(self.partitions.some_known())

    def warnings(self) -> dict[str, str]:
        """Why diskless topics cannot be served, if there are any."""
        if self._is_foreign:
            return {"diskless": str(self._trouble)}
        if self._trouble is None or not len(self.partitions):
            return {}
        return {"diskless": f"the control plane cannot be reached: {self._trouble}"}

    # -- stopping

    async def drain(self) -> None:
        """Take no more batches; return when all are written and answered, or it takes too long."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await self.writer.close()
        except TimeoutError:
            _log.warning("diskless topics: some batches could not be written in time; their "
                         "producers send them again")
        except QuipuError as error:
            _log.warning("diskless topics: %s", error)

    async def stop(self) -> None:
        """Release all resources; nobody reads or writes any more."""
        if self._cleaner is not None:
            await self._cleaner.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.services.close()
        await self.reader.close()
        await self.plane.close()
        await self.store.close()


def can_serve(settings: BrokerSettings) -> bool:
    """Whether a node with these settings can have diskless topics; it is said why not."""
    why = why_unavailable(settings)
    if why is not None and settings.diskless_storage_system_enable:
        _log.error("diskless topics cannot be served: %s", why)
    return why is None


def storage_url(settings: BrokerSettings) -> str:
    """Where objects are stored."""
    if settings.diskless_storage_url is not None:
        return settings.diskless_storage_url
    return (Path(settings.log_dirs).absolute() / "diskless").as_uri()


def control_plane_url(settings: BrokerSettings) -> str:
    """Where objects are ordered."""
    if settings.diskless_control_plane_url is not None:
        return settings.diskless_control_plane_url
    return f"sqlite://{Path(settings.log_dirs).absolute() / 'diskless.sqlite'}"
