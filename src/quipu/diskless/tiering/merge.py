"""The bytes of runs -> the stored batches of a remote segment.  Pure.

Each batch gets the prefix of a stored batch, its final base offset, and the leader epoch of its
log; the records stay as they were produced.  A diskless log has no records of its own,
so log offsets are the offsets that clients see.

Invariants
    diskless.G1  the result depends on the batches and their offsets alone: not on the objects in
                 which they were, nor on how runs were cut, nor on the process that merges them
    diskless.G2  the batches fill the offsets of the plan densely, and the checksum of each is
                 right; else `CorruptObject` is raised, which names the object
"""

from collections.abc import Iterable
from itertools import zip_longest
from struct import Struct
from typing import Final, NamedTuple

from quipu.diskless.control_plane.interface import PRODUCER_BATCHES
from quipu.diskless.errors import CorruptObject
from quipu.diskless.tiering.plan import SegmentPlan
from quipu.diskless.values import BatchRun
from quipu.model.batch_types import DATA
from quipu.model.ids import NO_TIMESTAMP
from quipu.remote.segments.footer import SegmentEpoch
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.writer import SegmentToCopy
from quipu.runtime.objects.store import Buffer
from quipu.wire.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    body_crc,
    parse_header,
)
from quipu.wire.stored_batch import PREFIX_SIZE, stamp

# The producers of a segment, in the format of a log's checkpoint.
_STATE: Final = Struct(">qhqB")  # producer id, epoch, last seen, number of batches
_BATCH: Final = Struct(">iiq")  # first sequence, last sequence, base offset
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class MergedSegment(NamedTuple):
    """The stored batches of a segment, and what they say of themselves."""

    data: memoryview
    max_timestamp: int
    producer_snapshot: bytes


class _Producers:
    """The last batches of each idempotent producer of a segment."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int, list[tuple[int, int, int]]]] = {}

    def note(self, header: BatchHeader, base_offset: int) -> None:
        last = (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
        known = self._known.get(header.producer_id)
        batches = known[2] if known is not None and known[0] == header.producer_epoch else []
        batches.append((header.base_sequence, last, base_offset))
        self._known[header.producer_id] = (
            header.producer_epoch, header.max_timestamp, batches[-PRODUCER_BATCHES:])

    def encode(self) -> bytes:
        return b"".join(
            _STATE.pack(producer_id, epoch, seen, len(batches))
            + b"".join(_BATCH.pack(*batch) for batch in batches)
            for producer_id, (epoch, seen, batches) in sorted(self._known.items()))


def merge(plan: SegmentPlan, parts: Iterable[Buffer]) -> MergedSegment:
    """The segment of `plan`, of which `parts` are the bytes of the runs, in order."""
    out = memoryview(bytearray(plan.size))
    position, newest, producers = 0, int(NO_TIMESTAMP), _Producers()
    for run, part in zip_longest(plan.runs, parts):
        assert run is not None
        assert part is not None
        position, run_newest = _merge_run(
            run, memoryview(part), out, position, producers, leader_epoch=plan.leader_epoch)
        newest = max(newest, run_newest)
    assert position == plan.size, (position, plan.size)
    return MergedSegment(out.toreadonly(), newest, producers.encode())


def segment_to_copy(plan: SegmentPlan, merged: MergedSegment) -> SegmentToCopy:
    """The segment as the tier's storage takes it."""
    return SegmentToCopy(
        name=segment_name(plan), topic=plan.topic, data=merged.data, size=plan.size,
        end_offset=plan.end_offset, log_start=plan.start_offset, log_end=plan.end_offset,
        max_timestamp=merged.max_timestamp,
        epochs=(SegmentEpoch(plan.leader_epoch, plan.start_offset, plan.start_offset),),
        producer_snapshot=merged.producer_snapshot)


def segment_name(plan: SegmentPlan) -> SegmentName:
    """The name of the segment, which is that of its object."""
    return SegmentName(
        plan.log.topic_id, plan.log.partition, plan.start_offset, plan.segment_id)


def _merge_run(
    run: BatchRun, data: memoryview, out: memoryview, position: int, producers: _Producers, *,
    leader_epoch: int,
) -> tuple[int, int]:
    """Append the batches of a run to `out`; returns where the next one goes, and the newest time.

    Everything is checked before it is used (diskless.G2): the control plane knows where the run
    is, and how many batches and records it has, but not what the store returned.
    """
    if len(data) != run.size:
        raise _corrupt(run, 0, f"{len(data)} bytes of {run.size}")
    at, offset, newest = 0, int(run.base_offset), int(NO_TIMESTAMP)
    end = position + run.size + PREFIX_SIZE * run.batch_count
    while at < run.size:
        header = _checked_header(run, data, at)
        size = header.size
        if position + PREFIX_SIZE + size > end:
            raise _corrupt(run, at, f"more than {run.batch_count} batches")
        batch = out[position + PREFIX_SIZE : position + PREFIX_SIZE + size]
        batch[:] = data[at : at + size]
        if body_crc(batch) != header.crc:
            raise _corrupt(run, at, "a bad checksum")
        out[position : position + PREFIX_SIZE] = stamp(
            batch, header, batch_type=DATA, log_offset=offset, base_offset=offset,
            leader_epoch=leader_epoch)
        if header.producer_id >= 0:
            producers.note(header, offset)
        newest = max(newest, header.max_timestamp)
        position += PREFIX_SIZE + size
        at += size
        offset += header.last_offset_delta + 1
    if position != end or offset != run.end_offset:
        raise _corrupt(run, at, f"batches up to offset {offset}, not {run.end_offset}")
    return position, newest


def _checked_header(run: BatchRun, data: memoryview, at: int) -> BatchHeader:
    if run.size - at < HEADER_SIZE:
        raise _corrupt(run, at, "half a header")
    header = parse_header(data, at)
    if (header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN
            or header.size > run.size - at or header.last_offset_delta < 0):
        raise _corrupt(run, at, "no batch")
    return header


def _corrupt(run: BatchRun, at: int, why: str) -> CorruptObject:
    return CorruptObject(
        f"{run.key}: where {run.log} has offsets {run.base_offset} to {run.end_offset - 1}, there "
        f"is {why} at position {run.position + at}; they stay where they are")
