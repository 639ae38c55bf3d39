# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A chunk of a run of batches as Arrow columns, in C.  `_columns_pure.py` says what it does.

Three steps: `plan` walks the batches (checksums, transactions, decompression) and so bounds the
number of rows; `walk` goes over every record, checks it, and notes where its parts lie; `fill`
copies the parts into buffers of exactly their size.  A length is compared with the bytes that
are left before anything is read or made.  At the first doubt the chunk ends before the batch in
question; if that is the first one, the same arguments go to the twin, which words the error.

Every piece of memory is an Arrow buffer that a Python name holds, so none is lost on an error.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy, memset

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

import pyarrow as pa
from crc32c import crc32c as _crc32c_of_package

from quipu.pipeline.records import _columns_pure, batches
from quipu.pipeline.records.batches import (
    HEADER_TYPE, HEADERS_TYPE, Chunk, CorruptRecords, body_of, texts_of)
from quipu.pipeline.types import MILLIS_MAX, MILLIS_MIN, TIMESTAMPTZ
from quipu.wire import record_batch
from quipu.wire.record_batch import parse_header

cdef extern from "../../wire/_bytes.h":
    uint32_t quipu_u32(const uint8_t *p) nogil
    uint64_t quipu_u64(const uint8_t *p) nogil
    int quipu_has_crc()
    uint32_t quipu_crc(uint32_t crc, const uint8_t *p, size_t size)

cdef enum:
    HEADER_SIZE = 61
    BATCH_LENGTH_MIN = 49
    LENGTH_START = 12
    CRC_START = 21
    MAGIC = 2
    COMPRESSION_MASK = 0x07
    APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_OR_CONTROL = 0x30
    RECORD_SIZE_MIN = 7
    INLINE_CRC_MAX = 1024  # above, the package's three-way CRC is faster than one stream

cdef int64_t OFFSET_MAX = batches.OFFSET_MAX
cdef int64_t BATCH_SIZE_MAX = batches.BATCH_SIZE_MAX
cdef int64_t NO_TIMESTAMP = batches.NO_TIMESTAMP
cdef int64_t TIMESTAMP_MIN = MILLIS_MIN
cdef int64_t TIMESTAMP_MAX = MILLIS_MAX
cdef int _has_crc = quipu_has_crc()

assert HEADER_SIZE == record_batch.HEADER_SIZE
assert BATCH_LENGTH_MIN == record_batch.BATCH_LENGTH_MIN
assert CRC_START == record_batch.CRC_START
assert RECORD_SIZE_MIN == record_batch.RECORD_SIZE_MIN
assert APPEND_TIME_BIT == record_batch.LOG_APPEND_TIME_BIT
assert TRANSACTIONAL_OR_CONTROL == record_batch.TRANSACTIONAL_BIT | record_batch.CONTROL_BIT


cdef struct Batch:
    const uint8_t *body  # its records, decompressed
    Py_ssize_t size
    Py_ssize_t position  # of the batch in the run
    int64_t before  # the next offset as it was before the batch
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t last_offset_delta
    int32_t count
    int32_t is_append_time


cdef struct Parts:  # a column of bytes: where each row's lie, and what Arrow wants to know of it
    const uint8_t **at  # NULL: the column is not wanted
    int32_t *ends  # Arrow's offsets, without the 0 in front
    uint8_t *valid
    int64_t nulls
    int32_t size


cdef struct Out:
    int64_t first
    int64_t end
    Py_ssize_t rows
    Parts key
    Parts value
    int64_t *offset
    int64_t *timestamp
    uint8_t *timestamp_valid
    int64_t timestamp_nulls
    int32_t *timestamp_type
    const uint8_t **headers  # where each row's headers begin
    const uint8_t **headers_end
    int32_t *header_ends
    int32_t header_count
    int64_t header_key_size
    int64_t header_value_size


# ---------------------------------------------------------------- buffers

cdef inline void *_address(object buffer) except NULL:
    return <void *><uintptr_t>buffer.address


cdef void *_take(list held, Py_ssize_t size) except NULL:
    """Memory that lives as long as `held`; of 0 bytes it would have no address."""
    buffer = pa.allocate_buffer(max(size, 8))
    held.append(buffer)
    return _address(buffer)


# ---------------------------------------------------------------- batches

cdef class Plan:
    """The batches of a chunk, checked as far as their headers, and where the next one is."""

    cdef list held  # decompressed records, and the buffer that `batches` lies in
    cdef Batch *batches
    cdef Py_ssize_t room
    cdef Py_ssize_t count
    cdef Py_ssize_t rows
    cdef Py_ssize_t position
    cdef int64_t next_offset
    cdef int64_t gathered  # bytes of records

    cdef int add(self, Batch *batch) except -1:
        cdef Batch *larger
        if self.count == self.room:
            room = max(16, self.room * 2)
            larger = <Batch *>_take(self.held, room * sizeof(Batch))
            if self.count > 0:
                memcpy(larger, self.batches, self.count * sizeof(Batch))
            self.batches, self.room = larger, room
        self.batches[self.count] = batch[0]
        self.count += 1
        self.rows += batch.count
        return 0


cdef bint has_crc(object view, const uint8_t *at, Py_ssize_t position, Py_ssize_t size) except -1:
    """Is the checksum of the batch right?"""
    cdef uint32_t crc = quipu_u32(at + 17)
    if _has_crc and size <= INLINE_CRC_MAX:
        return quipu_crc(0, at + CRC_START, size - CRC_START) == crc
    return <uint32_t>_crc32c_of_package(view[position + CRC_START:position + size]) == crc


cdef bint find_body(Plan plan, object view, const uint8_t *at, Py_ssize_t size,
                    Batch *batch) except -1:
    """Fill in body and size; false if there is something wrong with them."""
    if at[22] & COMPRESSION_MASK == 0:
        batch.body, batch.size = at + HEADER_SIZE, size - HEADER_SIZE
    else:
        whole = view[plan.position:plan.position + size]
        body = pa.py_buffer(body_of(whole, parse_header(whole)))
        plan.held.append(body)
        batch.body, batch.size = <const uint8_t *>_address(body), body.size
    return (batch.size <= BATCH_SIZE_MAX and batch.count >= 0
            and <int64_t>batch.count * RECORD_SIZE_MIN <= batch.size)


cdef bint plan_batches(Plan plan, object view, const uint8_t *data, object span,
                       object transactions) except -1:
    """Walk batches until the chunk is full or the run is not plain; false: a doubt ended it."""
    cdef Py_ssize_t run_size = len(view)
    cdef int64_t first = span.first
    cdef int64_t end = span.end
    cdef int64_t size_max = span.size_max
    cdef bint is_checked = span.is_checked
    cdef int64_t size, last_offset
    cdef const uint8_t *at
    cdef Batch batch
    while plan.gathered < size_max and run_size - plan.position >= HEADER_SIZE:
        at = data + plan.position
        size = <int64_t><int32_t>quipu_u32(at + 8) + LENGTH_START
        if at[16] != MAGIC or size < HEADER_SIZE:
            return False
        if size > run_size - plan.position:
            return True
        batch.base_offset = <int64_t>quipu_u64(at)
        batch.last_offset_delta = <int32_t>quipu_u32(at + 23)
        if batch.base_offset < 0 or batch.base_offset > OFFSET_MAX or batch.last_offset_delta < 0:
            return False
        if batch.base_offset >= end:
            plan.next_offset = end
            return True
        if not is_checked and not has_crc(view, at, plan.position, size):
            return False
        last_offset = batch.base_offset + batch.last_offset_delta
        batch.before = plan.next_offset
        batch.position = plan.position
        batch.count = <int32_t>quipu_u32(at + 57)
        if not (at[22] & TRANSACTIONAL_OR_CONTROL
                and transactions.hide(view[plan.position:plan.position + size])
                or last_offset < first or batch.count == 0):
            batch.is_append_time = 1 if at[22] & APPEND_TIME_BIT else 0
            batch.base_timestamp = <int64_t>quipu_u64(at + 27)
            batch.max_timestamp = <int64_t>quipu_u64(at + 35)
            if not find_body(plan, view, at, size, &batch):
                return False
            plan.add(&batch)
            plan.gathered += batch.size
        plan.next_offset = max(plan.next_offset, last_offset + 1)
        plan.position += size
    return True


# ---------------------------------------------------------------- records

cdef inline bint take_number(const uint8_t **at, const uint8_t *end,
                             int64_t *number) noexcept nogil:
    """A zigzag number of up to 32 bits; false if it does not end before `end`."""
    cdef const uint8_t *p = at[0]
    cdef uint64_t rest = 0
    cdef int shift = 0
    while shift < 35:
        if p >= end:
            return False
        rest |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            at[0] = p + 1
            number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
            return rest >> 32 == 0
        p += 1
        shift += 7
    return False


cdef inline bint take_long(const uint8_t **at, const uint8_t *end,
                           int64_t *number) noexcept nogil:
    """The same, of up to 64 bits."""
    cdef const uint8_t *p = at[0]
    cdef uint64_t rest = 0
    cdef int shift = 0
    while shift < 70:
        if p >= end or (shift == 63 and p[0] > 1):
            return False
        rest |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            at[0] = p + 1
            number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
            return True
        p += 1
        shift += 7
    return False


cdef inline bint take_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **start,
                            int64_t *size) noexcept nogil:
    """Bytes after their length, which is -1 for null; they end before `end`."""
    if not take_number(at, end, size) or size[0] < -1 or size[0] > end - at[0]:
        return False
    start[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return True


cdef inline void note(Parts *parts, Py_ssize_t row, const uint8_t *start,
                      int64_t size) noexcept nogil:
    if parts.at == NULL:
        return
    parts.at[row] = start
    if size < 0:
        parts.nulls += 1
    else:
        parts.valid[row >> 3] |= <uint8_t>(1 << (row & 7))
        parts.size += <int32_t>size
    parts.ends[row] = parts.size


cdef inline void note_timestamp(Out *out, const Batch *batch, int64_t delta) noexcept nogil:
    cdef Py_ssize_t row = out.rows
    cdef int64_t ms
    if batch.is_append_time:
        ms = batch.max_timestamp
    else:  # as unsigned numbers, where a sum may be too large
        ms = <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>delta)
    if ms == NO_TIMESTAMP or ms < TIMESTAMP_MIN or ms > TIMESTAMP_MAX:
        out.timestamp_nulls += 1
        out.timestamp[row] = 0
    else:
        out.timestamp_valid[row >> 3] |= <uint8_t>(1 << (row & 7))
        out.timestamp[row] = ms * 1000


cdef inline bint take_headers(const uint8_t **at, const uint8_t *end, int64_t count,
                              int64_t *key_size, int64_t *value_size) noexcept nogil:
    """Move past the headers of a record and sum up their bytes."""
    cdef const uint8_t *start = NULL
    cdef int64_t size = 0
    while count > 0:
        count -= 1
        if not take_bytes(at, end, &start, &size) or size < 0:
            return False
        key_size[0] += size
        if not take_bytes(at, end, &start, &size):
            return False
        value_size[0] += max(size, 0)
    return True


cdef bint walk_records(Out *out, const Batch *batch) noexcept nogil:
    """Note all records of a batch that are in the span; false if any of it is not plain."""
    cdef const uint8_t *at = batch.body
    cdef const uint8_t *body_end = at + batch.size
    cdef const uint8_t *end
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef const uint8_t *headers
    cdef int64_t size = 0, key_size = 0, value_size = 0, timestamp_delta = 0, delta = 0, count = 0
    cdef int64_t header_key_size, header_value_size
    cdef int32_t left = batch.count
    cdef Py_ssize_t row
    while left > 0:
        left -= 1
        if (not take_number(&at, body_end, &size) or size < RECORD_SIZE_MIN - 1
                or size > body_end - at):
            return False
        end = at + size
        at += 1  # attributes of a record: none are defined
        if (not take_long(&at, end, &timestamp_delta) or not take_number(&at, end, &delta)
                or delta < 0 or delta > batch.last_offset_delta
                or not take_bytes(&at, end, &key, &key_size)
                or not take_bytes(&at, end, &value, &value_size)
                or not take_number(&at, end, &count) or count < 0 or count * 2 > end - at):
            return False
        headers = at
        header_key_size = header_value_size = 0
        if (not take_headers(&at, end, count, &header_key_size, &header_value_size)
                or at != end):
            return False
        delta += batch.base_offset
        if delta < out.first or delta >= out.end:
            continue
        row = out.rows
        note(&out.key, row, key, key_size)
        note(&out.value, row, value, value_size)
        if out.offset != NULL:
            out.offset[row] = delta
        if out.timestamp != NULL:
            note_timestamp(out, batch, timestamp_delta)
        if out.timestamp_type != NULL:
            out.timestamp_type[row] = batch.is_append_time
        if out.headers != NULL:
            out.headers[row] = headers
            out.headers_end[row] = end
            out.header_count += <int32_t>count
            out.header_ends[row] = out.header_count
            out.header_key_size += header_key_size
            out.header_value_size += header_value_size
        out.rows += 1
    return at == body_end


# ---------------------------------------------------------------- columns

cdef class Buffers:
    """The Arrow buffers that `Out` points into."""

    cdef list held
    cdef dict named  # by column: those that become part of its array
    cdef Out out

    cdef void *named_buffer(self, str name, Py_ssize_t size, bint zeroed) except NULL:
        """A buffer under a name."""
        cdef void *memory
        buffer = self.named[name] = pa.allocate_buffer(max(size, 8))
        memory = _address(buffer)
        if zeroed:
            memset(memory, 0, size)
        return memory

    cdef int prepare_parts(self, Parts *parts, str name, Py_ssize_t rows) except -1:
        cdef int32_t *ends = <int32_t *>self.named_buffer(name + " ends", 4 * (rows + 1), False)
        parts.at = <const uint8_t **>_take(self.held, rows * sizeof(uint8_t *))
        parts.valid = <uint8_t *>self.named_buffer(name + " valid", (rows + 7) // 8, True)
        ends[0] = 0
        parts.ends = ends + 1
        return 0

    cdef int prepare(self, object span, object wanted, Py_ssize_t rows) except -1:
        """Make room for as many rows as there can be."""
        cdef int32_t *ends
        memset(&self.out, 0, sizeof(Out))
        self.out.first, self.out.end = span.first, span.end
        if wanted.key:
            self.prepare_parts(&self.out.key, "key", rows)
        if wanted.value:
            self.prepare_parts(&self.out.value, "value", rows)
        if wanted.offset:
            self.out.offset = <int64_t *>self.named_buffer("offset", 8 * rows, False)
        if wanted.timestamp:
            self.out.timestamp = <int64_t *>self.named_buffer("timestamp", 8 * rows, False)
            self.out.timestamp_valid = <uint8_t *>self.named_buffer(
                "timestamp valid", (rows + 7) // 8, True)
        if wanted.timestamp_type:
            self.out.timestamp_type = <int32_t *>self.named_buffer(
                "timestamp_type", 4 * rows, False)
        if wanted.headers:
            self.out.headers = <const uint8_t **>_take(self.held, rows * sizeof(uint8_t *))
            self.out.headers_end = <const uint8_t **>_take(self.held, rows * sizeof(uint8_t *))
            ends = <int32_t *>self.named_buffer("headers ends", 4 * (rows + 1), False)
            ends[0] = 0
            self.out.header_ends = ends + 1
        return 0

    cdef object parts_array(self, Parts *parts, str name):
        cdef uint8_t *into = <uint8_t *>self.named_buffer(name + " data", parts.size, False)
        cdef Py_ssize_t rows = self.out.rows
        with nogil:
            copy_parts(parts, rows, into)
        return pa.Array.from_buffers(
            pa.binary(), rows,
            [self.named[name + " valid"] if parts.nulls else None, self.named[name + " ends"],
             self.named[name + " data"].slice(0, parts.size)], parts.nulls)

    cdef object headers_array(self):
        cdef Py_ssize_t count = self.out.header_count
        cdef Parts key
        cdef Parts value
        memset(&key, 0, sizeof(Parts))
        memset(&value, 0, sizeof(Parts))
        self.prepare_parts(&key, "header key", count)
        self.prepare_parts(&value, "header value", count)
        note_headers(&self.out, &key, &value)
        saved, self.out.rows = self.out.rows, count  # `parts_array` counts headers now
        try:
            entries = pa.StructArray.from_arrays(
                [texts_of(self.parts_array(&key, "header key")),
                 self.parts_array(&value, "header value")],
                fields=list(HEADER_TYPE))
        finally:
            self.out.rows = saved
        return pa.Array.from_buffers(
            HEADERS_TYPE, self.out.rows, [None, self.named["headers ends"]], 0,
            children=[entries])

    cdef list arrays(self):
        """The wanted columns."""
        cdef Py_ssize_t rows = self.out.rows
        cdef list arrays = []
        if self.out.key.at != NULL:
            arrays.append(self.parts_array(&self.out.key, "key"))
        if self.out.value.at != NULL:
            arrays.append(self.parts_array(&self.out.value, "value"))
        if self.out.offset != NULL:
            arrays.append(pa.Array.from_buffers(
                pa.int64(), rows, [None, self.named["offset"]], 0))
        if self.out.timestamp != NULL:
            arrays.append(pa.Array.from_buffers(
                TIMESTAMPTZ, rows,
                [self.named["timestamp valid"] if self.out.timestamp_nulls else None,
                 self.named["timestamp"]], self.out.timestamp_nulls))
        if self.out.timestamp_type != NULL:
            arrays.append(pa.Array.from_buffers(
                pa.int32(), rows, [None, self.named["timestamp_type"]], 0))
        if self.out.headers != NULL:
            arrays.append(self.headers_array())
        return arrays


cdef void copy_parts(const Parts *parts, Py_ssize_t rows, uint8_t *into) noexcept nogil:
    cdef Py_ssize_t row
    cdef int32_t start = 0
    for row in range(rows):
        if parts.ends[row] > start:
            memcpy(into + start, parts.at[row], parts.ends[row] - start)
        start = parts.ends[row]


cdef void note_headers(const Out *out, Parts *key, Parts *value) noexcept nogil:
    """Note all headers of all rows; `walk_records` has seen that they lie where they should."""
    cdef const uint8_t *at
    cdef const uint8_t *start = NULL
    cdef const uint8_t *end
    cdef Py_ssize_t row
    cdef int32_t header = 0
    cdef int64_t size = 0
    for row in range(out.rows):
        at, end = out.headers[row], out.headers_end[row]
        while header < out.header_ends[row]:
            take_bytes(&at, end, &start, &size)
            note(key, header, start, size)
            take_bytes(&at, end, &start, &size)
            note(value, header, start, size)
            header += 1


cdef bint walk_all(Plan plan, Out *out) noexcept nogil:
    """Walk the records of every batch; at a doubt the plan ends before its batch."""
    cdef Out before
    cdef Py_ssize_t index
    for index in range(plan.count):
        before = out[0]
        if not walk_records(out, &plan.batches[index]):
            out[0] = before
            plan.position = plan.batches[index].position
            plan.next_offset = plan.batches[index].before
            return False
    return True


def gather(object data, Py_ssize_t position, object span, object wanted, object transactions):
    """See `_columns_pure.gather`."""
    cdef Py_buffer run
    cdef Plan plan = Plan()
    cdef Buffers buffers = Buffers()
    cdef bint is_plain
    view = memoryview(data)
    assert 0 <= position <= len(view), position
    plan.held, plan.position, plan.next_offset = [], position, span.first
    buffers.held, buffers.named = [], {}
    PyObject_GetBuffer(view, &run, PyBUF_SIMPLE)
    try:
        try:
            is_plain = plan_batches(plan, view, <const uint8_t *>run.buf, span, transactions)
        except CorruptRecords:
            is_plain = False
        buffers.prepare(span, wanted, plan.rows)
        is_plain = walk_all(plan, &buffers.out) and is_plain
        if not is_plain and plan.position == position:
            return _columns_pure.gather(view, position, span, wanted, transactions)
        return Chunk(plan.position, plan.next_offset, buffers.arrays())
    finally:
        PyBuffer_Release(&run)


cdef class Runs:
    """The buffers of some runs, which stay where they are as long as this lives."""

    cdef Py_buffer *buffers
    cdef Py_ssize_t count
    cdef list held

    def __cinit__(self, Py_ssize_t room):
        self.held, self.count = [], 0
        self.buffers = <Py_buffer *>_take(self.held, room * sizeof(Py_buffer))

    cdef const uint8_t *add(self, object view) except NULL:
        PyObject_GetBuffer(view, &self.buffers[self.count], PyBUF_SIMPLE)
        self.count += 1
        return <const uint8_t *>self.buffers[self.count - 1].buf

    def __dealloc__(self):
        while self.count > 0:
            self.count -= 1
            PyBuffer_Release(&self.buffers[self.count])


def gather_runs(list runs, object span, object wanted, object transactions):
    """See `_columns_pure.gather_runs`."""
    cdef Plan plan = Plan()
    cdef Buffers buffers = Buffers()
    cdef Runs held = Runs(len(runs))
    plan.held, plan.next_offset = [], span.first
    buffers.held, buffers.named = [], {}
    for run in runs:
        view = memoryview(run)
        plan.position = 0
        if len(view) == 0:
            continue
        try:
            if not plan_batches(plan, view, held.add(view), span, transactions):
                return None
        except CorruptRecords:
            return None
        if plan.position < len(view):
            return None
    buffers.prepare(span, wanted, plan.rows)
    if not walk_all(plan, &buffers.out):
        return None
    return Chunk(plan.position, plan.next_offset, buffers.arrays())
