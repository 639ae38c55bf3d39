# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The walk over a batch's records in C.  `_records_pure.py` says what it does.

A length is compared with the bytes that are left before anything is read.  No pointer outlives
the buffer that it was taken from, and nothing here allocates.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcmp

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

from quipu.wire import _records_pure, record_batch
from quipu.wire._records_pure import RecordFault, RecordsSeen, TimeFound

cdef extern from "_bytes.h":
    uint32_t quipu_u32(const uint8_t *p)
    uint64_t quipu_u64(const uint8_t *p)

cdef enum:
    HEADER_SIZE = 61  # of a batch
    COMPRESSION_MASK = 0x07
    RECORD_SIZE_MIN = 7
    HEADER_SIZE_MIN = 2
    KEYLESS_MAX = 100
    NO_TIMESTAMP = -1
    LZ4_RATIO_MAX = 255
    ZSTD_BLOCK_SIZE_MAX = 131072
    XERIAL_HEADER_SIZE = 16
    SNAPPY_RATIO_MAX = 22
    SNAPPY_BLOCK_SIZE_MIN = 512
    SNAPPY_BLOCKS_SMALL_MAX = 64
    NO_FRAME = -1

cdef enum Fault:
    NONE = 0
    MISSING = 1
    LENGTH = 2
    ATTRIBUTES = 3
    TIMESTAMP = 4
    OFFSET_DELTA = 5
    KEY = 6
    VALUE = 7
    HEADERS = 8
    HEADER_NAME = 9
    EXCESS = 10
    TRAILING = 11
    KEYLESS = 12

cdef int64_t TIMESTAMP_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t TIMESTAMP_MIN = -TIMESTAMP_MAX - 1
cdef const char *XERIAL_MAGIC = b"\x82SNAPPY\x00"
cdef uint32_t LZ4_MAGIC = _records_pure.LZ4_MAGIC
cdef uint32_t ZSTD_MAGIC = _records_pure.ZSTD_MAGIC

assert HEADER_SIZE == record_batch.HEADER_SIZE
assert COMPRESSION_MASK == record_batch.COMPRESSION_MASK
assert RECORD_SIZE_MIN == record_batch.RECORD_SIZE_MIN
assert HEADER_SIZE_MIN == record_batch.HEADER_SIZE_MIN
assert KEYLESS_MAX == _records_pure.KEYLESS_MAX
assert ZSTD_BLOCK_SIZE_MAX == _records_pure.ZSTD_BLOCK_SIZE_MAX
assert XERIAL_HEADER_SIZE == _records_pure.XERIAL_HEADER_SIZE
assert SNAPPY_RATIO_MAX == _records_pure.SNAPPY_RATIO_MAX
assert SNAPPY_BLOCK_SIZE_MIN == _records_pure.SNAPPY_BLOCK_SIZE_MIN
assert SNAPPY_BLOCKS_SMALL_MAX == _records_pure.SNAPPY_BLOCKS_SMALL_MAX
assert NO_FRAME == _records_pure.NO_FRAME
assert MISSING == RecordFault.MISSING
assert OFFSET_DELTA == RecordFault.OFFSET_DELTA
assert HEADER_NAME == RecordFault.HEADER_NAME
assert TRAILING == RecordFault.TRAILING
assert KEYLESS == RecordFault.KEYLESS


# ---------------------------------------------------------------- numbers

cdef inline const uint8_t *take_long(const uint8_t *p, const uint8_t *end, int bits,
                                     int64_t *number) noexcept nogil:
    """A zigzag number of up to 32 or 64 `bits`; gives where it ends, NULL if it is none."""
    cdef uint64_t rest
    cdef int shift
    cdef uint8_t byte
    if p >= end:
        return NULL
    byte = p[0]
    p += 1
    if byte < 0x80:  # most are this short
        number[0] = <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1)
        return p
    rest = byte & 0x7F
    if p < end and p[0] < 0x80:  # and nearly all others
        rest |= <uint64_t>p[0] << 7
        number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
        return p + 1
    shift = 7
    while shift < bits:
        if p >= end:
            return NULL
        byte = p[0]
        p += 1
        if bits - shift < 7 and byte >> (bits - shift) != 0:
            return NULL  # bits that do not fit, or a number that goes on
        rest |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *take_bytes(const uint8_t *p, const uint8_t *end,
                                      int64_t *size) noexcept nogil:
    """Past bytes that follow their length, which is -1 for null."""
    p = take_long(p, end, 32, size)
    if p == NULL or size[0] < -1 or size[0] > end - p:
        return NULL
    return p + size[0] if size[0] > 0 else p


cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """As Python decodes it: no surrogates, nothing longer than it need be."""
    cdef uint8_t byte, low, high
    cdef int more
    while p < end:
        byte = p[0]
        p += 1
        if byte < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return False
        if end - p < more or p[0] < low or p[0] > high:
            return False
        p += 1
        more -= 1
        while more > 0:
            if p[0] & 0xC0 != 0x80:
                return False
            p += 1
            more -= 1
    return True


# ---------------------------------------------------------------- records

cdef struct Record:
    int64_t timestamp
    int64_t offset_delta
    int64_t key_size
    const uint8_t *end


cdef Fault skip_headers(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """`p` is where the number of a record's headers lies; they end with the record."""
    cdef int64_t count, size
    p = take_long(p, end, 32, &count)
    if p == NULL or count < 0 or count * HEADER_SIZE_MIN > end - p:
        return HEADERS
    while count > 0:
        count -= 1
        p = take_long(p, end, 32, &size)
        if p == NULL:
            return HEADERS
        if size == -1:
            return HEADER_NAME
        if size < 0 or size > end - p:
            return HEADERS
        if not is_utf8(p, p + size):
            return HEADER_NAME
        p = take_bytes(p + size, end, &size)
        if p == NULL:
            return HEADERS
    return NONE if p == end else EXCESS


cdef inline Fault read(const uint8_t *p, const uint8_t *end, int64_t base_timestamp,
                       Record *record) noexcept nogil:
    """The record at `p`, in a batch that ends at `end`."""
    cdef int64_t size, delta
    p = take_long(p, end, 32, &size)
    if p == NULL or size < RECORD_SIZE_MIN - 1 or size > end - p:
        return LENGTH
    end = p + size  # nothing below can read past the record
    record.end = end
    if p[0] != 0:
        return ATTRIBUTES
    p = take_long(p + 1, end, 64, &delta)
    if p == NULL:
        return TIMESTAMP
    if (delta >= 0 and base_timestamp >= TIMESTAMP_MAX - delta) or (
            delta < 0 and base_timestamp <= TIMESTAMP_MIN - delta):
        return TIMESTAMP
    record.timestamp = base_timestamp + delta
    if record.timestamp == TIMESTAMP_MIN:
        return TIMESTAMP
    p = take_long(p, end, 32, &record.offset_delta)
    if p == NULL or record.offset_delta < 0:
        return OFFSET_DELTA
    p = take_bytes(p, end, &record.key_size)
    if p == NULL:
        return KEY
    p = take_bytes(p, end, &size)
    if p == NULL:
        return VALUE
    if end - p == 1 and p[0] == 0:  # no headers, as of most records
        return NONE
    return skip_headers(p, end)


cdef struct Seen:
    Fault fault
    int64_t index
    const uint8_t *at
    int64_t oldest
    int64_t newest
    int keyless_count
    int32_t keyless[KEYLESS_MAX]


cdef void walk(const uint8_t *p, const uint8_t *end, int64_t count, int64_t base_timestamp,
               bint keyed, Seen *seen) noexcept nogil:
    cdef Record record
    cdef Fault fault
    cdef int64_t index
    cdef int64_t oldest = TIMESTAMP_MAX
    cdef int64_t newest = TIMESTAMP_MIN
    seen.keyless_count = 0
    seen.fault = NONE
    seen.index = max(count, 0)
    for index in range(count):
        fault = read(p, end, base_timestamp, &record)
        if fault == NONE and record.offset_delta != index:
            fault = OFFSET_DELTA
        if fault != NONE:
            seen.fault = MISSING if p == end else fault
            seen.index = index
            break
        if keyed and record.key_size < 0 and seen.keyless_count < KEYLESS_MAX:
            seen.keyless[seen.keyless_count] = <int32_t>index
            seen.keyless_count += 1
        if record.timestamp > newest:
            newest = record.timestamp
        if record.timestamp < oldest and record.timestamp != NO_TIMESTAMP:
            oldest = record.timestamp
        p = record.end
    if seen.fault == NONE:
        if p != end:
            seen.fault = TRAILING
        elif seen.keyless_count > 0:
            seen.fault = KEYLESS
            seen.index = seen.keyless[0]
    seen.at = p
    seen.oldest = NO_TIMESTAMP if oldest == TIMESTAMP_MAX else oldest
    seen.newest = NO_TIMESTAMP if newest == TIMESTAMP_MIN else newest


def are_plain(object batch, bint keyed):
    """See `_records_pure.are_plain`."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef Seen seen
    PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
    assert buffer.len >= HEADER_SIZE, buffer.len
    p = <const uint8_t *>buffer.buf
    walk(p + HEADER_SIZE, p + buffer.len, <int32_t>quipu_u32(p + 57),
         <int64_t>quipu_u64(p + 27), keyed, &seen)
    plain = (seen.fault == NONE and p[22] & COMPRESSION_MASK == 0
             and seen.newest == <int64_t>quipu_u64(p + 35))
    PyBuffer_Release(&buffer)
    return plain


def walk_records(object data, Py_ssize_t start, int64_t count, int64_t base_timestamp, *,
                 bint keyed=False, bint threaded=False):
    """See `_records_pure.walk_records`."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef Seen seen
    cdef int index
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        assert 0 <= start <= buffer.len, start
        p = <const uint8_t *>buffer.buf + start
        end = <const uint8_t *>buffer.buf + buffer.len
        if threaded:
            with nogil:
                walk(p, end, count, base_timestamp, keyed, &seen)
        else:
            walk(p, end, count, base_timestamp, keyed, &seen)
        return RecordsSeen(
            seen.fault, seen.index, seen.at - p, seen.oldest, seen.newest,
            [seen.keyless[index] for index in range(seen.keyless_count)])
    finally:
        PyBuffer_Release(&buffer)


def find_time(object data, Py_ssize_t start, int64_t count, int64_t base_timestamp, *,
              int64_t wanted, int64_t first_delta):
    """See `_records_pure.find_time`."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef Record record
    cdef int64_t index
    cdef int64_t newest = NO_TIMESTAMP
    cdef int64_t found = -1
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        assert 0 <= start <= buffer.len, start
        p = <const uint8_t *>buffer.buf + start
        end = <const uint8_t *>buffer.buf + buffer.len
        with nogil:
            for index in range(count):
                if read(p, end, base_timestamp, &record) != NONE:
                    found = -2
                    break
                if record.offset_delta >= first_delta:
                    if record.timestamp >= wanted:
                        found, newest = record.offset_delta, record.timestamp
                        break
                    newest = max(newest, record.timestamp)
                p = record.end
        return TimeFound(found, newest)
    finally:
        PyBuffer_Release(&buffer)


# ---------------------------------------------------------------- frames of codecs

cdef inline uint64_t little(const uint8_t *p, int size) noexcept nogil:
    cdef uint64_t value = 0
    while size > 0:
        size -= 1
        value = value << 8 | p[size]
    return value


cdef int64_t lz4_bound(const uint8_t *p, int64_t size) noexcept nogil:
    cdef int64_t block_size, length, raw
    cdef int64_t at = 7
    cdef int64_t bound = 0
    cdef uint8_t flags
    if size < 7 or little(p, 4) != LZ4_MAGIC:
        return NO_FRAME
    flags = p[4]
    if flags >> 6 != 1 or flags & 0x03 or p[5] & 0x8F or p[5] >> 4 < 4:
        return NO_FRAME
    block_size = <int64_t>1 << (2 * (p[5] >> 4) + 8)
    if flags & 0x08:
        at += 8
    while True:
        if size - at < 4:
            return NO_FRAME
        length = <int64_t>little(p + at, 4)
        at += 4
        if length == 0:
            break
        raw = length >> 31
        length &= 0x7FFFFFFF
        if length > block_size or length > size - at:
            return NO_FRAME
        at += length + (4 if flags & 0x10 else 0)
        bound += length if raw else min(block_size, length * LZ4_RATIO_MAX)
    if at + (4 if flags & 0x04 else 0) != size:
        return NO_FRAME
    if flags & 0x08 and little(p + 6, 8) < <uint64_t>bound:
        return <int64_t>little(p + 6, 8)
    return bound


cdef int64_t zstd_bound(const uint8_t *p, int64_t size) noexcept nogil:
    cdef int64_t length, kind
    cdef int64_t at = 5
    cdef int64_t bound = 0
    cdef int content_bytes
    cdef uint64_t content
    cdef uint8_t descriptor
    cdef bint last = False
    if size < 6 or little(p, 4) != ZSTD_MAGIC:
        return NO_FRAME
    descriptor = p[4]
    if descriptor & 0x0B:
        return NO_FRAME
    content_bytes = 1 << (descriptor >> 6)
    if not descriptor & 0x20:
        at += 1
        if content_bytes == 1:
            content_bytes = 0
    if size - at < content_bytes:
        return NO_FRAME
    content = little(p + at, content_bytes) + (256 if content_bytes == 2 else 0)
    at += content_bytes
    while not last:
        if size - at < 3:
            return NO_FRAME
        length = <int64_t>little(p + at, 3)
        last, kind, length = length & 1, length >> 1 & 3, length >> 3
        at += 3
        if kind == 3 or length > ZSTD_BLOCK_SIZE_MAX:
            return NO_FRAME
        at += 1 if kind == 1 else length
        if at > size:
            return NO_FRAME
        bound += ZSTD_BLOCK_SIZE_MAX if kind == 2 else length
    if at + (4 if descriptor & 0x04 else 0) != size:
        return NO_FRAME
    if content_bytes and content < <uint64_t>bound:
        return <int64_t>content
    return bound


cdef int64_t snappy_block(const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(5):
        if index >= size:
            break
        value |= <uint64_t>(p[index] & 0x7F) << (7 * index)
        if p[index] < 0x80:
            return <int64_t>value if value <= <uint64_t>size * SNAPPY_RATIO_MAX else NO_FRAME
    return NO_FRAME


cdef int64_t snappy_bound(const uint8_t *p, int64_t size) noexcept nogil:
    cdef int64_t length, held
    cdef int64_t at = XERIAL_HEADER_SIZE
    cdef int64_t total = 0
    cdef int64_t blocks = 0
    if size < 8 or memcmp(p, XERIAL_MAGIC, 8) != 0:
        return snappy_block(p, size)
    if size < at:
        return NO_FRAME
    while at < size:
        if size - at < 4:
            return NO_FRAME
        length = <int32_t>(<uint32_t>p[at] << 24 | <uint32_t>p[at + 1] << 16
                           | <uint32_t>p[at + 2] << 8 | p[at + 3])
        at += 4
        if length <= 0 or length > size - at:
            return NO_FRAME
        held = snappy_block(p + at, length)
        if held == NO_FRAME:
            return NO_FRAME
        total += held
        blocks += 1
        at += length
    if blocks > SNAPPY_BLOCKS_SMALL_MAX + total // SNAPPY_BLOCK_SIZE_MIN:
        return NO_FRAME
    return total


def snappy_size_max(object data):
    """See `_records_pure.snappy_size_max`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return snappy_bound(<const uint8_t *>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


def lz4_size_max(object data):
    """See `_records_pure.lz4_size_max`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return lz4_bound(<const uint8_t *>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


def zstd_size_max(object data):
    """See `_records_pure.zstd_size_max`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return zstd_bound(<const uint8_t *>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)
