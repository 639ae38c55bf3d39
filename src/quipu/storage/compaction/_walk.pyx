# cython: boundscheck=False, wraparound=False, cdivision=True
"""The walk of compaction over the records of a batch, compiled; `_walk_pure.py` says what it does.

The hash is SipHash-2-4 with 128 bits of output.  The map is a table of open addressing with
entries of 24 bytes, at most three quarters full.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, getenv
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from quipu.model.errors import MalformedBytes
from quipu.storage.compaction._walk_pure import Kept, write_varint

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0:
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

ENTRY_SIZE = 32  # bytes of memory that one key takes: 24, in a table three quarters full
SECRET_SIZE = 16

cdef struct Entry:
    uint64_t first
    uint64_t second
    int64_t offset  # + 1; 0: free

cdef struct Walked:
    Py_ssize_t end
    int64_t timestamp_delta
    Py_ssize_t timestamp_start
    Py_ssize_t timestamp_end
    int64_t offset_delta
    Py_ssize_t key_start
    int64_t key_size
    bint is_tombstone


cdef inline uint64_t _rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void _round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = _rotate(v[1], 13) ^ v[0]
    v[0] = _rotate(v[0], 32)
    v[2] += v[3]
    v[3] = _rotate(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = _rotate(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = _rotate(v[1], 17) ^ v[2]
    v[2] = _rotate(v[2], 32)


cdef void _hash(
    const uint8_t* data, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t* out
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t at = 0
    cdef int i
    v[0] = k0 ^ <uint64_t> 0x736f6d6570736575
    v[1] = k1 ^ <uint64_t> 0x646f72616e646f6d ^ 0xee
    v[2] = k0 ^ <uint64_t> 0x6c7967656e657261
    v[3] = k1 ^ <uint64_t> 0x7465646279746573
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        v[3] ^= word
        _round(v)
        _round(v)
        v[0] ^= word
        at += 8
    word = (<uint64_t> (size & 0xff)) << 56
    for i in range(<int> (size - at)):
        word |= (<uint64_t> data[at + i]) << (8 * i)
    v[3] ^= word
    _round(v)
    _round(v)
    v[0] ^= word
    v[2] ^= 0xee
    for i in range(4):
        _round(v)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    for i in range(4):
        _round(v)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline Py_ssize_t _number(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t end, int size_max, int64_t* out
) noexcept nogil:
    """Read a varint; returns the position after it, -1 if there is none."""
    cdef uint64_t rest = 0
    cdef int shift = 0
    cdef Py_ssize_t limit = position + size_max
    cdef uint8_t byte
    if limit > end:
        limit = end
    while position < limit:
        byte = data[position]
        if shift == 63 and byte > 1:
            return -1
        rest |= (<uint64_t> (byte & 0x7f)) << shift
        position += 1
        if byte < 0x80:
            if size_max == 5 and (rest >> 32):
                return -1
            out[0] = <int64_t> (rest >> 1) ^ -(<int64_t> (rest & 1))
            return position
        shift += 7
    return -1


cdef bint _walk(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, Walked* out
) noexcept nogil:
    """Read the record at `position`; False if it is malformed."""
    cdef int64_t number = 0
    cdef Py_ssize_t at
    at = _number(data, position, size, 5, &number)
    if at < 0 or number < 6 or number > size - at:
        return False
    out.end = at + <Py_ssize_t> number
    out.timestamp_start = at + 1
    at = _number(data, at + 1, out.end, 10, &out.timestamp_delta)
    if at < 0:
        return False
    out.timestamp_end = at
    at = _number(data, at, out.end, 5, &out.offset_delta)
    if at < 0:
        return False
    at = _number(data, at, out.end, 5, &out.key_size)
    if at < 0:
        return False
    out.key_start = at
    if out.key_size >= 0:
        if out.key_size > out.end - at:
            return False
        at += <Py_ssize_t> out.key_size
    at = _number(data, at, out.end, 5, &number)
    if at < 0 or number > out.end - at:
        return False
    out.is_tombstone = number < 0
    return True


cdef class OffsetMap:
    """The last offset of each key; see `_walk_pure.OffsetMap`."""

    cdef Entry* _entries
    cdef uint64_t _capacity
    cdef Py_ssize_t _count
    cdef readonly Py_ssize_t count_max
    cdef uint64_t _k0, _k1

    def __cinit__(self, size_max: int, secret: bytes) -> None:
        assert len(secret) == SECRET_SIZE, len(secret)
        self.count_max = max(1, size_max // ENTRY_SIZE)
        self._capacity = self.count_max * 4 // 3 + 1
        self._k0 = int.from_bytes(secret[:8], "little")
        self._k1 = int.from_bytes(secret[8:], "little")
        self._entries = <Entry*> calloc(self._capacity, sizeof(Entry))
        if self._entries == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._entries)

    def __len__(self):
        return self._count

    cdef Entry* _find(self, const uint8_t* key, Py_ssize_t size, uint64_t* hashed) noexcept nogil:
        """The entry of a key, or the free one where it belongs."""
        cdef uint64_t at
        cdef Entry* entry
        _hash(key, size, self._k0, self._k1, hashed)
        at = hashed[0] % self._capacity
        while True:
            entry = &self._entries[at]
            if entry.offset == 0 or (entry.first == hashed[0] and entry.second == hashed[1]):
                return entry
            at += 1
            if at == self._capacity:
                at = 0

    def put(self, const uint8_t[::1] data, Py_ssize_t count, int64_t base_offset):
        """Note the keys of a batch's records; False if they do not all fit."""
        cdef Py_ssize_t position = 0, size = data.shape[0], i
        cdef Walked record
        cdef uint64_t hashed[2]
        cdef Entry* entry
        cdef const uint8_t* start = &data[0] if size else NULL
        for i in range(count):
            if not _walk(start, size, position, &record):
                raise MalformedBytes(f"record at position {position}")
            if record.key_size >= 0:
                entry = self._find(start + record.key_start, record.key_size, hashed)
                if entry.offset == 0:
                    if self._count == self.count_max:
                        return False
                    self._count += 1
                    entry.first, entry.second = hashed[0], hashed[1]
                entry.offset = base_offset + record.offset_delta + 1
            position = record.end
        if position != size:
            raise MalformedBytes(f"{size - position} bytes follow the last record")
        return True

    def keep(self, const uint8_t[::1] data, Py_ssize_t count, int64_t base_offset, *,
             bint drop_tombstones):
        """Which of a batch's records stay; see `_walk_pure.OffsetMap.keep`."""
        cdef Py_ssize_t position = 0, start_of, size = data.shape[0], i, written = 0
        cdef Py_ssize_t kept = 0, tombstones = 0, expired = 0
        cdef int64_t newest = 0
        cdef Walked record
        cdef uint64_t hashed[2]
        cdef Entry* entry
        cdef const uint8_t* start = &data[0] if size else NULL
        out = PyBytes_FromStringAndSize(NULL, size)
        cdef char* target = PyBytes_AS_STRING(out)
        for i in range(count):
            start_of = position
            if not _walk(start, size, position, &record):
                raise MalformedBytes(f"record at position {position}")
            position = record.end
            if record.key_size < 0:
                continue
            entry = self._find(start + record.key_start, record.key_size, hashed)
            if entry.offset > base_offset + record.offset_delta + 1:
                continue
            if record.is_tombstone:
                if drop_tombstones:
                    expired += 1
                    continue
                tombstones += 1
            if kept == 0 or record.timestamp_delta > newest:
                newest = record.timestamp_delta
            kept += 1
            memcpy(target + written, start + start_of, position - start_of)
            written += position - start_of
        if position != size:
            raise MalformedBytes(f"{size - position} bytes follow the last record")
        return Kept(b"" if kept == count else out[:written], kept, tombstones, expired, newest)


def rebase(const uint8_t[::1] data, Py_ssize_t count, shift):
    """The records with `shift` added to each timestamp delta."""
    cdef Py_ssize_t position = 0, size = data.shape[0], i, size_end
    cdef Walked record
    cdef int64_t number = 0
    cdef const uint8_t* start = &data[0] if size else NULL
    out = bytearray()
    for i in range(count):
        if not _walk(start, size, position, &record):
            raise MalformedBytes(f"record at position {position}")
        size_end = _number(start, position, size, 5, &number)
        body = bytearray(data[size_end : record.timestamp_start])
        write_varint(body, record.timestamp_delta + shift)
        body += data[record.timestamp_end : record.end]
        write_varint(out, len(body))
        out += body
        position = record.end
    if position != size:
        raise MalformedBytes(f"{size - position} bytes follow the last record")
    return bytes(out)
