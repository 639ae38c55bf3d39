"""The walk of compaction over the records of a batch: the Python version of `_walk.pyx`.

An `OffsetMap` knows the last offset of each key of a range of the log, by a hash of the key of 128
bits, keyed with a secret so that no client can make two keys meet.  It has a fixed size: a batch
whose keys do not all fit is left out, and the range ends before it; keys of it that are noted all
the same do no harm, for their records are in the log.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.wire.record_batch import (
    RECORD_SIZE_MIN,
    VARLONG_SIZE_MAX,
    read_varint,
    write_varint,
)

ENTRY_SIZE: Final = 256  # bytes of memory that one key takes here
HASH_SIZE: Final = 16
SECRET_SIZE: Final = 16


class Kept(NamedTuple):
    """What stays of a batch's records."""

    records: bytes  # those that stay, back to back, as they were; empty if all or none stay
    count: int  # type: ignore[assignment]  # hides tuple.count, which this has no use for
    tombstones: int  # of those that stay
    expired: int  # tombstones that went
    newest_delta: int  # the largest timestamp delta of those that stay; 0 if none does


class _Walked(NamedTuple):
    end: int
    timestamp_delta: int
    timestamp_at: tuple[int, int]  # where the timestamp delta lies
    offset_delta: int
    key: memoryview | None
    is_tombstone: bool


class OffsetMap:
    """The last offset of each key; bounded (see the module)."""

    def __init__(self, size_max: int, secret: bytes) -> None:
        """Take at most `size_max` bytes; `secret` has SECRET_SIZE bytes."""
        assert len(secret) == SECRET_SIZE, len(secret)
        self._count_max = max(1, size_max // ENTRY_SIZE)
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def count_max(self) -> int:
        """Keys that it can hold."""
        return self._count_max

    def put(self, data: memoryview, count: int, base_offset: int) -> bool:
        """Note the keys of a batch's records; False if they do not all fit."""
        offsets, position = self._offsets, 0
        for _ in range(count):
            record = _walk(data, position)
            if record.key is not None:
                key = self._hash(record.key)
                if len(offsets) == self._count_max and key not in offsets:
                    return False
                offsets[key] = base_offset + record.offset_delta
            position = record.end
        _require_end(data, position)
        return True

    def keep(
        self, data: memoryview, count: int, base_offset: int, *, drop_tombstones: bool
    ) -> Kept:
        """Which of a batch's records stay: those that no later record of their key replaces.

        Those without a key go; with `drop_tombstones`, tombstones do too.
        """
        position, runs, expired, tombstones, kept, newest = 0, bytearray(), 0, 0, 0, None
        for _ in range(count):
            record, start = _walk(data, position), position
            position = record.end
            if record.key is None or self._offsets.get(
                    self._hash(record.key), -1) > base_offset + record.offset_delta:
                continue
            if record.is_tombstone:
                if drop_tombstones:
                    expired += 1
                    continue
                tombstones += 1
            kept += 1
            runs += data[start:position]
            newest = record.timestamp_delta if newest is None else max(
                newest, record.timestamp_delta)
        _require_end(data, position)
        return Kept(b"" if kept == count else bytes(runs), kept, tombstones, expired, newest or 0)

    def _hash(self, key: memoryview) -> bytes:
        return blake2b(key, digest_size=HASH_SIZE, key=self._secret).digest()


def rebase(data: memoryview, count: int, shift: int) -> bytes:
    """The records with `shift` added to each timestamp delta."""
    out, position = bytearray(), 0
    for _ in range(count):
        record = _walk(data, position)
        size_end = read_varint(data, position)[1]
        first, after = record.timestamp_at
        body = bytearray(data[size_end:first])
        write_varint(body, record.timestamp_delta + shift)
        body += data[after : record.end]
        write_varint(out, len(body))
        out += body
        position = record.end
    _require_end(data, position)
    return bytes(out)


def _walk(data: memoryview, position: int) -> _Walked:
    size, start = read_varint(data, position)
    end = start + size
    if size < RECORD_SIZE_MIN - 1 or end > len(data):
        raise MalformedBytes(f"record of {size} bytes at position {position}")
    view = data[:end]
    timestamp_delta, at = read_varint(view, start + 1, VARLONG_SIZE_MAX)
    timestamp_at = start + 1, at
    offset_delta, at = read_varint(view, at)
    key_size, at = read_varint(view, at)
    key = None
    if key_size >= 0:
        if at + key_size > end:
            raise MalformedBytes(f"key of {key_size} bytes at position {at}")
        key, at = view[at : at + key_size], at + key_size
    value_size, at = read_varint(view, at)
    if value_size > end - at:
        raise MalformedBytes(f"value of {value_size} bytes at position {at}")
    return _Walked(end, timestamp_delta, timestamp_at, offset_delta, key, value_size < 0)


def _require_end(data: memoryview, position: int) -> None:
    if position != len(data):
        raise MalformedBytes(f"{len(data) - position} bytes follow the last record")
