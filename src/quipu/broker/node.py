"""A node: puts the parts together, starts them in order, and stops them in the reverse order.

    start   the address is taken (clients wait in the queue), the directory opened and recovered,
            the other nodes found, the metadata replayed, partitions opened, groups restored; then
            the cluster counts on it, and only then it accepts
    stop    its parts are left to others, no new connections; fetches that wait are answered,
            groups tell their members to come back, produced batches are flushed, answers leave;
            then the logs are closed, and the directory remembers that it was left in order

Nothing here decides anything: see the parts.
"""

import asyncio
import dataclasses
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from quipu.broker import envelopes, handlers, http, metrics
from quipu.broker.answers import Answers
from quipu.broker.chain_health import chain_trouble
from quipu.broker.cluster import Cluster
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.context import Broker
from quipu.broker.fetch_sessions import FetchSessions
from quipu.broker.groups import Groups
from quipu.broker.health import Health, Phase
from quipu.broker.lease import Lease
from quipu.broker.partition import Partition
from quipu.broker.partitions import Partitions
from quipu.broker.replication import Replication
from quipu.broker.replication.batch_repairs import BatchRepairs
from quipu.broker.request_queue import RequestQueue
from quipu.broker.samples import chain_samples, group_samples, lag_samples
from quipu.broker.scrubbing import Scrubber
from quipu.broker.server import Session
from quipu.broker.stats import Stats
from quipu.model.errors import QuipuError
from quipu.model.ids import Epoch, NodeId
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import Clock, SystemClock
from quipu.runtime.descriptors import shares
from quipu.runtime.discovery import Discovery
from quipu.runtime.disk import Disk, RealDisk, TransientDiskError, raise_file_limit
from quipu.runtime.garbage import no_collections
from quipu.runtime.net_limits import NetLimits
from quipu.runtime.network import FrameListener, Net, RealNet
from quipu.runtime.peer_net import Identity, PeerNet, PeerStats
from quipu.runtime.rng import Rng, SystemRng
from quipu.runtime.spawn import spawn
from quipu.runtime.turns import Turns
from quipu.runtime.workers import Workers
from quipu.storage.data_directory import DataDirectory

_log = logging.getLogger(__name__)

REMEMBER_SECONDS: Final = 5.0  # between two notes of how far logs are flushed
REMEMBER_STEP: Final = 256  # logs that are noted in one go
RETRY_SECONDS: Final = 1.0  # after which a log is opened again that could not be
FLUSH_TICK_SECONDS: Final = 0.1  # how exactly flush.ms is kept
STOP_SECONDS_MAX: Final = 10.0  # for answers to leave
NEVER_IDLE_SECONDS: Final = 10 * 365 * 86_400.0
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
        self._with_http = with_http  # not in a simulated world, which nobody scrapes
        self._workers = Workers()
        self._http: http.HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.broker: Broker
        self._frames: FrameListener
        self._directory: DataDirectory | None = None
        self._peers: PeerNet | None = None
        self._cluster: Cluster | None = None
        self._replication: Replication | None = None

    async def start(self) -> tuple[str, int]:
        """Serve; returns the address that clients connect to."""
        started = self._clock.monotonic()
        handlers.import_all()
        self._frames = self._net.frame_server(
            lambda connection: Session(self.broker, connection),
            self._limits(self._share_descriptors()))
        listener = self.settings.listeners
        host, port = self._frames.bind(listener.host, listener.port)
        try:
            if self._with_http:
                await self._start_http()
            await self._start_parts(host, port)
        except BaseException:
            await self._abandon()
            raise
        self.stats.recovery_seconds = self._clock.monotonic() - started
        self._frames.serve()
        self.health.enter(Phase.SERVING)
        _log.info("serving", extra={
            "node": self.settings.node_name, "address": f"{host}:{port}",
            "partitions": len(self.broker.partitions),
            "start_seconds": round(self.stats.recovery_seconds, 3)})
        return host, port

    async def _abandon(self) -> None:
        """Let go of everything, as a crash would: the start has failed."""
        self._frames.stop_accepting()
        for task in self._tasks:
            task.cancel()
        if self._replication is not None:
            await self._replication.stop()
        if self._cluster is not None:
            await self._cluster.stop()
        if self._peers is not None:
            await self._peers.stop()
        if self._http is not None:
            await self._http.close()
        if self._directory is not None:
            self._directory.abandon()

    async def _start_parts(self, host: str, port: int) -> None:
        settings, clock = self.settings, self._clock
        advertised_host, advertised_port = self._advertised(host, port)
        self._directory = directory = DataDirectory.open(
            self._disk, settings.log_dirs, clock, node_id=settings.own_id)
        self.stats.recovery_clean = int(directory.was_clean)
        self._peers = self._open_peers()
        self._cluster = cluster = Cluster.of(
            directory, settings, clock, self._rng, net=self._peers)
        cluster.changes.refusals = self.stats.refusals  # shown with those of other limits
        peer_address = await self._start_peers()
        await cluster.start(Endpoints(advertised_host, advertised_port, *peer_address))
        self._replication = replication = Replication(
            settings.own_id, self._peers, clock, reporter=cluster, life=cluster.broker_epoch,
            window_size=settings.chain_window_bytes, logs=directory,
            interval_ms=settings.chain_heartbeat_interval_ms)
        cluster.on_metadata_read(lambda: partial(
            replication.confirm, replication.doubts(), self._newest_epoch))
        partitions = Partitions(
            directory, cluster.topic_settings, replication, node_id=settings.own_id,
            producer_expiration_ms=settings.producer_id_expiration_ms,
            producer_retry_ms=settings.producer_id_retry_ms,
            producers_max=settings.max_producer_ids_per_partition,
            is_part=lambda place: cluster.state.is_part(
                settings.own_id, cluster.incarnation, place),
            lease=Lease(cluster, clock))
        turns = Turns(clock.monotonic)
        self.broker = Broker(
            settings=settings, clock=clock, rng=self._rng, directory=directory,
            node_id=settings.own_id, cluster_id=cluster.state.cluster_id,
            host=advertised_host, port=advertised_port, rack=settings.broker_rack,
            stats=self.stats, cluster=cluster, partitions=partitions,
            groups=None,  # type: ignore[arg-type]  # the next line
            fetch_sessions=FetchSessions(
                clock, self._rng, self.stats,
                slots=settings.max_incremental_fetch_session_cache_slots,
                partitions_max=settings.max_incremental_fetch_session_cache_partitions),
            queue=RequestQueue(turns, waiting_size_max=settings.queued_max_request_bytes),
            answers=Answers(
                turns, clock.monotonic, self.stats,
                size_max=settings.max_response_bytes,
                total_max=settings.queued_max_response_bytes),
            workers=self._workers)
        self.broker.groups = groups = Groups(self.broker)
        envelopes.serve(self.broker)
        await partitions.recover(list(cluster.state.topics.values()))
        replication.start()
        cluster.follow(partitions)
        self.health.check("chain", lambda: chain_trouble(cluster))
        self.health.watch(lambda: _failures(partitions))
        replication.watch(groups)
        await groups.start()
        self._tell_strays()
        self._start_tasks(BatchRepairs(
            directory, partitions, self._peers, clock, node_id=settings.own_id, stats=self.stats,
            health=self.health))
        await cluster.serve()

    def _newest_epoch(self, partition: Partition) -> Epoch | None:
        """Of a partition's chain, as the metadata has it here; None if this node has no part."""
        assert self._cluster is not None
        cluster, number = self._cluster, partition.topic_partition.partition
        topic = cluster.state.topics_by_id.get(partition.topic_id)
        if topic is None or number >= len(topic.partitions) or not cluster.state.is_part(
                self.settings.own_id, cluster.incarnation):
            return None
        return topic.partitions[number].replica_set.epoch

    def _open_peers(self) -> PeerNet | None:
        """The ways to other nodes, not yet open; none for a node that is told of no listener."""
        settings = self.settings
        if settings.peer_listener is None:
            return None
        identity = Identity(settings.own_id, settings.node_name, self._rng.uuid())
        return self._net.peers(identity, settings, self._rng)

    async def _start_peers(self) -> tuple[str, int]:
        """Open them; gives where other nodes reach this one."""
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
        broker = self.broker
        scrubber = Scrubber(broker.directory, self.settings, self._clock, self.stats)
        retention_seconds = self.settings.log_retention_check_interval_ms / 1000
        self._tasks += [
            spawn(_every(FLUSH_TICK_SECONDS, self._flush_due), "flush"),
            spawn(_every(REMEMBER_SECONDS, self._remember), "remember"),
            spawn(_every(RETRY_SECONDS, self._open_again), "retry"),
            spawn(_every(retention_seconds, self._retain), "retention"),
            spawn(scrubber.run(), "scrub"),
            spawn(repairs.run(), "repair"),
        ]

    def _tell_strays(self) -> None:
        """Name logs that belong to no topic: of one deleted just before a crash, or misplaced."""
        directory, partitions = self.broker.directory, self.broker.partitions
        known = {partition.log.entry for partition in partitions.all()}
        strays = sorted(set(directory.names()) - known)
        if strays:
            _log.warning("%d directories in %s belong to no topic and are left alone: %s",
                         len(strays), directory.path, ", ".join(strays[:10]))

    def _share_descriptors(self) -> int:
        """Decide what descriptors are for; gives how many connections there may be."""
        limit, wanted = raise_file_limit(), self.settings.max_connections
        connections, self._real_disk.files.count_max = shares(limit, connections_max=wanted)
        if connections < wanted and "max.connections" in self.settings.explicit:
            _log.warning("max.connections is %d instead of %d: this process may open %d files "
                         "(ulimit -n)", connections, wanted, limit)
        return connections

    def _limits(self, connections_max: int) -> NetLimits:
        settings = self.settings
        idle_ms = settings.connections_max_idle_ms
        rate_max = settings.max_connection_creation_rate
        return NetLimits(
            frame_size_max=settings.socket_request_max_bytes,
            partial_size_max=settings.queued_max_request_bytes,
            connections_max=connections_max,
            idle_seconds_max=idle_ms / 1000 if idle_ms >= 0 else NEVER_IDLE_SECONDS,
            per_address_max=_or_half(connections_max, settings.max_connections_per_ip),
            per_address_overrides=dict(settings.max_connections_per_ip_overrides),
            rate_max=rate_max,
            rate_per_address_max=_or_half(
                rate_max, settings.max_connection_creation_rate_per_ip),
        )

    def _advertised(self, host: str, port: int) -> tuple[str, int]:
        """What clients are told to connect to."""
        advertised = self.settings.advertised_listeners
        return (host, port) if advertised is None else (advertised.host, advertised.port or port)

    async def _start_http(self) -> None:
        listener = self.settings.metrics_listener
        sources = metrics.Sources(
            stats=self.stats, net=self._frames.stats, partitions=self._partition_views,
            chains=lambda: self._samples(chain_samples),
            groups=lambda: self._samples(group_samples), lags=lambda: self._samples(lag_samples),
            peers=self._peer_stats, ready=lambda: self.health.ready,
            stepped_back=lambda: (self._cluster is not None
                                  and self._cluster.why_stepped_back is not None),
        )
        self._http = http.HttpServer(
            http.routes(self.health, sources), stats=self.stats,
            connections_max=self.settings.metrics_max_connections)
        host, port = await self._http.start(
            listener.host, listener.port, or_any="metrics.listener" not in self.settings.explicit)
        _log.info("metrics and health", extra={"http": f"{host}:{port}"})

    def _peer_stats(self) -> PeerStats:
        if self._peers is None or self._cluster is None or self._replication is None:
            return PeerStats()
        return dataclasses.replace(self._peers.stats, messages_refused=(
            self._cluster.refused_count + self._replication.refused_count))

    def _partition_views(self) -> Sequence[metrics.PartitionView]:
        return [] if self.health.phase is Phase.STARTING else list(self.broker.partitions.all())

    def _samples(self, take: Callable[[Broker], Iterable[T]]) -> Iterable[T]:
        return [] if self.health.phase is Phase.STARTING else take(self.broker)

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
        directory = self._directory
        trouble = self._take_refusal()
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
        """The last write that the disk has refused since this was last asked, for want of room or
        the like; a log that the disk has failed is that log's trouble alone.
        """
        assert self._directory is not None
        refusal, self._directory.refusal = self._directory.refusal, None
        return refusal if isinstance(refusal, TransientDiskError) else None

    async def _open_again(self) -> None:
        """Logs that could not be opened for want of descriptors, memory or room."""
        assert self._directory is not None
        assert self._replication is not None
        for log in await self._directory.retry_failed():
            _log.info("open again", extra={"log": log.name})
            for partition in self.broker.partitions.all():
                if partition.log is log:
                    self._replication.opened_anew(partition)

    async def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self.broker.partitions.all():
            try:
                if partition.failed is None:
                    self.stats.segments_removed += partition.apply_retention(now_ms)
            except QuipuError as error:  # of one partition: the others may make room
                _log.warning("%s: retention: %s", partition.topic_partition, error)
            await asyncio.sleep(0)

    # -- the end

    async def stop(self) -> None:
        """Stop in order; safe to call once, after `start`."""
        assert self._cluster is not None
        assert self._replication is not None
        self.health.enter(Phase.STOPPING)
        _log.info("stopping")
        await self._cluster.leave()
        self._frames.stop_accepting()
        for task in self._tasks:
            task.cancel()
        for waiter in list(self.broker.partitions.waiting):
            waiter.advanced(0)
        await self.broker.groups.stop()
        await self._replication.stop()
        assert self._directory is not None
        await self._directory.flush()
        await self._frames.close(grace_seconds=STOP_SECONDS_MAX)
        self._workers.close()
        await self._cluster.stop()
        if self._peers is not None:
            await self._peers.stop()
        self._directory.close()
        if self._http is not None:
            await self._http.close()
        _log.info("stopped")


def _failures(partitions: Partitions) -> dict[str, str]:
    """Partitions that cannot be served here, and why."""
    return {str(partition.topic_partition): str(partition.failed)
            for partition in partitions.all() if partition.failed is not None}


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work` again and again; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except QuipuError as error:
            _log.error("background work failed, and is done again: %s", error)
        except Exception:  # noqa: BLE001 the next time may go well
            _log.exception("background work failed")


def _or_half(all_max: int, given: int | None) -> int:
    """What one address may have: so much that it cannot take everything."""
    return max(1, all_max // 2) if given is None else given


async def run(settings: BrokerSettings, announce: Callable[[str, int], None]) -> None:
    """Run a node until SIGTERM or SIGINT; `announce` hears the address once it serves.

    A signal while it starts abandons the start: what was recovered so far is recovered again.  A
    second signal ends the process at once.
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
        _log.info("told to stop while starting")
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
