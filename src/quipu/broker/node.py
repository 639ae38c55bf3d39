"""A node: creates its parts, starts them in order, and stops them in the reverse order.

    start   bind the client address (connections wait in the kernel's queue), open and recover the
            data directory, find the other nodes, replay the metadata, open partitions, restore
            groups; then be unfenced, and only then accept connections
    stop    let other nodes lead and serve, accept no new connections, end waiting fetches and
            waiting requests of groups, flush produced batches, send all responses; then close the
            logs, and note in the directory that the stop was clean

Not here: any decision; the parts make them.
"""

import asyncio
import dataclasses
import logging
import signal
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from quipu.broker import handlers, listening
from quipu.broker.cluster import ClusterDriver
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.cluster.throttle_rates import ThrottleRates
from quipu.broker.diskless.opening import Diskless, can_serve
from quipu.broker.diskless.tiering_start import start_tiering
from quipu.broker.groups import Groups
from quipu.broker.observing import http, metrics, placement_pages, placement_samples
from quipu.broker.observing.chain_health import chain_trouble, failed_logs, refused_writes
from quipu.broker.observing.cluster_metrics import cluster_samples
from quipu.broker.observing.health import Health, LifePhase
from quipu.broker.observing.samples import (
    chain_samples,
    diskless_totals,
    group_samples,
    lag_samples,
    tier_samples,
    tier_totals,
    zone_samples,
)
from quipu.broker.observing.stats import Stats
from quipu.broker.partitions.cleaning import Cleaner
from quipu.broker.partitions.lease import Lease
from quipu.broker.partitions.partitions import Partitions
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.partitions.scrubbing import Scrubber
from quipu.broker.periodic import every
from quipu.broker.replication import ChainReplication
from quipu.broker.replication.batch_repairs import BatchRepairs
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker
from quipu.broker.serving.fetch_sessions import FetchSessions
from quipu.broker.serving.recompressed import RecompressedTopics
from quipu.broker.serving.request_queue import RequestQueue
from quipu.broker.serving.response_budget import ResponseBudgets
from quipu.broker.serving.server import ClientSession
from quipu.broker.tiering.opening import Tiering
from quipu.model.errors import QuipuError
from quipu.model.ids import Epoch, NodeId
from quipu.model.listeners import ListenerEndpoint, is_default
from quipu.model.partition_log import PartitionLog
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import Clock, SystemClock
from quipu.runtime.disks.disk import Disk, RealDisk, TransientDiskError
from quipu.runtime.garbage import no_collections
from quipu.runtime.net.network import EVERY_HOST, FrameListener, Net, RealNet, machine_name
from quipu.runtime.objects.urls import OpenStore, open_store
from quipu.runtime.peers.discovery import Discovery
from quipu.runtime.peers.peer_net import Identity, PeerNet, PeerStats
from quipu.runtime.rng import Rng, SystemRng
from quipu.runtime.spawn import spawn
from quipu.runtime.turns import Turns
from quipu.runtime.workers import Workers
from quipu.storage.directory.data_directory import DataDirectory

_log = logging.getLogger(__name__)

REMEMBER_SECONDS: Final = 5.0  # between two writes of the logs' recovery points
REMEMBER_STEP: Final = 256  # recovery points that are written in one step
RETRY_SECONDS: Final = 1.0  # between two attempts to open a log that could not be opened
FLUSH_TICK_SECONDS: Final = 0.1  # between two checks of flush.ms
STOP_SECONDS_MAX: Final = 10.0  # for all responses to be sent
T = TypeVar("T")


class Node:
    """One node of a cluster, in one process."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        disk: Disk | None = None,
        net: Net | None = None,
        open_store: OpenStore = open_store,
        with_http: bool = True,
    ) -> None:
        self.settings = settings
        self.health = Health()
        self.stats = Stats()
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._real_disk = RealDisk()
        self._sync_seconds = self._real_disk.files.sync_seconds
        self._disk: Disk = disk or self._real_disk
        self._net = net or RealNet()
        self._open_store = open_store  # of the remote tier
        self._with_http = with_http  # False in simulations, where metrics are not scraped
        self._workers = Workers()
        self._http: http.HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.broker: Broker
        self._frames: FrameListener
        self._directory: DataDirectory | None = None
        self._peers: PeerNet | None = None
        self._cluster: ClusterDriver | None = None
        self._replication: ChainReplication | None = None
        self._tiering: Tiering | None = None
        self._diskless: Diskless | None = None

    async def start(self) -> tuple[str, int]:
        """Start to serve; returns the address that clients connect to."""
        started = self._clock.monotonic()
        handlers.import_all()
        limits = listening.net_limits(self.settings, self._real_disk.files)
        self._frames = self._net.frame_server(
            lambda connection: ClientSession(self.broker, connection), limits)
        bound = [self._bind(endpoint) for endpoint in self.settings.listeners]
        _, host, port = bound[0]
        try:
            if self._with_http:
                await self._start_http()
            await self._start_parts(bound)
            self.broker.cluster.on_settings(
                lambda new: listening.use_limits(limits, new, self._real_disk.files))
        except BaseException:
            await self._abandon()
            raise
        self.stats.recovery_seconds = self._clock.monotonic() - started
        self._frames.serve()
        self.health.enter(LifePhase.SERVING)
        _log.info("serving", extra={
            "node": self.settings.node_name, "address": f"{host}:{port}",
            **({"listeners": ", ".join(map(str, bound))} if len(bound) > 1 else {}),
            "partitions": len(self.broker.partitions),
            "start_seconds": round(self.stats.recovery_seconds, 3)})
        return host, port

    def _bind(self, endpoint: ListenerEndpoint) -> ListenerEndpoint:
        """Bind the address of a listener; returns it with the port that it got."""
        listener, host, port = endpoint
        try:
            return ListenerEndpoint(
                listener, *self._frames.bind(host or EVERY_HOST, port, listener=listener))
        except QuipuError:
            self._frames.stop_accepting()
            raise

    async def _abandon(self) -> None:
        """Close everything without a clean stop, because the start has failed."""
        self._frames.stop_accepting()
        for task in self._tasks:
            task.cancel()
        if self._replication is not None:
            await self._replication.stop()
        if self._diskless is not None:
            await self._diskless.stop()
        if self._cluster is not None:
            await self._cluster.stop()
        if self._peers is not None:
            await self._peers.stop()
        if self._http is not None:
            await self._http.close()
        if self._directory is not None:
            self._directory.abandon()

    async def _start_parts(self, bound: Sequence[ListenerEndpoint]) -> None:
        settings, clock = self.settings, self._clock
        endpoints = listening.advertised(settings, bound, machine_name)
        self._directory = directory = DataDirectory.open(
            self._disk, settings.log_dirs, clock, node_id=settings.own_id)
        self.stats.recovery_clean = int(directory.was_clean)
        self._peers = self._open_peers()
        self._cluster = cluster = ClusterDriver.of(
            directory, settings, clock, self._rng, net=self._peers)
        cluster.controller.refusals = self.stats.refusals  # counted with other limits
        peer_address = await self._start_peers()
        await cluster.start(Endpoints(
            endpoints[0].host, endpoints[0].port, *peer_address,
            listeners=() if is_default(endpoints) else endpoints))
        self._replication = replication = ChainReplication(
            settings.own_id, self._peers, clock, reporter=cluster,
            broker_epoch=cluster.broker_epoch, rates=ThrottleRates(settings.own_id, cluster),
            window_size=settings.chain_window_bytes, logs=directory,
            interval_ms=settings.chain_heartbeat_interval_ms)
        cluster.on_metadata_read(lambda: partial(
            replication.confirm_epochs, replication.fenced_chains(), self._newest_epoch))
        partitions = Partitions(
            directory, cluster.topic_settings, replication, node_id=settings.own_id,
            producer_expiration_ms=lambda: cluster.settings.producer_id_expiration_ms,
            producer_retry_ms=settings.producer_id_retry_ms,
            producers_max=settings.max_producer_ids_per_partition,
            is_part=lambda partition: cluster.state.is_part(
                settings.own_id, cluster.incarnation, partition),
            lease=Lease(cluster, clock))
        turns = Turns(clock.monotonic)
        self.broker = Broker(
            settings=settings, clock=clock, rng=self._rng, directory=directory,
            node_id=settings.own_id, cluster_id=cluster.state.cluster_id,
            listeners=listening.client_listeners(settings), stats=self.stats, cluster=cluster,
            partitions=partitions,
            groups=None,  # type: ignore[arg-type]  # the next line
            fetch_sessions=FetchSessions(
                clock, self._rng, self.stats,
                slots=settings.max_incremental_fetch_session_cache_slots,
                partitions_max=settings.max_incremental_fetch_session_cache_partitions),
            queue=RequestQueue(turns, waiting_size_max=settings.queued_max_request_bytes),
            response_budgets=ResponseBudgets(
                turns, clock.monotonic, self.stats, size_max=settings.max_response_bytes,
                total_max=settings.queued_max_response_bytes),
            workers=self._workers)
        self.broker.groups = groups = Groups(self.broker)
        forwarding.serve(self.broker)
        await partitions.recover(list(cluster.state.topics.values()))
        replication.start()
        self._start_object_storage()  # it follows metadata before partitions do: sees deletions
        self._follow_topics(cluster)
        self._watch_health(cluster, partitions)
        replication.watch(groups)
        await groups.start()
        self._report_strays()
        self._start_tasks(BatchRepairs(
            directory, partitions, self._peers, clock, node_id=settings.own_id, stats=self.stats,
            health=self.health))
        await cluster.serve()

    def _follow_topics(self, cluster: ClusterDriver) -> None:
        cluster.follow(self.broker.partitions)
        cluster.follow(RecompressedTopics(self.broker.recompressed, cluster.topic_settings))

    def _watch_health(self, cluster: ClusterDriver, partitions: Partitions) -> None:
        self.health.check("chain", lambda: chain_trouble(cluster))
        self.health.watch(lambda: failed_logs(partitions))
        self.health.watch(lambda: refused_writes(cluster, partitions, self._clock))

    def _start_object_storage(self) -> None:
        if self.settings.remote_log_storage_system_enable:
            self._tiering = Tiering(
                self.settings, clock=self._clock, rng=self._rng, stats=self.stats,
                workers=self._workers, open_store=self._open_store)
            self._tiering.start(self.broker, self._peers)
        if can_serve(self.settings):
            self._diskless = Diskless(self.settings, clock=self._clock, rng=self._rng,
                                      open_store=self._open_store)
            self._diskless.start(self.broker)
            self.health.watch(self._diskless.warnings)
            if self._tiering is not None:
                self._tasks += start_tiering(
                    self.broker, self._tiering, clock=self._clock, rng=self._rng)

    @property
    def diskless(self) -> Diskless | None:
        """Diskless topics; None if they cannot be served."""
        return self._diskless

    @property
    def tiering(self) -> Tiering | None:
        """Tiered storage, once it has begun; None without it."""
        return self._tiering

    def _newest_epoch(self, partition: ReplicatedPartition) -> Epoch | None:
        """The epoch of a partition's chain in this node's metadata; None if it is not a member."""
        assert self._cluster is not None
        cluster, number = self._cluster, partition.topic_partition.partition
        topic = cluster.state.topics_by_id.get(partition.topic_id)
        if topic is None or number >= len(topic.partitions) or not cluster.state.is_part(
                self.settings.own_id, cluster.incarnation, topic.partitions[number]):
            return None
        return topic.partitions[number].replica_set.epoch

    def _open_peers(self) -> PeerNet | None:
        """The connections to other nodes, not opened yet; None if there is no peer listener."""
        settings = self.settings
        if settings.peer_listener is None:
            return None
        identity = Identity(settings.own_id, settings.node_name, self._rng.uuid())
        return self._net.peers(identity, listening.peer_config(settings), self._rng)

    async def _start_peers(self) -> tuple[str, int]:
        """Open the peer listener; returns the address at which other nodes reach this one."""
        if self._peers is None:
            return "", 0
        await self._peers.start()
        for node_id, address in self.settings.controller_quorum_voters:
            if node_id != self.settings.own_id and address is not None:
                self._peers.know(NodeId(node_id), *address)
        if self.settings.peer_discovery is not None:
            discovery = Discovery(
                self.settings.peer_discovery, self._peers.meet,
                interval_seconds=self.settings.peer_discovery_interval_ms / 1000,
                nameserver=self.settings.peer_discovery_nameserver)
            self._tasks.append(spawn(discovery.run(), "discovery"))
        assert self._peers.address is not None
        return self._peers.address

    def _start_tasks(self, repairs: BatchRepairs) -> None:
        assert self._directory is not None
        scrubber = Scrubber(self._directory, self.settings, self._clock, self.stats)
        cleaner = Cleaner(self.broker.partitions, lambda: self.broker.cluster.settings, self._disk,
                          self._clock, self._rng, stats=self.stats)
        retention_seconds = self.settings.log_retention_check_interval_ms / 1000
        self._tasks += [
            spawn(every(FLUSH_TICK_SECONDS, self._flush_due), "flush"),
            spawn(every(REMEMBER_SECONDS, self._remember), "remember"),
            spawn(every(RETRY_SECONDS, self._open_again), "retry"),
            spawn(every(retention_seconds, self._retain), "retention"),
            spawn(scrubber.run(), "scrub"),
            spawn(cleaner.run(), "cleaner"),
            spawn(repairs.run(), "repair"),
        ]

    def _report_strays(self) -> None:
        """Warn of logs that belong to no topic: of a topic deleted just before a crash, say."""
        assert self._directory is not None
        directory, partitions = self._directory, self.broker.partitions
        strays = sorted(set(directory.names()) - partitions.log_entries())
        if strays:
            _log.warning("%d directories in %s belong to no topic and are left alone: %s",
                         len(strays), directory.path, ", ".join(strays[:10]))

    async def _start_http(self) -> None:
        listener = self.settings.metrics_listener
        sources = metrics.Sources(
            stats=self.stats, net=self._frames.stats, partitions=self._partition_views,
            chains=lambda: self._samples(chain_samples),
            cluster=lambda: self._samples(cluster_samples),
            groups=lambda: self._samples(group_samples), lags=lambda: self._samples(lag_samples),
            tier=lambda: tier_totals(self._tiering),
            tiered=lambda: self._samples(lambda _: tier_samples(self._tiering)),
            diskless=lambda: diskless_totals(self._diskless),
            zones=lambda: self._samples(zone_samples),
            diskless_lags=lambda: self._samples(placement_samples.diskless_lags),
            placement=lambda: self._samples(placement_samples.of_controller),
            peers=self._peer_stats, ready=lambda: self.health.ready,
            stepped_back=lambda: (self._cluster is not None
                                  and self._cluster.why_stepped_back is not None),
        )
        self._http = http.HttpServer(
            http.routes(self.health, sources), stats=self.stats,
            queried=placement_pages.routes(lambda: self._samples(lambda broker: [broker])),
            connections_max=self.settings.metrics_max_connections)
        host, port = await self._http.start(
            listener.host, listener.port, or_any="metrics.listener" not in self.settings.explicit)
        _log.info("metrics and health", extra={"http": f"{host}:{port}"})

    def _peer_stats(self) -> PeerStats:
        if self._peers is None or self._cluster is None or self._replication is None:
            return PeerStats()
        return dataclasses.replace(self._peers.stats, messages_refused=(
            self._cluster.refused_count + self._replication.refused_count))

    def _partition_views(self) -> Sequence[PartitionLog]:
        return [] if self.health.phase is LifePhase.STARTING else list(self.broker.partitions.all())

    def _samples(self, take: Callable[[Broker], Iterable[T]]) -> Iterable[T]:
        return [] if self.health.phase is LifePhase.STARTING else take(self.broker)

    # -- in the background

    async def _flush_due(self) -> None:
        assert self._directory is not None
        for _ in self._directory.flush_due(self._clock.now_ms()):
            await self.broker.queue.turns.pause()
        self.stats.disk_refusals = self._directory.refusals
        while self._sync_seconds:
            self.stats.flushes.observe(self._sync_seconds.popleft())

    async def _remember(self) -> None:
        assert self._directory is not None
        self.broker.limited.report()
        directory, trouble = self._directory, self._take_refusal()
        try:
            while directory.remember(count_max=REMEMBER_STEP):
                await self.broker.queue.turns.pause()
            directory.reserve.keep()
            if trouble is None and directory.space().usable > 0:
                if self.health.has_failed("disk"):
                    _log.info("the disk takes writes again")
                self.health.mend("disk")
        except QuipuError as error:
            trouble = error
            if self._cluster is not None and directory.failure is not None:
                self._cluster.report_disk_failure(str(directory.failure))
        if trouble is not None:
            if not self.health.has_failed("disk"):
                _log.error("the disk refuses writes: %s", trouble)
            self.health.fail("disk", str(trouble))

    def _take_refusal(self) -> QuipuError | None:
        """The last transient refusal of a write by the disk since the last call, if any.

        A final error is a failure of its log alone.
        """
        assert self._directory is not None
        refusal, self._directory.refusal = self._directory.refusal, None
        return refusal if isinstance(refusal, TransientDiskError) else None

    async def _open_again(self) -> None:
        """Open logs again that could not be opened for lack of descriptors, memory or space."""
        assert self._directory is not None
        assert self._replication is not None
        for log in await self._directory.retry_failed():
            _log.info("open again", extra={"log": log.name})
            for partition in self.broker.partitions.replicated():
                if partition.log is log:
                    self._replication.log_opened(partition)

    async def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self.broker.partitions.all():
            try:
                if partition.failure is None:
                    self.stats.segments_removed += partition.apply_retention(now_ms)
            except QuipuError as error:  # other partitions may free space
                _log.warning("%s: retention: %s", partition.topic_partition, error)
            await asyncio.sleep(0)

    # -- stop

    async def stop(self) -> None:
        """Stop cleanly; to be called once, after `start`."""
        assert self._cluster is not None
        assert self._replication is not None
        self.health.enter(LifePhase.STOPPING)
        _log.info("stopping")
        await self._cluster.leave()
        self._frames.stop_accepting()
        for task in self._tasks:
            task.cancel()
        for waiter in list(self.broker.partitions.waiting):
            waiter.advanced(0)
        if self._tiering is not None:
            await self._tiering.stop()
        await self.broker.groups.stop()
        await self._replication.stop()
        assert self._directory is not None
        await self._directory.flush()
        if self._diskless is not None:
            await self._diskless.drain()
        await self._frames.close(grace_seconds=STOP_SECONDS_MAX)
        if self._diskless is not None:
            await self._diskless.stop()
        self._workers.close()
        await self._cluster.stop()
        if self._peers is not None:
            await self._peers.stop()
        self._directory.close()
        if self._http is not None:
            await self._http.close()
        _log.info("stopped")


async def run(settings: BrokerSettings, announce: Callable[[str, int], None]) -> None:
    """Run a node until SIGTERM or SIGINT; call `announce` with the address once it serves.

    A signal during the start abandons the start; the next start recovers the logs again.  A second
    signal ends the process at once.
    """
    stopping = asyncio.Event()
    starting = asyncio.current_task()
    assert starting is not None
    _on_signals(starting.cancel)
    node = Node(settings)
    try:
        with no_collections():
            host, port = await node.start()
    except asyncio.CancelledError:
        _log.info("stopped by a signal while starting")
        return
    _on_signals(lambda: _stop_or_die(stopping))
    announce(host, port)
    await stopping.wait()
    await node.stop()


def _on_signals(act: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, act)


def _stop_or_die(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    stopping.set()
