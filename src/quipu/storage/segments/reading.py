"""Find and read batches across the segments of a log.

Clients read by client offset and see data batches only; replay and replication read by log
offset and see everything.  Both walk from the place that a segment's index gives.

Not here: which offsets may be read (log.py), the walk itself for clients (wire/fast.py), records by
time (timestamps.py).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from quipu.model.batch_types import DATA
from quipu.model.errors import CorruptLog, MalformedBytes
from quipu.model.ids import Offset
from quipu.storage.segments.damage import check, next_damage, note, note_in
from quipu.storage.segments.segment import Segment
from quipu.wire.fast import slices
from quipu.wire.stored_batch import (
    PREFIX_SIZE,
    Fault,
    StoredHeader,
    check_body,
    check_header,
)

WALK_SIZE: Final = 256 << 10  # bytes that a walk over headers reads at a time

_base_offset = attrgetter("base_offset")
_base_log = attrgetter("base_log")


class StoredBatch(NamedTuple):
    """One batch of any type, as it lies in its segment."""

    header: StoredHeader
    data: memoryview  # prefix and Kafka batch
    position: int

    @property
    def batch(self) -> memoryview:
        """The Kafka batch alone."""
        return self.data[PREFIX_SIZE:]


def read(
    segments: Sequence[Segment], offset: int, max_bytes: int, *, end: int, min_one: bool
) -> list[memoryview]:
    """Data batches from the one that holds `offset`, across segments; see `Log.read`."""
    number = len(segments) - 1
    key = offset, max_bytes, end, min_one
    kept = segments[number].kept_read
    if kept is not None and kept[0] == key:
        return kept[1]  # below `end` a segment only ever stays as it is
    if offset < segments[number].base_offset:
        number = bisect_right(segments, offset, key=_base_offset) - 1
        assert number >= 0, offset  # storage.L1: the caller reads at the log start or after it
    position = segments[number].find_offset(offset)
    buffers: list[memoryview] = []
    while number < len(segments):
        segment = segments[number]
        segment_size = segment.size
        while position < segment_size:
            view, start = segment.window(position, max_bytes)
            if segment.damage and (damage := next_damage(segment, position)) is not None:
                if position < damage.position:
                    view = view[: damage.position - start]
                elif offset < damage.next_offset and damage.offset < damage.next_offset:
                    if buffers:
                        return buffers
                    raise damage.error(segment.path)  # storage.B3
                else:
                    position = damage.end  # before what is wanted, or nothing that clients see
                    continue
            try:
                found, size, stopped = slices(
                    view, position - start, offset=offset, end_offset=end, limit=max_bytes,
                    min_one=min_one and not buffers)
            except MalformedBytes as error:
                if note_in(segment, view, start, position):
                    continue
                raise CorruptLog(f"{segment.path}: {error}") from error
            if position < segment.trusted_from and (
                    not check(segment, view, start, position, start + stopped)):
                continue
            assert position <= start + stopped, segment.path
            buffers += found
            max_bytes -= size
            position = start + stopped
            if start > 0 and len(buffers) == len(found):  # all of it is from the copy of the tail
                segment.kept_read = key, buffers
            if stopped < len(view) or (max_bytes <= 0 and (buffers or not min_one)):
                if not buffers and min_one and stopped < len(view) and (
                        note(segment, position) is not None):
                    continue  # it says that it lies beyond the end, and that is damage
                return buffers
        number, position = number + 1, 0
    return buffers


def read_stored(segments: Sequence[Segment], log_offset: int) -> Iterator[StoredBatch]:
    """Every batch from the one that holds `log_offset` on, checked, across segments."""
    number = max(0, bisect_right(segments, log_offset, key=_base_log) - 1)
    for segment in segments[number:]:
        for batch in walk(segment, segment.find_log_offset(log_offset), past_damage=False):
            if batch.header.next_log_offset <= log_offset:
                continue
            if check_body(batch.data, 0, batch.header) is not None:
                note(segment, batch.position)
                raise CorruptLog(f"{segment.path}: bad body checksum at log offset "
                                 f"{batch.header.log_offset}")
            yield batch


def offset_at(segments: Sequence[Segment], log_offset: int) -> Offset | None:
    """The client offset that belongs to `log_offset`; None if no batch there is kept."""
    number = bisect_right(segments, log_offset, key=_base_log) - 1
    if number < 0:
        return None
    segment = segments[number]
    for batch in walk(segment, segment.find_log_offset(log_offset)):
        header = batch.header
        if header.log_offset > log_offset:
            raise CorruptLog(f"{segment.path}: the batch at log offset {log_offset} is damaged")
        if header.next_log_offset > log_offset:
            inside = log_offset - header.log_offset if header.batch_type == DATA else 0
            return Offset(header.base_offset + inside)
    return None


def walk(
    segment: Segment, position: int, *, past_damage: bool = True
) -> Iterator[StoredBatch]:
    """The batches of one segment from `position` on; only their headers are looked at.

    What is known or seen to be damaged is left out, or is the end if not `past_damage`.
    """
    while position < segment.size:
        view, start = segment.window(position, WALK_SIZE)
        while position - start < len(view):
            damage = next_damage(segment, position) if segment.damage else None
            header = check_header(view, position - start)
            if isinstance(header, Fault) and damage is None:
                damage = note(segment, position)
            if damage is not None and damage.position <= position:
                if not past_damage:
                    raise damage.error(segment.path)
                position = damage.end
                continue
            if isinstance(header, Fault):
                raise CorruptLog(f"{segment.path}: {header} at position {position}")
            end = position + header.size
            assert end <= start + len(view), (segment.path, end)
            yield StoredBatch(header, view[position - start : end - start], position)
            position = end
