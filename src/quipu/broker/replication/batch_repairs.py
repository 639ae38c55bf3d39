"""Damaged batches are replaced by those of another replica.

    request   topic id 16 bytes | partition i32 | log offset i64 | bytes at most i32
    answer    stored batches from that log offset on: as many as fit, at least one

Invariants
    E1  only what is committed is repaired: below the commit point all replicas are the same
    E2  only a member of the chain is asked, and only one is answered; who is asked must serve
    E3  what comes is checked against what is known of the damage before it takes its place, and
        is durable before it does (storage/damage.py, B4, B5)
    E4  damage that nobody can repair stays known: it is tried again, less and less often, and its
        records are refused with CORRUPT_MESSAGE instead of an error that clients retry

Not here: who finds damage (scrubbing.py, and every read).
"""

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from quipu.broker.health import Health
from quipu.broker.partition import Partition
from quipu.broker.stats import Stats
from quipu.model.errors import Code, MalformedBytes, QuipuError, RequestError
from quipu.model.ids import LogOffset, NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.disk_work import off_loop
from quipu.runtime.peer_net import PeerNet
from quipu.storage.damage import (
    Damage,
    check_replacement,
    epochs_around,
    take_mended,
    write_mended,
)
from quipu.storage.data_directory import DataDirectory
from quipu.storage.segment import Segment
from quipu.wire.scan_run import sound_end

if TYPE_CHECKING:
    from quipu.broker.partitions import Partitions

CALL_KIND: Final = 2  # of calls between nodes
TICK_SECONDS: Final = 0.2
PART_SIZE_MAX: Final = 1 << 20  # of one answer, or one batch
CALL_SECONDS_MAX: Final = 10.0
PAUSE_SECONDS_MIN: Final = 0.5  # before damage is tried again; twice as long each time
PAUSE_SECONDS_MAX: Final = 60.0

_REQUEST: Final = Struct(">16siqi")
_log = logging.getLogger(__name__)


class _Try(NamedTuple):
    """When to try again."""

    at: float
    pause_seconds: float


class BatchRepairs:
    """Repairs what was found on one node, and gives others what they need for theirs."""

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
        """Repair what is found, as long as the node lives."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._directory.opened.damaged or self._tries:
                try:
                    await self.repair_all()
                except Exception:  # noqa: BLE001 the next time may go well
                    _log.exception("repair failed")

    async def repair_all(self) -> None:
        """Try everything whose time has come."""
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
            self._health.warn("damage", f"{len(tries)} stretches of logs are damaged and could "
                              "not be repaired yet: see the log")
        else:
            self._health.mend("damage")

    async def _repair(self, segment: Segment, damage: Damage) -> bool:
        partition = self._partition_of(segment)
        if segment.file is not None or partition is None:
            damage.is_lost = partition is None or not self._others(partition)
            return False  # an active one has its turn when it is complete
        problem = "no other node of the chain serves"
        for node_id in self._others(partition):
            try:
                if damage.next_log > partition.commits.committed_log:
                    problem = "it is not committed yet"  # E1
                    break
                data = memoryview(await self._fetch(partition, damage, node_id))
                count = check_replacement(
                    partition.log.name, damage, data, epochs_around(segment, damage))  # E3
                await self._replace(partition, segment, damage, data)
            except QuipuError as error:
                problem = f"node {node_id}: {error}"
                continue
            self._stats.repaired_batches += count
            _log.warning("%s: %s: repaired with %d batches of node %d", segment.path, damage,
                         count, node_id)
            partition.wake()
            return True
        damage.is_lost = True  # E4
        if damage not in self._tries:
            _log.error("%s: %s: cannot be repaired now: %s", segment.path, damage, problem)
        return False

    def _partition_of(self, segment: Segment) -> Partition | None:
        for partition in self._partitions.all():
            if any(each is segment for each in partition.log.files):
                return partition
        return None

    def _others(self, partition: Partition) -> list[NodeId]:
        """Who may have what this node lacks: those who serve, the tail first."""
        if self._peers is None or partition.replica_set is None:
            return []
        return [node_id for node_id in reversed(partition.replica_set.serving)
                if node_id != self._node_id]

    async def _fetch(self, partition: Partition, damage: Damage, node_id: NodeId) -> bytes:
        """The batches of the stretch, part by part."""
        assert self._peers is not None
        data = bytearray()
        at = damage.log_offset
        while len(data) < damage.size:
            size_max = min(damage.size - len(data), PART_SIZE_MAX)
            part = await self._peers.call(
                node_id, CALL_KIND,
                _REQUEST.pack(partition.topic_id.bytes, partition.topic_partition.partition, at,
                              size_max),
                timeout_seconds=CALL_SECONDS_MAX)
            if not 0 < len(part) <= damage.size - len(data):
                raise RequestError(f"gave {len(part)} bytes where {damage.size - len(data)} are "
                                   "missing", code=Code.INVALID_RECORD)
            data += part
            sound, at = sound_end(memoryview(part), 0, len(part), at)
            if sound != len(part):
                raise RequestError(f"gave a damaged batch at log offset {at}",
                                   code=Code.CORRUPT_MESSAGE)
        return bytes(data)

    async def _replace(
        self, partition: Partition, segment: Segment, damage: Damage, data: memoryview
    ) -> None:
        disk, size, path = self._directory.disk, segment.size, segment.path
        await off_loop(disk, lambda: write_mended(disk, path, damage, data))
        if (segment.file is not None or segment.size != size or damage not in segment.damage
                or not any(each is segment for each in partition.log.files)):
            raise RequestError("the segment has gone meanwhile", code=Code.OFFSET_OUT_OF_RANGE)
        take_mended(disk, segment, damage)
        await off_loop(disk, lambda: disk.sync_directory(partition.log.directory))

    # -- for others

    async def _serve(self, sender: NodeId, body: bytes) -> bytes:
        if len(body) != _REQUEST.size:
            raise MalformedBytes(f"a request for batches of {len(body)} bytes")
        topic_id, index, log_offset, size_max = _REQUEST.unpack(body)
        partition = self._partitions.find_for_wire(topic_id, index)
        if partition is None:
            raise RequestError("no such partition here", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        replica_set = partition.replica_set
        if replica_set is None or sender not in replica_set.replicas or not partition.is_serving:
            raise RequestError(f"{partition.topic_partition}: not served here, or not for node "
                               f"{sender}", code=Code.NOT_LEADER_OR_FOLLOWER)  # E2
        entries = partition.log.read_entries(
            LogOffset(log_offset), min(max(size_max, 1), PART_SIZE_MAX))
        return b"".join(entry.data for entry in entries)
