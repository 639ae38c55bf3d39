"""A world of writers, readers and one cleaner: what was acknowledged is known, and is checked."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast
from uuid import UUID

from quipu.diskless.cleaning.cleaner import DisklessCleaner
from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.cleaning.stats import CleaningStats
from quipu.diskless.control_plane.interface import (
    BatchOutcome,
    ControlPlane,
    FindRequest,
    RetentionRule,
)
from quipu.diskless.objects.encoding import EncodedObject, PendingBatch, encode_object
from quipu.diskless.objects.footer import NO_OFFSET, ObjectFooter
from quipu.diskless.objects.names import OBJECTS_PREFIX, RECEIPTS_PREFIX, ObjectName
from quipu.diskless.objects.reading import check_run, read_footer
from quipu.diskless.objects.receipts import Receipt, make_receipt
from quipu.diskless.values import LogKey
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset
from quipu.runtime.clock import ManualClock
from quipu.runtime.objects.store import ByteRange, ObjectInfo, ObjectStore
from quipu.runtime.rng import SeededRng
from quipu.wire.record_batch import Record, encode_batch, parse_header
from tests.diskless.cleaning.faults import Faults, FaultyPlane, FaultyStore

HOUR_MS = 3_600_000
LIMITS = CleaningLimits(
    object_grace_ms=600_000, coordinates_ms=300_000, orphan_grace_ms=2 * HOUR_MS,
    rewrite_age_ms=HOUR_MS // 2, rewrite_small_bytes=2_000, rewrite_object_bytes=8_000,
    rewrite_pass_bytes=40_000, rewrite_objects_min=4)


@dataclass(slots=True)
class Writer:
    """One process that writes objects; a late one still wants to commit those it has stored."""

    node_id: NodeId
    id: UUID
    sequence: int = 0
    receipts: list[Receipt] = field(default_factory=list)
    stored: list[EncodedObject] = field(default_factory=list)  # and not committed yet


class CleaningWorld:
    """Logs with known records, over a real store and a real control plane."""

    def __init__(
        self, store: ObjectStore, plane: ControlPlane, *, seed: int = 0,
        limits: CleaningLimits = LIMITS,
    ) -> None:
        self.random = Random(seed)
        self.rng = SeededRng(seed)
        self.clock = ManualClock()
        self.faults = Faults(self.random)
        self.store = FaultyStore(store, self.faults, self.clock.now_ms)
        self.plane = plane
        self.limits = limits
        self.rules: dict[LogKey, RetentionRule] = {}
        self.records: dict[LogKey, dict[Offset, bytes]] = {}  # acknowledged batches by offset
        self.noted: set[str] = set()  # objects whose receipts were stored
        self.has_orderly_writers = False  # they store their last receipts before they end
        self.stats = CleaningStats()
        self.cleaner = self.restart()
        self.writer = self.new_writer()

    def restart(self) -> DisklessCleaner:
        """Another process cleans up from now on."""
        self.cleaner = DisklessCleaner(
            self.store, cast("ControlPlane", FaultyPlane(self.plane, self.faults)), self.clock,
            self.rng, node_id=NodeId(1), live_nodes=lambda: [NodeId(1)],
            rules=lambda: list(self.rules.values()), limits=self.limits, stats=self.stats)
        return self.cleaner

    def new_writer(self) -> Writer:
        self.writer = Writer(NodeId(self.random.randrange(3)), self.rng.uuid())
        return self.writer

    # -- topics and records

    async def create(
        self, partitions: int = 1, *, retention_ms: int = -1, retention_bytes: int = -1
    ) -> list[LogKey]:
        topic_id = self.rng.uuid()
        await self.plane.create_logs(topic_id, f"topic-{topic_id.hex[:8]}", partitions)
        logs = [LogKey(topic_id, number) for number in range(partitions)]
        for log in logs:
            self.rules[log] = RetentionRule(log, retention_ms, retention_bytes)
            self.records[log] = {}
        return logs

    async def delete_topic(self, topic_id: UUID) -> None:
        await self.plane.delete_topic(topic_id, self.clock.now_ms())
        for log in [log for log in self.records if log.topic_id == topic_id]:
            del self.records[log], self.rules[log]

    def batch(self, log: LogKey, size: int = 50, count: int = 1) -> PendingBatch:
        record = Record(None, self.random.randbytes(size), timestamp=self.clock.now_ms())
        data = bytes(encode_batch([record] * count))
        return PendingBatch(log, data, parse_header(memoryview(data)))

    async def store_object(self, batches: Sequence[PendingBatch]) -> EncodedObject:
        """The first half of a write: the object is in the store, and nobody knows it."""
        writer = self.writer
        receipts, writer.receipts = writer.receipts, []
        name = ObjectName(writer.node_id, writer.id, writer.sequence)
        writer.sequence += 1
        new = encode_object(name, batches, created_ms=self.clock.now_ms(), receipts=receipts)
        await self.store.real.put(new.key, new.buffers, if_absent=True)
        self.store.times[new.key] = self.clock.now_ms()
        self.noted.update(receipt.name.key for receipt in receipts)
        return new

    async def commit(self, new: EncodedObject, writer: Writer | None = None) -> list[BatchOutcome]:
        """The second half: what is accepted is acknowledged."""
        outcomes = list(await self.plane.commit(new.new_object, self.clock.now_ms()))
        for batch, outcome in zip(new.batches, outcomes, strict=True):
            if outcome.code is Code.NONE and batch.log in self.records:
                self.records[batch.log][outcome.base_offset] = bytes(batch.data)
        (writer or self.writer).receipts.append(make_receipt(new.name, outcomes))
        return outcomes

    async def write(self, *batches: PendingBatch) -> EncodedObject:
        new = await self.store_object(batches)
        outcomes = await self.commit(new)
        assert all(outcome.code is Code.NONE for outcome in outcomes), outcomes
        return new

    async def store_receipts(self) -> None:
        """What a writer does when it stops: the last receipts get an object of their own."""
        if self.writer.receipts:
            await self.store_object(())

    # -- passes

    async def clean(self) -> None:
        """All passes, once."""
        cleaner = self.cleaner
        await cleaner.retention.run()
        await cleaner.retention.expire_producers()
        await cleaner.deletion.run()
        await cleaner.orphans.run()
        await cleaner.rewriting.run()
        await cleaner.receipts.run()

    async def settle(self) -> None:
        """Without faults, let enough time and passes go by that nothing is left to do."""
        self.faults.error_share, self.faults.crash_in = 0.0, None
        self.restart()
        for _ in range(6):
            self.clock.advance_ms(self.limits.orphan_grace_ms + 1)
            await self.clean()
        self.clock.advance_ms(self.limits.object_grace_ms + 1)
        await self.cleaner.deletion.run()

    # -- checks

    async def keys(self, prefix: str = OBJECTS_PREFIX) -> list[str]:
        return [info.key for info in await self._listed(prefix)]

    async def _listed(self, prefix: str) -> tuple[ObjectInfo, ...]:
        return (await self.store.real.list(prefix)).objects

    async def check(self) -> None:
        """All that must hold at any moment: every record above the start is there, as written."""
        logs = list(self.records)
        for log, bounds in zip(logs, await self.plane.bounds(logs), strict=True):
            assert bounds is not None
            for offset, data in (
                    await self.read(self.plane, log, bounds.diskless_start_offset)).items():
                assert data == self.records[log][offset]
        await self._check_receipts()

    async def read(
        self, plane: ControlPlane, log: LogKey, offset: Offset
    ) -> dict[Offset, bytes]:
        """The batches from an offset on, without a gap up to the high watermark (diskless.C5)."""
        batches: dict[Offset, bytes] = {}
        (found,) = await plane.find([FindRequest(log, offset, 1 << 40)])
        first = offset
        for run in found.runs:
            assert run.base_offset <= offset < run.end_offset, "a gap"
            offset = run.end_offset
            (data,) = await self.store.real.get_ranges(
                run.key, [ByteRange(run.position, run.position + run.size)])
            for batch in check_run(memoryview(data), run):
                if batch.end_offset > first:
                    batches[batch.base_offset] = bytes(data[batch.start:batch.end])
        assert found.bounds is not None
        assert offset == found.bounds.high_watermark
        return batches

    async def _check_receipts(self) -> None:
        """diskless.cleaning.R1: the offsets of every object in use can be found in the store."""
        footers = [footer async for footer in self._footers()]
        receipts = {receipt.name.key for footer in footers for receipt in footer.receipts}
        offsets = {footer.name.key for footer in footers
                   if footer.batches and footer.batches[0].base_offset != NO_OFFSET}
        for state in await self.plane.objects():
            if state.marked_ms is None and state.key in self.noted:
                assert state.key in receipts | offsets, f"no receipt for {state.key}"

    async def _footers(self) -> AsyncIterator[ObjectFooter]:
        for prefix in (OBJECTS_PREFIX, RECEIPTS_PREFIX):
            for info in await self._listed(prefix):
                yield await read_footer(self.store.real, info.key, info.size)

    async def check_nothing_is_left(self) -> None:
        """After the last pass: the store has the objects that runs refer to, and no others."""
        states = await self.plane.objects()
        assert [state.key for state in states if state.marked_ms is not None] == []
        assert await self.keys() == [state.key for state in states]
