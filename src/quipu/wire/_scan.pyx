# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The walk over a run of plain batches in C.  `_scan_pure.py` says what it does.

Every read is bounded before it happens: a header by `STORED_HEADER_SIZE`, a body by the length
that its header tells.  No pointer outlives the buffer that it was taken from.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memset

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

from crc32c import crc32c as _crc32c_of_package

from quipu.model import batch_types, ids
from quipu.wire import _scan_pure, record_batch, stored_batch
from quipu.wire._scan_pure import Run

cdef extern from "_bytes.h":
    uint16_t quipu_u16(const uint8_t *p) nogil
    uint32_t quipu_u32(const uint8_t *p) nogil
    uint64_t quipu_u64(const uint8_t *p) nogil
    int quipu_has_crc()
    uint32_t quipu_crc(uint32_t crc, const uint8_t *p, size_t size) nogil

cdef enum:
    DATA = 1
    LAYOUT = 1
    MAGIC = 2
    STORED_HEADER_SIZE = 77
    BEFORE_LENGTH_END = 28  # of a stored batch: what its length does not count
    BATCH_LENGTH_MIN = 49
    COMPRESSION_MASK = 0x07
    RECORD_SIZE_MIN = 7
    EXPANSION_BITS = 15
    DECOMPRESSED_SIZE_MAX = 268435456
    COVERED_START = 4
    COVERED_SIZE = 33
    BODY_CRC_START = 37
    BATCHES_KEPT = 5
    PRODUCERS_MAX = 1000
    SLOTS = 4096  # a power of two, so large that few ids share a slot
    INLINE_CRC_MAX = 1024  # above, the package's three-way CRC is faster than one stream
    UNLOCKED_CRC_MAX = 32768  # above, the package too lets go of the interpreter's lock

cdef int64_t BATCH_LENGTH_MAX = stored_batch.BATCH_LENGTH_MAX
cdef int64_t OFFSET_MAX = _scan_pure.OFFSET_MAX
cdef int64_t NO_TIMESTAMP = ids.NO_TIMESTAMP
cdef int _has_crc = quipu_has_crc()

assert DATA == batch_types.DATA
assert COMPRESSION_MASK == record_batch.COMPRESSION_MASK
assert RECORD_SIZE_MIN == record_batch.RECORD_SIZE_MIN
assert 1 << EXPANSION_BITS == record_batch.EXPANSION_MAX
assert DECOMPRESSED_SIZE_MAX == record_batch.DECOMPRESSED_SIZE_MAX
assert STORED_HEADER_SIZE == stored_batch.STORED_HEADER_SIZE
assert COVERED_START == stored_batch.COVERED_START
assert COVERED_SIZE == stored_batch.COVERED_END - COVERED_START
assert BATCHES_KEPT == _scan_pure.BATCHES_KEPT
assert PRODUCERS_MAX == _scan_pure.PRODUCERS_MAX


cdef struct Batch:
    int32_t base_sequence
    int32_t last_offset_delta
    int64_t base_offset


cdef struct Producer:
    int64_t producer_id
    int64_t count  # of its batches in the run; the last few are in a ring
    int16_t epoch
    Batch batches[BATCHES_KEPT]


cdef struct Producers:
    int count
    uint16_t slots[SLOTS]  # 1 + the producer's number, 0: free; the next slot if taken
    Producer found[PRODUCERS_MAX]  # in the order of their first batches


cdef Producers *new_producers() except NULL:
    cdef Producers *producers = <Producers *>PyMem_Malloc(sizeof(Producers))
    if producers == NULL:
        raise MemoryError
    producers.count = 0
    memset(producers.slots, 0, sizeof(producers.slots))
    return producers


cdef inline Producer *producer_of(Producers *producers, int64_t producer_id,
                                  int16_t epoch) noexcept:
    """The producer with this id, made if it is new; NULL if there is no room."""
    cdef uint64_t slot = (<uint64_t>producer_id) & (SLOTS - 1)
    cdef Producer *producer
    while producers.slots[slot] != 0:
        producer = &producers.found[producers.slots[slot] - 1]
        if producer.producer_id == producer_id:
            return producer
        slot = (slot + 1) & (SLOTS - 1)
    if producers.count == PRODUCERS_MAX:
        return NULL
    producer = &producers.found[producers.count]
    producers.count += 1
    producers.slots[slot] = <uint16_t>producers.count
    producer.producer_id = producer_id
    producer.epoch = epoch
    producer.count = 0
    return producer


cdef bint note(Producers *producers, const uint8_t *at) noexcept:
    """See `_scan_pure._note`; `at` is the stored batch, which has a producer."""
    cdef int16_t epoch = <int16_t>quipu_u16(at + 67)
    cdef int32_t base_sequence = <int32_t>quipu_u32(at + 69)
    cdef Producer *producer
    cdef Batch *batch
    if base_sequence < 0:
        return False
    producer = producer_of(producers, <int64_t>quipu_u64(at + 59), epoch)
    if producer == NULL or producer.epoch != epoch:
        return False
    batch = &producer.batches[producer.count % BATCHES_KEPT]
    batch.base_sequence = base_sequence
    batch.last_offset_delta = <int32_t>quipu_u32(at + 39)
    batch.base_offset = <int64_t>quipu_u64(at + 16)
    producer.count += 1
    return True


cdef list listed(Producers *producers):
    cdef list found = []
    cdef list batches
    cdef Producer *producer
    cdef Batch *batch
    cdef int64_t number
    cdef int index
    if producers == NULL:
        return found
    for index in range(producers.count):
        producer = &producers.found[index]
        batches = []
        for number in range(max(0, producer.count - BATCHES_KEPT), producer.count):
            batch = &producer.batches[number % BATCHES_KEPT]
            batches.append((batch.base_sequence, batch.last_offset_delta, batch.base_offset))
        found.append((producer.producer_id, producer.epoch, batches))
    return found


cdef struct Walk:
    const uint8_t *data
    Py_ssize_t size
    Py_ssize_t position
    int64_t log_end
    int64_t end_offset
    int32_t leader_epoch


cdef inline int64_t count_max(int64_t size, int codec) noexcept:
    """See `record_batch.count_max`."""
    if codec != 0:
        size = min(size << EXPANSION_BITS, DECOMPRESSED_SIZE_MAX)
    return size // RECORD_SIZE_MIN


cdef inline Py_ssize_t size_of_next(Walk *walk) noexcept:
    """The size of the batch at the position if all of its header is plain, else 0."""
    cdef const uint8_t *at
    cdef int64_t length
    if walk.size - walk.position < STORED_HEADER_SIZE:
        return 0
    at = walk.data + walk.position
    length = <int32_t>quipu_u32(at + 24)
    if (
        at[4] != DATA or at[5] != LAYOUT or quipu_u16(at + 6) != 0 or at[32] != MAGIC
        or length < BATCH_LENGTH_MIN or length > BATCH_LENGTH_MAX
        or length + BEFORE_LENGTH_END > walk.size - walk.position
        or <int64_t>quipu_u64(at + 8) != walk.log_end
        or <int64_t>quipu_u64(at + 16) != walk.end_offset
        or <int32_t>quipu_u32(at + 28) != walk.leader_epoch
        or <int32_t>quipu_u32(at + 39) < 0
        or <int64_t><int32_t>quipu_u32(at + 73) != <int64_t><int32_t>quipu_u32(at + 39) + 1
        or <int32_t>quipu_u32(at + 73) > count_max(
            length - BATCH_LENGTH_MIN, at[38] & COMPRESSION_MASK)
        or walk.log_end < 0 or walk.log_end > OFFSET_MAX
        or walk.end_offset < 0 or walk.end_offset > OFFSET_MAX
    ):
        return 0
    return <Py_ssize_t>(length + BEFORE_LENGTH_END)


cdef inline int has_crc(object view, Walk *walk, Py_ssize_t start, Py_ssize_t size,
                        uint32_t crc) except -1:
    """Have the `size` bytes, `start` bytes into the batch, this checksum?"""
    start += walk.position
    if _has_crc and size <= INLINE_CRC_MAX:
        return quipu_crc(0, walk.data + start, size) == crc
    return <uint32_t>_crc32c_of_package(view[start:start + size]) == crc


def scan_run(object data, Py_ssize_t position, object expected, *, int64_t mark_due,
             int64_t mark_interval):
    """See `_scan_pure.scan_run`."""
    cdef Py_buffer buffer
    cdef Walk walk
    cdef Producers *producers
    cdef const uint8_t *at
    cdef Py_ssize_t size
    cdef int64_t newest = NO_TIMESTAMP
    cdef int64_t delta
    cdef list marks = []
    assert position >= 0, position
    if max(expected.log_offset, expected.offset) > OFFSET_MAX:
        return _scan_pure.scan_run(
            data, position, expected, mark_due=mark_due, mark_interval=mark_interval)
    walk.log_end, walk.end_offset, walk.leader_epoch = expected
    view = memoryview(data)
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    producers = NULL
    try:
        walk.data, walk.size, walk.position = <const uint8_t *>buffer.buf, buffer.len, position
        while (size := size_of_next(&walk)) != 0:
            at = walk.data + walk.position
            if not has_crc(view, &walk, COVERED_START, COVERED_SIZE, quipu_u32(at)):
                break
            if not has_crc(view, &walk, BODY_CRC_START, size - BODY_CRC_START,
                           quipu_u32(at + 33)):
                break
            if at[59] < 0x80:  # a producer's id is not negative
                if producers == NULL:
                    producers = new_producers()
                if not note(producers, at):
                    break
            if walk.position >= mark_due:
                marks.append((walk.end_offset, walk.log_end, walk.position, newest))
                mark_due = walk.position + mark_interval
            newest = max(newest, <int64_t>quipu_u64(at + 51))
            delta = <int32_t>quipu_u32(at + 39)
            walk.log_end += delta + 1
            walk.end_offset += delta + 1
            walk.position += size
        return Run(walk.position, walk.log_end, walk.end_offset, newest, marks, listed(producers))
    finally:
        PyMem_Free(producers)
        PyBuffer_Release(&buffer)


cdef inline Py_ssize_t sound_size(const uint8_t *at, Py_ssize_t left,
                                  int64_t log_offset) noexcept nogil:
    """The size of the stored batch of any type whose header is sound and which lies whole in
    `left` bytes and has this log offset; 0 if it is none.
    """
    cdef int64_t length
    if left < STORED_HEADER_SIZE or quipu_crc(0, at + COVERED_START, COVERED_SIZE) != (
            quipu_u32(at)):
        return 0
    length = <int32_t>quipu_u32(at + 24)
    if (
        at[4] == 0 or at[5] != LAYOUT or quipu_u16(at + 6) != 0 or at[32] != MAGIC
        or length < BATCH_LENGTH_MIN or length > BATCH_LENGTH_MAX
        or length + BEFORE_LENGTH_END > left
        or <int64_t>quipu_u64(at + 8) != log_offset or <int32_t>quipu_u32(at + 39) < 0
        or log_offset < 0 or log_offset > OFFSET_MAX
    ):
        return 0
    return <Py_ssize_t>(length + BEFORE_LENGTH_END)


cdef inline Py_ssize_t walk_sound(Walk *walk, Py_ssize_t end) noexcept nogil:
    """Walk over sound batches up to `end`; gives the size of one whose body is too large to be
    checked here, else 0.
    """
    cdef const uint8_t *at
    cdef Py_ssize_t size
    while walk.position < end:
        at = walk.data + walk.position
        size = sound_size(at, walk.size - walk.position, walk.log_end)
        if size == 0:
            return 0
        if size > UNLOCKED_CRC_MAX:
            return size
        if quipu_crc(0, at + BODY_CRC_START, size - BODY_CRC_START) != quipu_u32(at + 33):
            return 0
        walk.log_end += <int64_t><int32_t>quipu_u32(at + 39) + 1
        walk.position += size
    return 0


def sound_end(object data, Py_ssize_t position, Py_ssize_t end, int64_t log_offset):
    """See `_scan_pure.sound_end`.  Lets other threads run meanwhile."""
    cdef Py_buffer buffer
    cdef Walk walk
    cdef Py_ssize_t size
    assert position >= 0, position
    if not _has_crc:
        return _scan_pure.sound_end(data, position, end, log_offset)
    view = memoryview(data)
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        walk.data, walk.size, walk.position = <const uint8_t *>buffer.buf, buffer.len, position
        walk.log_end = log_offset
        while True:
            with nogil:
                size = walk_sound(&walk, end)
            if size == 0 or not has_crc(view, &walk, BODY_CRC_START, size - BODY_CRC_START,
                                        quipu_u32(walk.data + walk.position + 33)):
                return walk.position, walk.log_end
            walk.log_end += <int64_t><int32_t>quipu_u32(walk.data + walk.position + 39) + 1
            walk.position += size
    finally:
        PyBuffer_Release(&buffer)
