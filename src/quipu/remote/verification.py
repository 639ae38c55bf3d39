"""Checks that a partition's remote segments are what their metadata says, byte by byte.

    missing   metadata of a finished copy without its object
    damaged   an object whose bytes are not those that were written, or of another segment
    gap       offsets that only the tier may have, and no finished copy has
    orphan    an object that no metadata knows; it takes room and harms nobody

A broker goes on copying and deleting meanwhile.  So the store is listed before the metadata, and
what seems wrong is looked at once more with newer metadata before it is reported.

Invariant
    remote.V1  a segment counts as verified only if every byte of its object was read and checked,
               and its footer says the same as its metadata

Not here: where metadata comes from (client, broker), what is shown of it (cli).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from quipu.model.errors import CorruptLog, MalformedBytes, UnknownFormat
from quipu.model.partition_log import RunLong
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.errors import SegmentMissing
from quipu.remote.segments.footer import SegmentFooter
from quipu.remote.segments.names import SegmentName, find_name, partition_prefix
from quipu.remote.segments.orphans import OrphanObject
from quipu.remote.segments.pointer import decode_pointer
from quipu.remote.segments.reader import SegmentReader
from quipu.runtime.objects.errors import ObjectNotFound
from quipu.runtime.objects.store import ObjectInfo, ObjectStore

SEGMENTS_AT_ONCE: Final = 4  # each takes about one chunk of memory


class TierFault(Enum):
    """What is wrong; all but orphans mean that records cannot be read."""

    DAMAGED = "damaged"
    MISSING = "missing"
    GAP = "gap"
    ORPHAN = "orphan"


class TierFinding(NamedTuple):
    """Something that is not as it should be."""

    kind: TierFault
    topic: str
    partition: int
    start: int  # the first offset that it is about
    key: str  # of the object; empty for a gap
    why: str


class ListedPartition(NamedTuple):
    """A partition as its leader describes it."""

    partition: TopicIdPartition
    segments: Sequence[RemoteLogSegmentMetadata]  # in any state
    start: int  # the tier must have the offsets from here
    end: int  # up to here (exclusive)


class PartitionReport(NamedTuple):
    """What was verified of a partition, and what is wrong with it."""

    verified_count: int  # segments that are intact
    verified_bytes: int  # of their objects
    findings: tuple[TierFinding, ...]


def name_of(segment: RemoteLogSegmentMetadata) -> SegmentName:
    """The name of a segment's object."""
    partition = segment.segment_id.partition
    return SegmentName(partition.topic_id, partition.partition, segment.start_offset,
                       segment.segment_id.id)


async def list_objects(store: ObjectStore, prefix: str = "") -> list[ObjectInfo]:
    """All objects whose keys begin with `prefix`."""
    found: list[ObjectInfo] = []
    after: str | None = None
    while True:
        page = await store.list(prefix, after=after)
        found += page.objects
        if page.after is None:
            return found
        after = page.after


async def verify_partition(
    store: ObjectStore, list_partition: Callable[[], ListedPartition], prefix: str, *,
    run: RunLong, verified: Callable[[RemoteLogSegmentMetadata], None] = lambda _: None,
) -> PartitionReport:
    """Check everything that the tier has of the partition whose keys begin with `prefix`.

    `list_partition` is called again for what seems wrong; `verified` is called for each segment.
    """
    objects = await list_objects(store, prefix)
    listed = list_partition()
    assert prefix == partition_prefix(listed.partition.topic_id, listed.partition.partition)
    copied = [segment for segment in listed.segments if segment.state is COPY_FINISHED]
    findings: list[TierFinding] = []
    sizes: list[int] = []
    left = iter(copied)

    async def verify_some() -> None:
        for segment in left:
            try:
                sizes.append(await verify_segment(store, segment, run))
            except SegmentMissing:
                findings.append(_finding(TierFault.MISSING, segment, "its object does not exist"))
            except (CorruptLog, MalformedBytes, UnknownFormat) as error:
                findings.append(_finding(TierFault.DAMAGED, segment, str(error)))
            verified(segment)

    await asyncio.gather(*(verify_some() for _ in range(min(SEGMENTS_AT_ONCE, len(copied)))))
    orphans = await _still_there(store, unknown_objects(objects, listed.segments))
    suspects = [*findings, *gaps(listed)]
    if suspects:
        suspects = still_wrong(suspects, list_partition())
    suspects += [TierFinding(TierFault.ORPHAN, listed.partition.topic, listed.partition.partition,
                         orphan.name.start_offset, orphan.info.key,
                         f"{orphan.info.size} bytes that no metadata knows")
                 for orphan in orphans]
    suspects.sort(key=lambda finding: finding.start)
    return PartitionReport(len(sizes), sum(sizes), tuple(suspects))


async def verify_segment(
    store: ObjectStore, segment: RemoteLogSegmentMetadata, run: RunLong
) -> int:
    """Read and check a segment (remote.V1); returns the size of its object.

    Raises `SegmentMissing`, or what says that the bytes are wrong: `CorruptLog`, `MalformedBytes`
    or `UnknownFormat`.
    """
    reader = SegmentReader(store, name_of(segment), decode_pointer(segment.custom_metadata or b""),
                           cache=ChunkCache(0), run=run)
    found = await reader.verify()
    if difference := differs(segment, found.footer):
        raise CorruptLog(f"{name_of(segment).key}: {difference}")
    return found.stored_size


def differs(segment: RemoteLogSegmentMetadata, footer: SegmentFooter) -> str | None:
    """How a segment's footer contradicts its metadata; None if it does not."""
    epochs = {each.epoch: each.offset for each in footer.epochs}
    for what, said, found in (
            ("end offset", segment.end_offset, footer.end_offset - 1),
            ("size", segment.segment_size_bytes, footer.segment_size),
            ("largest timestamp", segment.max_timestamp_ms, max(-1, footer.max_timestamp)),
            ("leader epochs", dict(segment.segment_leader_epochs), epochs)):
        if said != found:
            return f"its {what} is {found} in the object, and {said} in the metadata"
    return None


def gaps(listed: ListedPartition) -> Iterator[TierFinding]:
    """The ranges of offsets that the tier must have and no finished copy has."""
    at = listed.start
    copied = sorted((segment for segment in listed.segments if segment.state is COPY_FINISHED),
                    key=lambda segment: segment.start_offset)
    for start, end in (*((each.start_offset, each.end_offset + 1) for each in copied),
                       (listed.end, listed.end)):
        if min(start, listed.end) > at:
            yield TierFinding(
                TierFault.GAP, listed.partition.topic, listed.partition.partition, at, "",
                f"no finished copy has offsets {at} to {min(start, listed.end) - 1}")
        at = max(at, end)


def still_wrong(findings: Iterable[TierFinding], now: ListedPartition) -> list[TierFinding]:
    """Of `findings`, those of segments and offsets that the partition still has."""
    copied = {name_of(segment).key for segment in now.segments if segment.state is COPY_FINISHED}
    left = {finding.start for finding in gaps(now)}
    return [finding for finding in findings
            if (finding.start in left if finding.kind is TierFault.GAP
                else finding.key in copied)]


def unknown_objects(
    objects: Iterable[ObjectInfo], segments: Iterable[RemoteLogSegmentMetadata]
) -> list[OrphanObject]:
    """The objects with the key of a segment that is not among `segments`, in any state."""
    known = {segment.segment_id.id for segment in segments}
    named = ((find_name(info.key), info) for info in objects)
    return [OrphanObject(name, info) for name, info in named
            if name is not None and name.segment_id not in known]


async def _still_there(
    store: ObjectStore, orphans: Iterable[OrphanObject]
) -> list[OrphanObject]:
    """Those that were not deleted since they were listed, before their metadata was forgotten."""
    found = []
    for orphan in orphans:
        try:
            await store.head(orphan.info.key)
        except ObjectNotFound:
            continue
        found.append(orphan)
    return found


def _finding(
    kind: TierFault, segment: RemoteLogSegmentMetadata, why: str
) -> TierFinding:
    partition = segment.segment_id.partition
    key = name_of(segment).key
    return TierFinding(kind, partition.topic, partition.partition, segment.start_offset, key,
                   why.removeprefix(f"{key}: "))
