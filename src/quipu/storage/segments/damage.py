"""Batches that are no longer what was written: found, passed by, and replaced.

A disk may return other bytes than were written.  A read that finds a batch that does not agree with
its checksums reports it here (`note`); from then on the stretch is known, reads stop before it and
continue behind it, and the node repairs it from another replica.

Invariants
    storage.B1  a stretch begins where a batch does and ends where one does; what it held is known
        by its offsets: [log_offset, next_log) of the log, [offset, next_offset) of clients
    storage.B2  if the headers of a bad batch and of the one after it are sound, the stretch is that
        batch; else the walk is lost, and the stretch ends at the next batch that the index names,
        or where the segment does
    storage.B3  bytes of a stretch are never sent to a client or another node
    storage.B4  what replaces a stretch has its offsets, sound checksums, and epochs that fit in
        between; and its size, so that replicas stay the same, byte for byte.  Only where this node
        has compacted the log may another replica's batches be larger, smaller, or have holes: then
        nothing is left here that a tombstone deleted which the other no longer has
    storage.B5  a mapped file is not written to: the mended segment is a new file that takes its
        name

Not here: the search for damage in the background (broker/partitions/scrubbing.py), the repair from
another replica (broker/replication/batch_repairs.py).
"""

import logging
from bisect import insort
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from quipu.model.errors import Code, CorruptLog, RequestError
from quipu.runtime.disks.disk import Disk, NotFound
from quipu.storage.segments.scan import Scan
from quipu.wire.scan_run import sound_end
from quipu.wire.stored_batch import Fault, StoredHeader, check_header, check_stored

if TYPE_CHECKING:
    from quipu.storage.segments.segment import Segment

COPY_SIZE: Final = 1 << 20  # of a segment, written at a time
MENDED_SUFFIX: Final = ".mended.new"  # a file that is to take the segment's place

_LOG_OFFSET: Final = Struct(">8xq")  # of a stored batch
_position = attrgetter("position")
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Damage:
    """A stretch of a segment (storage.B1)."""

    position: int
    end: int
    log_offset: int
    next_log: int
    offset: int
    next_offset: int
    fault: str
    is_lost: bool = field(default=False)  # no other replica has it

    @property
    def size(self) -> int:
        return self.end - self.position

    def error(self, path: str) -> CorruptLog:
        """The error for a read of its records: retriable until no replica can repair it."""
        if not self.is_lost:
            return CorruptLog(f"{path}: {self}; it is being repaired from another copy")
        return CorruptLog(f"{path}: {self}; no replica has it: restore the file from a copy, or go "
                          f"on at offset {self.next_offset}", code=Code.CORRUPT_MESSAGE)

    def __str__(self) -> str:
        return (f"{self.fault} at position {self.position}: offsets {self.offset} to "
                f"{self.next_offset}, log offsets {self.log_offset} to {self.next_log}")


# --- finding ------------------------------------------------------------------------------------


def check(segment: "Segment", view: memoryview, start: int, position: int, end: int) -> bool:
    """Are the batches from `position` to `end` as they were written?  If not, it is noted.

    `view` is the segment's from `start` on.
    """
    (log_offset,) = _LOG_OFFSET.unpack_from(view, position - start)
    sound, _ = sound_end(view, position - start, end - start, log_offset)
    return sound + start >= end or note(segment, sound + start) is None


def note_in(segment: "Segment", view: memoryview, start: int, position: int) -> Damage | None:
    """A walk from `position` on went astray: note the first batch that is not sound."""
    (log_offset,) = _LOG_OFFSET.unpack_from(view, position - start)
    sound, _ = sound_end(view, position - start, len(view), log_offset)
    return note(segment, sound + start) if sound < len(view) else None


def note(segment: "Segment", position: int) -> Damage | None:
    """The batch at `position` is not sound: know from now on where the damage begins and ends.

    None if it is sound after all.
    """
    for known in segment.damage:
        if known.position <= position < known.end:
            return known
    found = _locate(segment, position)
    if found is not None and found not in segment.damage:
        insort(segment.damage, found, key=_position)
        segment.report_damage()
        _log.error("%s: %s", segment.path, found)
    return found


def next_damage(segment: "Segment", position: int) -> Damage | None:
    """The first stretch that ends after `position`."""
    for each in segment.damage:
        if each.end > position:
            return each
    return None


def _locate(segment: "Segment", position: int) -> Damage | None:
    """Where the damage around `position` begins and ends (storage.B1, storage.B2)."""
    before, after = segment.index_around(position)
    at, log_offset, offset = before
    view, start = segment.window(at, after[0] - at)
    while True:
        known = next_damage(segment, at)
        if known is not None and known.position == at:
            if known.end > position:
                return known  # found while the index was rebuilt
            at, log_offset, offset = known.end, known.next_log, known.next_offset
            continue
        header = check_stored(view, at - start)
        if isinstance(header, Fault) or (header.log_offset, header.base_offset) != (
                log_offset, offset):
            break
        at, log_offset, offset = at + header.size, header.next_log_offset, header.next_offset
        if at > position:
            return None
    fault = header.value if isinstance(header, Fault) else "another batch than was written"
    believed = check_header(view, at - start)
    if isinstance(believed, StoredHeader) and at + believed.size < after[0] and (
            believed.log_offset, believed.base_offset) == (log_offset, offset):
        # How many records it has is not covered by its header's checksum; the offsets of the next
        # batch say it.
        following = check_header(view, at + believed.size - start)
        if isinstance(following, StoredHeader):
            after = at + believed.size, following.log_offset, following.base_offset
    return Damage(at, after[0], log_offset, after[1], offset, after[2], fault)


# --- replacing ----------------------------------------------------------------------------------


def check_replacement(
    name: str, damage: Damage, data: memoryview, epochs: tuple[int, int], *, compacted: bool = False
) -> int:
    """Count the batches in `data`; raises `RequestError` if it cannot replace the stretch.

    What can is said by storage.B4.

    `epochs` are those of the batches before and after it.  `compacted`: this node has compacted
    what lies there.
    """
    position, count, (epoch, epoch_max) = 0, 0, epochs
    log_offset, offset = damage.log_offset, damage.offset
    while position < len(data):
        header = check_stored(data, position)
        if isinstance(header, Fault):
            raise RequestError(f"{name}: what was to replace log offset {log_offset} has a "
                               f"{header.value}", code=Code.CORRUPT_MESSAGE)
        if (header.log_offset, header.base_offset) != (log_offset, offset) or (
                header.last_offset_delta < 0 or not epoch <= header.leader_epoch <= epoch_max
                or (header.count != header.last_offset_delta + 1 and not compacted)):
            raise RequestError(f"{name}: what was to replace log offset {log_offset} is another "
                               "batch", code=Code.INVALID_RECORD)
        position, count, epoch = position + header.size, count + 1, header.leader_epoch
        log_offset, offset = header.next_log_offset, header.next_offset
    size = len(data) if compacted else damage.size
    if (len(data), log_offset, offset) != (size, damage.next_log, damage.next_offset):
        raise RequestError(
            f"{name}: {len(data)} bytes up to log offset {log_offset} were to replace "
            f"{damage.size} up to {damage.next_log}", code=Code.INVALID_RECORD)
    return count


def epochs_around(segment: "Segment", damage: Damage) -> tuple[int, int]:
    """The least and the largest leader epoch that a batch in the stretch can have."""
    before, _ = segment.index_around(damage.position)
    view, start = segment.window(before[0], damage.end - before[0])
    at, least, largest = before[0], -1, 2**31 - 1
    while at < damage.position:
        header = check_header(view, at - start)
        if isinstance(header, Fault):
            break
        at, least = at + header.size, header.leader_epoch
    if damage.end - start < len(view):
        header = check_header(view, damage.end - start)
        if isinstance(header, StoredHeader):
            largest = header.leader_epoch
    return least, largest


def write_mended(disk: Disk, path: str, damage: Damage, data: memoryview) -> None:
    """In a thread: write a copy of the segment at `path`, with `data` in the stretch's place.

    Durable on return; `take_mended` puts it in place.
    """
    old = disk.map(path)
    file = disk.open(path + MENDED_SUFFIX, create=True)
    try:
        file.truncate(0)  # of one that was given up
        for part in (old[: damage.position], data, old[damage.end :]):
            for start in range(0, len(part), COPY_SIZE):
                piece = part[start : start + COPY_SIZE]
                file.append((piece,), len(piece))
        assert file.size == len(old) - damage.size + len(data), (path, file.size, len(old))
        file.sync()
    finally:
        file.close()


def take_mended(
    disk: Disk, segment: "Segment", damage: Damage, size: int | None = None
) -> None:
    """Let the mended file be the segment, which was complete all the time (storage.B5).

    `size` is that of what replaced the stretch, if it is another.
    """
    assert segment.file is None, segment.path
    assert damage in segment.damage, (segment.path, damage)
    growth = 0 if size is None else size - damage.size
    if growth:
        with suppress(NotFound):
            disk.remove(segment.index_path)  # made again when it is needed
    disk.rename(segment.path + MENDED_SUFFIX, segment.path)
    segment.damage.remove(damage)
    segment.release()
    if growth:
        segment.resized(growth)
        for later in segment.damage:
            if later.position >= damage.end:
                later.position, later.end = later.position + growth, later.end + growth


def scan_to_fault(segment: "Segment", scan: Scan, why: str) -> Damage:
    """The damage from where a scan ended to the segment's end: there is no index to go on by."""
    return Damage(scan.position, segment.size, scan.log_end, segment.log_end,
                  segment.base_offset if scan.end_offset is None else scan.end_offset,
                  segment.end_offset, why)
