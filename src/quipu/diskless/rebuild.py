"""Rebuilds an empty control plane from the objects of a store.

1. List all objects, and read their footers.
2. Compute the offsets of their batches (rebuild_plan.py).
3. Create the logs, and raise their bounds: whoever writes too early gets offsets after the end.
4. Store empty batches for offsets that no object has, so that offsets stay dense (diskless.C5).
5. Enter all objects, and compare what the control plane has then with what it should have.
6. Make it the owner of the store: from now on it may collect orphans there.

An object whose footer is damaged is left out, and reported: without it, nobody knows which logs its
batches are of.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from quipu.diskless.cleaning.ownership import adopt
from quipu.diskless.control_plane.belonging import belong
from quipu.diskless.control_plane.interface import COMMIT_BATCHES_MAX, LIMIT_MAX, ControlPlane
from quipu.diskless.errors import (
    ControlPlaneChanged,
    ControlPlaneNotEmpty,
    CorruptObject,
    ForeignObjects,
)
from quipu.diskless.objects.encoding import EncodedObject, PendingBatch, encode_object
from quipu.diskless.objects.names import (
    OBJECTS_PREFIX,
    RECEIPTS_PREFIX,
    ObjectName,
    find_name,
)
from quipu.diskless.objects.reading import read_footer
from quipu.diskless.rebuild_plan import (
    FoundObject,
    OffsetGap,
    PlacedCounts,
    RebuildPlan,
    TieredOffsets,
    plan_rebuild,
)
from quipu.diskless.values import LEADER_EPOCH, LogKey, NewObject
from quipu.model.ids import Offset, TimestampMs
from quipu.runtime.clock import Clock
from quipu.runtime.objects.errors import ObjectNotFound, StoreUnavailable
from quipu.runtime.objects.store import ObjectInfo, ObjectStore
from quipu.wire.record_batch import HEADER, HEADER_SIZE, LENGTH_START, MAGIC, body_crc, parse_header

READS_MAX: Final = 32  # footers read at a time
TRIES_MAX: Final = 6  # of one read, while the store is unavailable
PAUSE_SECONDS: Final = 0.5  # before the second of them; it doubles
RESTORED_MAX: Final = 200  # objects entered by one call
OFFSETS_MAX: Final = 1 << 30  # that one empty batch takes

Topics = Mapping[UUID, tuple[str, int]]  # name and number of partitions, by id


class RebuildProgress(NamedTuple):
    """How far a rebuild is."""

    listed: int
    read: int
    restored: int


class RebuildReport(NamedTuple):
    """What a rebuild has found and done."""

    object_count: int  # with batches
    topics: dict[UUID, tuple[str, int]]
    counts: PlacedCounts
    gaps: list[OffsetGap]
    damaged: list[tuple[str, str]]  # key and reason
    foreign: list[UUID]  # topics with batches that the cluster does not know


Report = Callable[[RebuildProgress], None]


async def rebuild(
    store: ObjectStore,
    plane: ControlPlane,
    clock: Clock,
    *,
    name: ObjectName,
    topics: Topics | None = None,
    tiers: Mapping[LogKey, TieredOffsets] | None = None,
    cluster_id: str | None = None,
    report: Report = lambda _: None,
) -> RebuildReport:
    """Fill an empty control plane; raises `ControlPlaneNotEmpty`, `ForeignObjects`.

    `topics` are those of the cluster; without it, all topics are restored, under their ids.  `name`
    is that of the first object that this writes, if it must, and of no other object.  The control
    plane belongs to the cluster `cluster_id` then, unless it is another's (`ForeignControlPlane`);
    without it, to the first cluster that uses it.
    """
    await check_empty(plane)
    if cluster_id is not None:
        await belong(plane, cluster_id)
    found, damaged = await read_objects(store, report)
    found.sort(key=lambda each: (each.footer.created_ms, each.footer.name))
    plan = plan_rebuild(found, tiers)
    restored, foreign = choose_topics(plan, topics)
    for topic_id, (topic, partition_count) in restored.items():
        await plane.create_logs(topic_id, topic, partition_count)
    for log, bounds in plan.logs.items():
        if log.topic_id in restored:
            await plane.restore_bounds(log, *bounds)
    for log, tier in (tiers or {}).items():
        if log.topic_id in restored and tier.lineage is not None:
            await plane.restore_lineage(log, tier.lineage)
    gaps = [gap for gap in plan.gaps if gap.log.topic_id in restored]
    entered = list(_entered(found, plan))
    for filler in fill_gaps(gaps, name, clock.now_ms()):
        await store.put(filler.key, filler.buffers, if_absent=True)
        entered.append((filler.new_object, [batch.base_offset for batch in filler.batches]))
    for first in range(0, len(entered), RESTORED_MAX):
        await plane.restore_objects(entered[first : first + RESTORED_MAX], clock.now_ms())
        report(RebuildProgress(len(found), len(found), min(first + RESTORED_MAX, len(entered))))
    await _check_result(plane, plan, entered, restored)
    await adopt(store, plane)
    return RebuildReport(len(entered), restored, plan.counts, gaps, damaged, foreign)


async def check_empty(plane: ControlPlane) -> None:
    """Raise unless a control plane knows no object and no record."""
    objects = await plane.objects(limit=1)
    if objects:
        raise ControlPlaneNotEmpty(f"the control plane knows objects ({objects[0].key}, ...)")
    logs = [LogKey(topic_id, partition) for topic_id, (_, count) in (await plane.topics()).items()
            for partition in range(count)]
    for first in range(0, len(logs), LIMIT_MAX):
        part = logs[first : first + LIMIT_MAX]
        for log, bounds in zip(part, await plane.bounds(part), strict=True):
            if bounds is not None and bounds.high_watermark > 0:
                raise ControlPlaneNotEmpty(
                    f"the control plane knows records of {log}, up to {bounds.high_watermark}")


# -- reading


async def read_objects(
    store: ObjectStore, report: Report
) -> tuple[list[FoundObject], list[tuple[str, str]]]:
    """All objects with their footers, and those that are damaged, with the reasons."""
    infos: list[ObjectInfo] = []
    for prefix in (OBJECTS_PREFIX, RECEIPTS_PREFIX):
        after = None
        while True:
            page = await store.list(prefix, after=after)
            infos += [info for info in page.objects if find_name(info.key) is not None]
            report(RebuildProgress(len(infos), 0, 0))
            after = page.after
            if after is None:
                break
    found: list[FoundObject] = []
    damaged: list[tuple[str, str]] = []
    errors: list[BaseException] = []
    rest = iter(infos)

    async def read() -> None:
        for info in rest:
            if errors:
                return
            try:
                footer = await _read(store, info)
            except ObjectNotFound:
                continue  # deleted after it was listed
            except CorruptObject as error:
                damaged.append((info.key, str(error)))
                continue
            except BaseException as error:
                errors.append(error)
                raise
            found.append(footer)
            if len(found) % RESTORED_MAX == 0:
                report(RebuildProgress(len(infos), len(found), 0))

    await asyncio.gather(*(read() for _ in range(READS_MAX)))
    report(RebuildProgress(len(infos), len(found), 0))
    return found, sorted(damaged)


async def _read(store: ObjectStore, info: ObjectInfo) -> FoundObject:
    for number in range(TRIES_MAX):
        try:
            return FoundObject(info.key, info.size, await read_footer(store, info.key, info.size))
        except StoreUnavailable:
            if number + 1 == TRIES_MAX:
                raise
            await asyncio.sleep(PAUSE_SECONDS * (1 << number))
    raise AssertionError


# -- what is entered


def choose_topics(
    plan: RebuildPlan, topics: Topics | None
) -> tuple[dict[UUID, tuple[str, int]], list[UUID]]:
    """The topics to restore, with as many partitions as they have; and those that are unknown.

    Objects of the latter are unused, and are deleted some day; so this raises `ForeignObjects` if
    all are unknown, as when the cluster is another one than that of the store.
    """
    counts: dict[UUID, int] = {}
    for log in plan.logs:
        counts[log.topic_id] = max(counts.get(log.topic_id, 0), log.partition + 1)
    if topics is None:
        return {topic_id: (str(topic_id), count) for topic_id, count in counts.items()}, []
    foreign = sorted(counts.keys() - topics.keys())
    if counts and len(foreign) == len(counts):
        raise ForeignObjects(f"no topic in the store exists in the cluster ({foreign[0]}, ...)")
    return {topic_id: (topics[topic_id][0], max(count, topics[topic_id][1]))
            for topic_id, count in counts.items() if topic_id in topics}, foreign


async def _check_result(
    plane: ControlPlane, plan: RebuildPlan,
    entered: Sequence[tuple[NewObject, Sequence[Offset]]], restored: Topics,
) -> None:
    """Raise `ControlPlaneChanged` unless the control plane has just what was entered."""
    sizes = dict.fromkeys((log for log in plan.logs if log.topic_id in restored), 0)
    for new, offsets in entered:
        for batch, offset in zip(new.batches, offsets, strict=True):
            if offset >= 0 and batch.log in sizes:
                sizes[batch.log] += batch.size
    logs = list(sizes)
    for first in range(0, len(logs), LIMIT_MAX):
        part = logs[first : first + LIMIT_MAX]
        for log, bounds in zip(part, await plane.bounds(part), strict=True):
            if bounds is None or bounds != (*plan.logs[log], sizes[log]):
                raise ControlPlaneChanged(
                    f"while it was rebuilt, the control plane was changed by others: {log} has "
                    f"{bounds}, not {(*plan.logs[log], sizes[log])}; stop the brokers that use it, "
                    "and begin again with an empty one")


def _entered(
    found: Sequence[FoundObject], plan: RebuildPlan
) -> Iterator[tuple[NewObject, Sequence[Offset]]]:
    for (key, size, footer), offsets in zip(found, plan.offsets, strict=True):
        if footer.batches:
            batches = [batch.coordinates for batch in footer.batches]
            yield NewObject(key, footer.name.node_id, size, batches), offsets


def fill_gaps(
    gaps: Sequence[OffsetGap], name: ObjectName, now_ms: int
) -> Iterator[EncodedObject]:
    """Objects of empty batches that take the offsets of the gaps."""
    batches = [batch for gap in gaps for batch in _empty_batches(gap)]
    for number, first in enumerate(range(0, len(batches), COMMIT_BATCHES_MAX)):
        yield encode_object(
            name._replace(sequence=name.sequence + number),
            batches[first : first + COMMIT_BATCHES_MAX], created_ms=now_ms)


def _empty_batches(gap: OffsetGap) -> Iterator[PendingBatch]:
    for start in range(gap.start, gap.end, OFFSETS_MAX):
        count = min(OFFSETS_MAX, gap.end - start)
        data = empty_batch(count, gap.max_timestamp)
        yield PendingBatch(gap.log, data, parse_header(memoryview(data)), Offset(start))


def empty_batch(offset_count: int, timestamp: TimestampMs) -> bytes:
    """A batch without records that takes offsets, as compaction leaves them in Kafka."""
    fields = [0, HEADER_SIZE - LENGTH_START, LEADER_EPOCH, MAGIC, 0, 0, offset_count - 1, timestamp,
              timestamp, -1, -1, -1, 0]
    fields[4] = body_crc(memoryview(HEADER.pack(*fields)))
    return HEADER.pack(*fields)
