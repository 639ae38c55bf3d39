"""Makes the parts of tiered storage from a node's settings, and starts and stops them.

Defaults: a node without others stores segments in `remote/` below its directory, and their metadata
in a SQLite file beside it.  Nodes of a cluster need a store that all of them can reach, and store
the metadata in a topic of the cluster.
"""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quipu.broker.metadata_topic.topic_backend import TopicBackend
from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.copying import SegmentCopier
from quipu.broker.tiering.deleted_partitions import DeletedPartitions, SweepView
from quipu.broker.tiering.deleting import SegmentDeleter
from quipu.broker.tiering.led_partition import TierServices
from quipu.broker.tiering.lookup import TierLookup
from quipu.broker.tiering.orphan_sweep import OrphanSweeper
from quipu.broker.tiering.remote_log import RemoteLog, TaskTimes
from quipu.broker.tiering.remote_reads import TierReads
from quipu.broker.tiering.roles import MetadataRoles
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.tiering.steps import StepServices
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from quipu.model.token_bucket import TokenBucket
from quipu.remote.metadata.factory import (
    CONFIG_PREFIX,
    MANAGER_CLASS,
    MANAGER_CLASS_PATH,
    make_metadata_manager,
)
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.storage.backend import MetadataStorageBackend
from quipu.remote.metadata.storage.urls import TOPIC
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.managed_storage import ManagedRemoteStorage, make_storage_manager
from quipu.remote.segments.remote_storage import ObjectRemoteStorage, RemoteStorage
from quipu.remote.segments.writer import CopyOptions
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import OpenStore, open_store
from quipu.runtime.peers.peer_net import PeerNet
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn
from quipu.runtime.workers import Workers

if TYPE_CHECKING:  # it holds the tier too
    from quipu.broker.cluster.driver import ClusterDriver
    from quipu.broker.serving.context import Broker

OPEN_RETRY_SECONDS: Final = 1.0
TOPIC_TIMEOUT_SECONDS: Final = 30.0  # of one request to it
# What configurations of Kafka name; they mean the built-in classes.
JAVA_MANAGERS: Final = frozenset({
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    "io.aiven.kafka.tieredstorage.metadata.storage.RemoteLogMetadataManager"})
JAVA_STORAGES: Final = frozenset({
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "io.aiven.kafka.tieredstorage.RemoteStorageManager"})

_log = logging.getLogger(__name__)


class Tiering:
    """Tiered storage on one node."""

    def __init__(
        self, settings: BrokerSettings, *, clock: Clock, rng: Rng, stats: Stats,
        workers: Workers, open_store: OpenStore = open_store,
    ) -> None:
        self._settings = settings
        self._broker: Broker | None = None
        self._net: PeerNet | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._topic_backend: TopicBackend | None = None
        self._monotonic = clock.monotonic
        self._limited = LimitedLog(_log, clock.monotonic)
        self._metadata = make_metadata_manager(
            metadata_settings(settings), broker_id=settings.own_id, rng=rng,
            schemes={TOPIC: self._open_topic}, cluster_id=self._cluster_id)
        self.cache = ChunkCache(settings.remote_log_chunk_cache_bytes)
        url = storage_url(settings)
        store = None if url is None else open_store(url, clock.now_ms)
        self.store = store  # None: segments are in a class of the user's own
        self._copy_rate = _throttle(settings.remote_log_manager_copy_max_bytes_per_second)
        self._fetch_rate = _throttle(settings.remote_log_manager_fetch_max_bytes_per_second)
        self._storage = _storage(
            settings, store, self.cache, clock, workers, throttle=self._copy_rate)
        self._roles = roles = MetadataRoles(self._metadata)
        self.deleter = deleter = SegmentDeleter(self._metadata, self._storage, clock=clock,
                                 broker_id=settings.own_id, stats=stats)
        copier = SegmentCopier(
            self._metadata, self._storage, deleter, clock=clock, rng=rng,
            broker_id=settings.own_id, stats=stats,
            custom_metadata_max=settings.remote_log_metadata_custom_metadata_max_bytes)
        self.reads = TierReads(
            self._metadata, roles, self._storage, clock=clock, stats=stats,
            running_max=settings.remote_log_reader_threads,
            pending_max=settings.remote_log_reader_max_pending_tasks,
            throttle=self._fetch_rate)
        self._lookup = TierLookup(self._metadata, roles, url, workers.run)
        self._services = services = TierServices(
            self._metadata, roles, copier, deleter, clock=clock, run=workers.run,
            copies_max=settings.remote_log_manager_copier_thread_pool_size,
            deletions_max=settings.remote_log_manager_expiration_thread_pool_size)
        self.view, grace_ms = self._view(), settings.remote_log_orphan_grace_ms
        self.deleted = deleted = DeletedPartitions(services, self.view, grace_ms=grace_ms)
        self.log = RemoteLog(
            services, TaskTimes(interval=settings.remote_log_manager_task_interval_ms / 1000,
                      retry=settings.remote_log_manager_task_retry_backoff_ms / 1000,
                      retry_max=settings.remote_log_manager_task_retry_backoff_max_ms / 1000,
                      jitter=settings.remote_log_manager_task_retry_jitter),
            deleted, None if store is None else OrphanSweeper(  # else nobody can list the objects
                store, services, self.view, deleted, clock=clock, stats=stats, grace_ms=grace_ms),
            clock=clock, rng=rng, stats=stats)

    def start(self, broker: "Broker", net: PeerNet | None) -> None:
        """Begin to copy and delete, as soon as the metadata's storage can be reached."""
        self._broker, self._net = broker, net
        broker.tier = self._lookup
        broker.partitions.use_remote_reads(self.reads)
        broker.cluster.follow(self.log)
        broker.cluster.on_settings(self._use)
        broker.partitions.watch(self.log)
        self._tasks.append(spawn(self._run(), "tiering"))

    def _use(self, settings: BrokerSettings) -> None:
        """Use the limits of `settings` from now on."""
        for throttle, rate in (
                (self._copy_rate, settings.remote_log_manager_copy_max_bytes_per_second),
                (self._fetch_rate, settings.remote_log_manager_fetch_max_bytes_per_second)):
            throttle.change(rate, rate, self._monotonic())
        self._services.copies.resize(settings.remote_log_manager_copier_thread_pool_size)
        self._services.deletions.resize(settings.remote_log_manager_expiration_thread_pool_size)
        self.reads.resize(settings.remote_log_reader_threads)

    async def _run(self) -> None:
        """Open the metadata manager, however long that takes, then take steps until cancelled."""
        while True:
            try:
                await self._metadata.open()
            except QuipuError as error:
                self._limited.warning("open", "the metadata of remote segments cannot be reached, "
                                      "so nothing is copied or read: %s", error)
                await asyncio.sleep(OPEN_RETRY_SECONDS)
            else:
                break
        self._roles.opened.set()
        if self._topic_backend is not None:
            assert self._broker is not None
            self._broker.partitions.watch(self._topic_backend)
        await self.log.run()

    async def stop(self) -> None:
        """Stop copying and deleting, and release all resources."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reads.close()
        await self._metadata.close()
        await self._storage.close()

    def _cluster_id(self) -> str:
        assert self._broker is not None
        return self._broker.cluster.state.cluster_id

    @property
    def metadata(self) -> RemoteLogMetadataManager:
        """The metadata of remote segments, as this node knows it."""
        return self._metadata

    def steps(self, plane: ControlPlane, *, clock: Clock, owner: str, lease_ms: int
              ) -> StepServices:
        """What steps of diskless logs need of this node's tier (diskless/tiering)."""
        return StepServices(
            plane=plane, metadata=self._metadata, leading=self._roles, storage=self._storage,
            store=self.store, clock=clock, broker_id=self._settings.own_id, owner=owner,
            lease_ms=lease_ms)

    def leads(self, partition: TopicIdPartition) -> bool:
        """Whether this node serves the metadata of `partition` from memory."""
        return self._roles.leads(partition) and self._metadata.is_ready(partition)

    def _view(self) -> SweepView:
        def cluster() -> "ClusterDriver":
            assert self._broker is not None
            return self._broker.cluster

        async def confirmed_term() -> int:
            return (await cluster().describe_quorum()).term

        return SweepView(
            cluster_id=self._cluster_id,
            topics=lambda: {topic.topic_id for topic in cluster().state.topics.values()},
            is_controller=lambda: cluster().is_controller, confirmed_term=confirmed_term)

    def _open_topic(self) -> MetadataStorageBackend:
        broker = self._broker
        assert broker is not None
        self._topic_backend = TopicBackend(
            broker, self._net, timeout_seconds=TOPIC_TIMEOUT_SECONDS,
            partition_count=(
                self._settings.rlmm_config_remote_log_metadata_topic_num_partitions),
            is_registered=lambda sender: NodeId(sender) in broker.cluster.state.brokers)
        return self._topic_backend


def _storage(
    settings: BrokerSettings, store: ObjectStore | None, cache: ChunkCache, clock: Clock,
    workers: Workers, *, throttle: TokenBucket,
) -> RemoteStorage:
    """Segments in `store`, or in a class of the user's own."""
    options = CopyOptions(chunk_size=settings.remote_log_chunk_bytes,
                          compress=settings.remote_log_compression == "zstd")
    if store is not None:
        return ObjectRemoteStorage(store, cache=cache, run=workers.run, clock=clock,
                                   options=options, throttle=throttle)
    name, prefix = (settings.remote_log_storage_manager_class_name,
                    settings.remote_log_storage_manager_impl_prefix)
    assert name is not None
    manager = make_storage_manager(
        name, class_path=settings.remote_log_storage_manager_class_path or "",
        settings={each.removeprefix(prefix): value for each, value in settings.of_classes
                  if each.startswith(prefix)}, broker_id=settings.own_id)
    return ManagedRemoteStorage(manager, cache=cache, run=workers.run, clock=clock,
                                options=options, throttle=throttle)


def storage_url(settings: BrokerSettings) -> str | None:
    """Where segments are stored; None: in a class of the user's own.

    Nodes of a cluster have no default (model/settings_sources).
    """
    if settings.remote_log_storage_manager_class_name not in (None, "", *JAVA_STORAGES):
        return None
    if settings.remote_log_storage_url is not None:
        return settings.remote_log_storage_url
    assert settings.peer_listener is None
    return (Path(settings.log_dirs).absolute() / "remote").as_uri()


def metadata_settings(settings: BrokerSettings) -> dict[str, str]:
    """The settings of the metadata manager, with this node's defaults."""
    url = settings.rlmm_config_metadata_storage_url
    if url is None:
        path = Path(settings.log_dirs).absolute() / "remote-metadata.sqlite"
        url = f"{TOPIC}:" if settings.peer_listener is not None else f"sqlite://{path}"
    found = {
        **{name: value for name, value in settings.of_classes if name.startswith(CONFIG_PREFIX)},
        MANAGER_CLASS: settings.remote_log_metadata_manager_class_name,
        MANAGER_CLASS_PATH: settings.remote_log_metadata_manager_class_path or "",
        "rlmm.config.metadata.storage.url": url,
        "rlmm.config.metadata.storage.connector.class":
            settings.rlmm_config_metadata_storage_connector_class or "",
        "rlmm.config.metadata.storage.serializer.class":
            settings.rlmm_config_metadata_storage_serializer_class or "",
    }
    if found[MANAGER_CLASS] in JAVA_MANAGERS:
        del found[MANAGER_CLASS]
    return {name: value for name, value in found.items() if value}


def _throttle(bytes_per_second: int) -> TokenBucket:
    return TokenBucket(bytes_per_second, bytes_per_second)
