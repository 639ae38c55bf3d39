"""A partition that this broker leads: writes go to the backend first, reads come from memory.

    TAKING    the leader's epoch is not stored yet, or the metadata is not loaded yet
    SERVING   the cache is what is stored
    UNKNOWN   a write's outcome is unknown: taken over again before anything else is served
    DELETED   the partition's deletion is finished
    FENCED    another leader has taken over; only a new election helps

To take over, a leader writes its epoch and a fresh id into the partition's header, if the header
has no newer epoch; every later write expects that header, in the same atomic step.  So what a
former leader still had under way is either seen when the metadata is loaded, or refused.

Invariants
    remote.W1  the cache changes after the backend has stored the change, and never without
    remote.W2  after an error that leaves the outcome open, nothing is served before the partition
               is taken over and loaded again; late effects of the write are refused by then
    remote.W3  every write expects the header of this takeover; a deposed leader changes nothing
    remote.W4  a deletion that was begun to be removed leaves no key behind, whoever finishes it:
               the header, which says so, goes last
    remote.W5  a partition that has a header is in the list of its cluster: its entry there is
               created before, and removed after it
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from itertools import count
from typing import Final
from uuid import UUID

from quipu.model.errors import QuipuError
from quipu.remote.metadata.changes import (
    MetadataStorage,
    change_operations,
    load_cache,
    load_header,
)
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    ExpectationFailed,
    FencedLeader,
    InvalidMetadata,
    KeyExists,
    KeyNotFound,
    OutcomeUnknown,
    RemoteResourceNotFound,
)
from quipu.remote.metadata.partition_cache import PartitionCache, SegmentChange
from quipu.remote.metadata.segment_metadata import (
    INT32_MAX,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.serde import PartitionHeader
from quipu.remote.metadata.states import DELETE_NEXT, PARTITION_FINISHED, check_transition
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    ExpectValue,
    Operation,
    RemoveKey,
    UpdateKey,
)
from quipu.runtime.rng import Rng

TAKEOVER_ATTEMPTS_MAX: Final = 10  # each lost to another one that takes over
LOAD_TIMEOUTS: Final = 10  # a takeover may take so many times as long as one write
WALK_TURN: Final = 200  # steps through the cache before other tasks get the loop

_log = logging.getLogger(__name__)


class LeaderPhase(Enum):
    """How far a leader is."""

    TAKING = "taking"
    SERVING = "serving"
    UNKNOWN = "unknown"
    DELETED = "deleted"
    FENCED = "fenced"


class LeaderPartition:
    """The remote segments of one partition, for as long as this broker leads it in one epoch."""

    def __init__(
        self, storage: MetadataStorage, partition: TopicIdPartition, *,
        leader_epoch: int, broker_id: int, rng: Rng, timeout_seconds: float,
        entry_key: str | None = None,
    ) -> None:
        """`entry_key` is that of the partition's entry in the list of its cluster, if any."""
        if not 0 <= leader_epoch <= INT32_MAX:
            raise InvalidMetadata(f"{partition}: leader epoch {leader_epoch} cannot be")
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.phase = LeaderPhase.TAKING
        self._storage = storage
        self._broker_id = broker_id
        self._rng = rng
        self._timeout_seconds = timeout_seconds
        self._entry_key = entry_key
        self._cache = PartitionCache(partition)
        self._header: PartitionHeader | None = None
        self._header_bytes = b""
        self._deposed_by: PartitionHeader | None = None  # once it is fenced, if known
        self._claimed: set[UUID] = set()  # incarnations of headers that this object has written
        self._lock = asyncio.Lock()  # one write, or one takeover, at a time

    # --- writes -----------------------------------------------------------------------------

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Store that the copy of a segment begins."""
        async with self._lock:
            await self._ensure_serving()
            await self._store(self._cache.plan_add(metadata))

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Store a segment's next state."""
        async with self._lock:
            await self._ensure_serving()
            await self._store(self._cache.plan_update(update))

    async def put_deletion(self, deletion: RemotePartitionDeleteMetadata) -> None:
        """Store how far the partition's deletion is; when it is finished, remove every key."""
        async with self._lock:
            if self.phase is LeaderPhase.DELETED and deletion.state is PARTITION_FINISHED:
                return  # a retry
            try:
                await self._ensure_serving()
            except RemoteResourceNotFound:
                if deletion.state is PARTITION_FINISHED:
                    return  # taking over found it finished, and went on
                raise
            assert self._header is not None
            before = self._header.deletion
            check_transition(DELETE_NEXT, before.state if before else None, deletion.state,
                             f"the deletion of {self.partition}")
            await self._put_header(replace(self._header, deletion=deletion))
            if deletion.state is PARTITION_FINISHED:
                await self._guarded(self._remove_all())

    async def _store(self, change: SegmentChange) -> None:
        await self._execute(change_operations(self._storage, self._cache, change))
        self._cache.apply(change)  # remote.W1

    async def _put_header(self, header: PartitionHeader) -> None:
        """Replace the header of this takeover."""
        encoded = self._storage.serde.serialize(header)
        await self._execute([UpdateKey(self._header_key, encoded)])
        self._header, self._header_bytes = header, encoded

    async def _execute(self, operations: Sequence[Operation]) -> None:
        """Store, in one step, if this broker still leads (remote.W3)."""
        await self._guarded(self._storage.backend.execute([self._expected(), *operations]))

    async def _guarded(self, writing: Awaitable[None]) -> None:
        """Await a write that expects this leader's header; note what its failure means."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await writing
        except TimeoutError:
            self.phase = LeaderPhase.UNKNOWN  # remote.W2
            raise OutcomeUnknown(
                f"{self.partition}: no response of the storage within {self._timeout_seconds} s; "
                "the write may have been carried out: repeat it") from None
        except ExpectationFailed as error:
            raise self._fenced() from error
        except BackendUnavailable as error:
            if isinstance(error, OutcomeUnknown):
                self.phase = LeaderPhase.UNKNOWN  # remote.W2
            raise
        except BaseException:  # also a cancellation, or an error that no backend should raise
            self.phase = LeaderPhase.UNKNOWN  # remote.W2
            raise

    async def _remove_all(self) -> None:
        """Remove every key, the header last: until then, whoever takes over goes on (remote.W4)."""
        backend, keys = self._storage.backend, self._storage.keys
        for key in (keys.epochs_key(self.partition), keys.segments_key(self.partition)):
            await backend.remove_like(key, expected=[self._expected()])
        await backend.execute([self._expected(), RemoveKey(self._header_key)])
        self._become_deleted()
        if self._entry_key is not None:
            await backend.execute([RemoveKey(self._entry_key)])  # remote.W5

    # --- reads ------------------------------------------------------------------------------

    async def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        return (await self._serving_cache()).find(epoch, offset)

    async def next_with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment at or after `offset`, without a gap, whose transaction index is not
        empty.
        """
        for step in count():
            found = (await self._serving_cache()).find(epoch, offset)
            if found is None or not found.txn_index_empty:
                return found
            offset = found.end_offset + 1
            if step % WALK_TURN == WALK_TURN - 1:
                await asyncio.sleep(0)
        raise AssertionError(offset)

    async def highest_offset(self, epoch: int) -> int | None:
        return (await self._serving_cache()).highest_offset(epoch)

    async def segments(self) -> list[RemoteLogSegmentMetadata]:
        return list((await self._serving_cache()).segments())

    async def segments_of(self, epoch: int) -> list[RemoteLogSegmentMetadata]:
        return (await self._serving_cache()).segments_of(epoch)

    async def size_bytes(self, epoch: int) -> int:
        return (await self._serving_cache()).size_bytes(epoch)

    async def _serving_cache(self) -> PartitionCache:
        if self.phase is not LeaderPhase.SERVING:
            async with self._lock:
                await self._ensure_serving()
        return self._cache

    # --- taking over ------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        return self.phase in (LeaderPhase.SERVING, LeaderPhase.DELETED)

    async def start(self) -> None:
        """Take over now; if that fails, the next read or write tries again."""
        try:
            async with self._lock:
                await self._ensure_serving()
        except RemoteResourceNotFound:
            _log.info("%s: its deletion was finished", self.partition)
        except QuipuError as error:
            _log.warning("%s: remote log metadata is not ready: %s", self.partition, error)

    async def _ensure_serving(self) -> None:
        """Take over if needed; raise if this broker must not serve the partition."""
        if self.phase is LeaderPhase.FENCED:
            raise self._fenced()
        if self.phase in (LeaderPhase.TAKING, LeaderPhase.UNKNOWN):
            try:
                async with asyncio.timeout(self._timeout_seconds * LOAD_TIMEOUTS):
                    await self._take_over()
            except TimeoutError:
                raise BackendUnavailable(f"{self.partition}: the storage is too slow to load its "
                                         "metadata; try again later") from None
        if self.phase is LeaderPhase.DELETED:
            raise RemoteResourceNotFound(f"{self.partition}: its remote segments were deleted")
        assert self.phase is LeaderPhase.SERVING, self.phase

    async def _take_over(self) -> None:
        """Become the only writer, then load what is stored, or go on with a deletion."""
        for _ in range(TAKEOVER_ATTEMPTS_MAX):
            found = await load_header(self._storage, self.partition)
            if found is None and self._header is not None:
                self._become_deleted()  # it was there: somebody finished the deletion
                return
            if await self._claim(found):
                break
        else:
            raise BackendUnavailable(f"{self.partition}: other brokers take over at the same time; "
                                     "try again later")
        assert self._header is not None
        if self._header.deletion is not None and self._header.deletion.state is PARTITION_FINISHED:
            await self._guarded(self._remove_all())  # remote.W4
            return
        try:
            self._cache = await load_cache(self._storage, self.partition)
        finally:  # what was read while another leader writes means nothing
            found = await load_header(self._storage, self.partition)
            if found is None or found[0] != self._header_bytes:
                raise self._fenced(found[1] if found else None)
        self.phase = LeaderPhase.SERVING

    async def _claim(self, found: tuple[bytes, PartitionHeader] | None) -> bool:
        """Write a header of this leader in place of the one that was found; False if it changed."""
        if found is not None and self._is_newer(found[1]):
            raise self._fenced(found[1])
        header = PartitionHeader(
            partition=self.partition, leader_epoch=self.leader_epoch, broker_id=self._broker_id,
            incarnation=self._rng.uuid(), deletion=found[1].deletion if found else None)
        encoded = self._storage.serde.serialize(header)
        if found is None and self._entry_key is not None:
            with suppress(KeyExists):  # remote.W5
                await self._storage.backend.create(
                    self._entry_key, self._storage.serde.serialize(self.partition))
        self._claimed.add(header.incarnation)
        try:
            await self._storage.backend.execute(
                [CreateKey(self._header_key, encoded)] if found is None else
                [ExpectValue(self._header_key, found[0]), UpdateKey(self._header_key, encoded)])
        except (ExpectationFailed, KeyExists, KeyNotFound):
            return False
        self._header, self._header_bytes = header, encoded
        self._claimed = {header.incarnation}
        return True

    def _is_newer(self, header: PartitionHeader) -> bool:
        """Whether a header is of a leader that this one must not replace (remote.W3)."""
        if header.leader_epoch != self.leader_epoch:
            return header.leader_epoch > self.leader_epoch
        if header.broker_id != self._broker_id:
            return True
        # Once this object led, another takeover by this broker in the same epoch is a later one.
        return self._header is not None and header.incarnation not in self._claimed

    def _fenced(self, by: PartitionHeader | None = None) -> FencedLeader:
        self.phase = LeaderPhase.FENCED
        self._deposed_by = by = by or self._deposed_by
        who = (f"broker {by.broker_id} leads it in epoch {by.leader_epoch}" if by is not None
               else "another leader has taken over")
        return FencedLeader(f"{self.partition}: broker {self._broker_id} led it in epoch "
                            f"{self.leader_epoch}, but {who}; nothing was written")

    def _become_deleted(self) -> None:
        self.phase = LeaderPhase.DELETED
        self._cache = PartitionCache(self.partition)

    @property
    def _header_key(self) -> str:
        return self._storage.keys.header_key(self.partition)

    def _expected(self) -> ExpectValue:
        return ExpectValue(self._header_key, self._header_bytes)

    def invariants(self) -> None:
        """Assert what holds between two calls."""
        if self.phase is not LeaderPhase.FENCED:  # else it may be of two leaders
            self._cache.invariants()
        if self.phase is LeaderPhase.SERVING:
            assert self._header is not None, self.partition  # remote.W3
            assert self._header.leader_epoch == self.leader_epoch, self._header  # remote.W3
