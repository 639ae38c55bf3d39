"""One file of stored batches, from start to end, whatever has happened to it.

A walk gives every batch whose header is sound, and every stretch of bytes that is none.  After
such a stretch it goes on at the next header whose own checksum holds.

Invariants
    storage.inspect.W1  what is given covers the file: each item starts where the last one ended,
        and is at least one byte long, so a walk ends
    storage.inspect.W2  a stretch of damage is passed over by a search at the speed of a regular
        expression, not by trying every byte in Python

A value of a record may itself hold stored batches.  Those are met only when a search starts inside
a batch whose header is damaged; a search therefore takes no header whose log offset is below what
comes next, so they pass for lost batches only if they count on where the log stopped.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.wire.stored_batch import Fault, StoredHeader, check_body, check_header, parse_stored

# A header from its layout byte on: layout 1, reserved 0, then offsets and a length that are not
# negative, an epoch, and magic 2.  Type and checksum come before it.
_HEADER_SHAPE: Final = re.compile(
    rb"\x01\x00\x00(?=[\x00-\x7f].{7}[\x00-\x7f].{7}[\x00-\x7f].{3}.{4}\x02)", re.DOTALL
)
_LAYOUT_POSITION: Final = 5


class WalkedBatch(NamedTuple):
    """A batch with a sound header; `fault` says if its type is unset or its body damaged."""

    position: int
    header: StoredHeader
    fault: Fault | None

    @property
    def end(self) -> int:
        """Position of the byte after it."""
        return self.position + self.header.size


class WalkedDamage(NamedTuple):
    """Bytes that are no batch."""

    position: int
    end: int
    fault: Fault


def walk(
    data: memoryview, *, log_offset_min: int = 0, verify: bool = True
) -> Iterator[WalkedBatch | WalkedDamage]:
    """Every batch and every stretch of damage (storage.inspect.W1).

    `verify` reads the bodies too, for their checksums; without it only headers are touched.
    `log_offset_min` is what the first batch counts from, if that is known.
    """
    position, end = 0, len(data)
    while position < end:
        found = check_header(data, position)
        if found is Fault.UNSET_TYPE:
            header = parse_stored(data, position)
            if position + header.size <= end:
                yield WalkedBatch(position, header, found)
                position += header.size
                continue
        if isinstance(found, Fault):
            after = find_header(data, position + 1, log_offset_min=log_offset_min)
            yield WalkedDamage(position, after, found)
            position = after
            continue
        yield WalkedBatch(position, found, check_body(data, position, found) if verify else None)
        position += found.size
        log_offset_min = found.next_log_offset


def find_header(data: memoryview, position: int, *, log_offset_min: int = 0) -> int:
    """Where the next sound header at or after `position` starts; the end of `data` if none does.

    Searched for by a regular expression (storage.inspect.W2).
    """
    start = position + _LAYOUT_POSITION
    while (shape := _HEADER_SHAPE.search(data, start)) is not None:
        candidate = shape.start() - _LAYOUT_POSITION
        found = check_header(data, candidate)
        if found is Fault.UNSET_TYPE:
            found = parse_stored(data, candidate)
        if isinstance(found, StoredHeader) and found.log_offset >= log_offset_min:
            return candidate
        start = shape.start() + 1
    return len(data)
