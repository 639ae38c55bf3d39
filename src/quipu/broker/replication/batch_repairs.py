"""Replaces damaged batches by those of another replica, or of the remote tier.

    request   topic id 16 bytes | partition i32 | log offset i64 | bytes at most i32
    response  stored batches from that log offset on: as many as fit, at least one

Invariants
    broker.replication.E1  only committed batches are repaired: below the commit point all replicas
                           are the same, or, in compacted logs, the same for a reader
    broker.replication.E2  batches are requested only from serving members of the chain, and given
                           only to members
    broker.replication.E3  a replacement is checked against what is known of the damage, and is
                           durable, before it is used (storage/segments/damage.py)
    broker.replication.E4  damage that no member can repair is remembered: the repair is tried again
                           with growing pauses, and reads of its records fail with CORRUPT_MESSAGE
                           instead of an error that clients retry
    broker.replication.E5  the tier is asked last, and only for what it was committed to have and no
                           replica has compacted: that is the same everywhere, byte for byte

Not here: how damage is found (partitions/scrubbing.py, and every read).
"""

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from quipu.broker.observing.health import Health
from quipu.broker.observing.stats import Stats
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.model.errors import Code, MalformedBytes, QuipuError, RequestError
from quipu.model.ids import LogOffset, NodeId, Offset
from quipu.runtime.clock import Clock
from quipu.runtime.disks.work import off_loop
from quipu.runtime.peers.peer_net import PeerNet
from quipu.storage.compaction.fillers import cropped
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.segments.damage import (
    Damage,
    check_replacement,
    epochs_around,
    write_mended,
)
from quipu.storage.segments.segment import Segment
from quipu.wire.scan_run import sound_end

if TYPE_CHECKING:
    from quipu.broker.partitions.partitions import Partitions

CALL_KIND: Final = 2  # of calls between nodes
TICK_SECONDS: Final = 0.2
PART_SIZE_MAX: Final = 1 << 20  # bytes of one response, unless one batch is larger
COMPACTED_GROWTH_MAX: Final = 64 << 20  # by which a replacement may exceed a compacted stretch
PAUSE_SECONDS_MIN: Final = 0.5  # before a repair is tried again; doubled each time
PAUSE_SECONDS_MAX: Final = 60.0

_REQUEST: Final = Struct(">16siqi")
_log = logging.getLogger(__name__)


class _Try(NamedTuple):
    """When to try a repair again, and how long to wait after that."""

    at: float
    pause_seconds: float


class BatchRepairs:
    """Repairs damage found on one node, and serves batches for the repairs of others."""

    def __init__(
        self,
        directory: DataDirectory,
        partitions: "Partitions",
        peers: PeerNet | None,
        clock: Clock,
        *,
        node_id: NodeId,
        stats: Stats,
        health: Health,
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._peers = peers
        self._monotonic = clock.monotonic
        self._node_id = node_id
        self._stats = stats
        self._health = health
        self._tries: dict[Damage, _Try] = {}
        if peers is not None:
            peers.serve(CALL_KIND, self._serve)

    async def run(self) -> None:
        """Repair damage as it is found, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._directory.opened.damaged or self._tries:
                try:
                    await self.repair_all()
                except Exception:  # noqa: BLE001 the next time may go well
                    _log.exception("repair failed")

    async def repair_all(self) -> None:
        """Try to repair all known damage whose pause is over."""
        segments = self._directory.opened.damaged
        tries: dict[Damage, _Try] = {}
        for segment in list(segments):
            for damage in list(segment.damage):
                if damage not in self._tries:
                    self._stats.damaged_batches += 1
                last = self._tries.get(damage) or _Try(0.0, PAUSE_SECONDS_MIN / 2)
                if last.at > self._monotonic():
                    tries[damage] = last
                elif not await self._repair(segment, damage):
                    pause = min(2 * last.pause_seconds, PAUSE_SECONDS_MAX)
                    tries[damage] = _Try(self._monotonic() + pause, pause)
            if not segment.damage:
                segments.pop(segment, None)
        self._tries = tries
        self._stats.damaged_now = len(tries)
        if tries:
            self._health.warn("damage", f"{len(tries)} damaged ranges of logs could "
                              "not be repaired yet: see the node's log")
        else:
            self._health.mend("damage")

    async def _repair(self, segment: Segment, damage: Damage) -> bool:
        partition = self._partition_of(segment)
        if segment.file is not None or partition is None:
            damage.is_lost = partition is None or not self._sources(partition, damage)
            return False  # an active segment is repaired after it is complete
        problem = "no other node of the chain serves"
        for source in self._sources(partition, damage):
            name = "the remote tier" if source is None else f"node {source}"
            try:
                if (source is not None  # what is in the tier is committed
                        and damage.next_log > partition.commit_waiters.committed_log):
                    problem = "it is not committed yet"  # broker.replication.E1
                    continue
                compacted = damage.next_log <= partition.log.compacted_end
                data = memoryview(
                    await self._from_tier(partition, damage) if source is None else
                    await self._fetch(partition, damage, source, compacted=compacted))
                count = check_replacement(  # broker.replication.E3
                    partition.log.name, damage, data, epochs_around(segment, damage),
                    compacted=compacted)
                await self._replace(partition, segment, damage, data)
            except QuipuError as error:
                problem = f"{name}: {error}"
                continue
            self._stats.repaired_batches += count
            _log.warning("%s: %s: repaired with %d batches of %s", segment.path, damage, count,
                         name)
            partition.wake_fetches()
            return True
        damage.is_lost = True  # broker.replication.E4
        if damage not in self._tries:
            _log.error("%s: %s: cannot be repaired now: %s", segment.path, damage, problem)
        return False

    def _partition_of(self, segment: Segment) -> ReplicatedPartition | None:
        for partition in self._partitions.replicated():
            if partition.log.holds(segment):
                return partition
        return None

    def _others(self, partition: ReplicatedPartition) -> list[NodeId]:
        """Return the other serving members, the tail first (broker.replication.E2)."""
        if self._peers is None or partition.replica_set is None:
            return []
        return [node_id for node_id in reversed(partition.replica_set.serving)
                if node_id != self._node_id]

    def _sources(
        self, partition: ReplicatedPartition, damage: Damage
    ) -> list[NodeId | None]:
        """Who may have the batches: other members, and last the remote tier, which is None.

        The tier's copies of what was compacted are not this replica's (broker.replication.E5).
        """
        found: list[NodeId | None] = list(self._others(partition))
        if (partition.remote_reads is not None
                and damage.offset < damage.next_offset <= partition.highest_tiered_offset + 1
                and damage.log_offset >= partition.log.compacted_end):
            found.append(None)
        return found

    async def _from_tier(self, partition: ReplicatedPartition, damage: Damage) -> bytes:
        """Return the batches that replace `damage`, as the remote tier has them."""
        assert partition.remote_reads is not None
        return await partition.remote_reads.stored_batches(
            partition, Offset(damage.offset), LogOffset(damage.log_offset),
            LogOffset(damage.next_log), size_max=damage.size)

    async def _fetch(
        self, partition: ReplicatedPartition, damage: Damage, node_id: NodeId, *, compacted: bool
    ) -> bytes:
        """Return the batches that replace `damage`, fetched from `node_id` part by part.

        In a compacted log they need not have the size of what they replace.
        """
        assert self._peers is not None
        data = bytearray()
        at = damage.log_offset
        room = damage.size + (COMPACTED_GROWTH_MAX if compacted else 0)
        while at < damage.next_log if compacted else len(data) < damage.size:
            size_max = min(damage.size - len(data), PART_SIZE_MAX) if not compacted else 1
            part = await self._peers.call(
                node_id, CALL_KIND,
                _REQUEST.pack(partition.topic_id.bytes, partition.topic_partition.partition, at,
                              size_max))
            if not 0 < len(part) <= room - len(data):
                raise RequestError(f"sent {len(part)} bytes where {room - len(data)} are "
                                   "missing", code=Code.INVALID_RECORD)
            sound, at = sound_end(memoryview(part), 0, len(part), at)
            if sound != len(part):
                raise RequestError(f"sent a damaged batch at log offset {at}",
                                   code=Code.CORRUPT_MESSAGE)
            data += cropped(part, damage.next_log) if compacted else part
        return bytes(data)

    async def _replace(
        self, partition: ReplicatedPartition, segment: Segment, damage: Damage, data: memoryview
    ) -> None:
        disk, size, path = self._directory.disk, segment.size, segment.path
        await off_loop(disk, lambda: write_mended(disk, path, damage, data))
        if (segment.file is not None or segment.size != size or damage not in segment.damage
                or not partition.log.holds(segment)):
            raise RequestError("the segment was removed meanwhile", code=Code.OFFSET_OUT_OF_RANGE)
        partition.log.take_mended(segment, damage, len(data))
        await off_loop(disk, lambda: disk.sync_directory(partition.log.directory.path))

    # -- for other nodes

    async def _serve(self, sender: NodeId, body: bytes) -> bytes:
        if len(body) != _REQUEST.size:
            raise MalformedBytes(f"a request for batches of {len(body)} bytes")
        topic_id, index, log_offset, size_max = _REQUEST.unpack(body)
        partition = self._partitions.find_replicated(topic_id, index)
        if partition is None:
            raise RequestError("no such partition here", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        replica_set = partition.replica_set
        if replica_set is None or sender not in replica_set.replicas or not partition.is_serving:
            raise RequestError(  # broker.replication.E2
                f"{partition.topic_partition}: not served here, or not for node {sender}",
                code=Code.NOT_LEADER_OR_FOLLOWER)
        entries = partition.log.read_entries(
            LogOffset(log_offset), min(max(size_max, 1), PART_SIZE_MAX))
        return b"".join(entry.data for entry in entries)
