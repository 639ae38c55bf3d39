# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The hot path's functions in C.  `_fast_pure.py` says what they do.

Every function here takes the plain road only: bytes that are whole and right.  At the first
doubt it hands the same arguments to its twin in `_fast_pure`, which words the error, so the two
cannot disagree about what is wrong.  No pointer outlives the buffer that it was taken from.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_FromLongLong, PyLong_FromUnsignedLong
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

from crc32c import crc32c as _crc32c_of_package

from quipu.model.errors import MalformedBytes
from quipu.wire import _fast_pure, record_batch
from quipu.wire.fetch_codec import FetchCall, FetchedFrom
from quipu.wire.record_batch import BatchHeader

cdef extern from "_bytes.h":
    uint16_t quipu_u16(const uint8_t *p)
    uint32_t quipu_u32(const uint8_t *p)
    uint64_t quipu_u64(const uint8_t *p)
    void quipu_put16(uint8_t *p, uint16_t value)
    void quipu_put32(uint8_t *p, uint32_t value)
    void quipu_put64(uint8_t *p, uint64_t value)
    int quipu_has_crc()
    uint32_t quipu_crc(uint32_t crc, const uint8_t *p, size_t size)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject *, Py_ssize_t)

cdef enum:
    PREFIX_SIZE = 16
    LAYOUT = 1
    LENGTH_START = 12
    HEADER_SIZE = 61
    BATCH_LENGTH_MIN = 49
    RECORD_SIZE_MIN = 7
    EXPANSION_BITS = 15
    DECOMPRESSED_SIZE_MAX = 268435456
    CRC_START = 21  # of a Kafka batch: its checksum covers from here to the end
    GATHER_SIZE_MAX = 4096
    TOPIC_ID_SIZE = 16
    CLIENT_ID_START = 8  # of a request: after api key, api version and correlation id
    PART_SIZE = 30  # of an answer: index, error code, three numbers of eight bytes
    SHORT_NAME_MAX = 126  # its compact length takes one byte
    FETCHED_HEAD_MAX = 256  # of an answer with a short name: all before its records
    INLINE_CRC_MAX = 1024  # above, the package's three-way CRC is faster than one stream

# After a partition's numbers: no record errors, no message, no tagged fields of partition and
# topic, no throttling, no tagged fields.
cdef const char *PART_END = b"\x01\0\0\0\0\0\0\0\0"
# After a partition's records: no tagged fields of partition, topic and answer.
cdef const char *FETCHED_END = b"\0\0\0"
cdef bytes _fetched_end = FETCHED_END[:3]
assert RECORD_SIZE_MIN == record_batch.RECORD_SIZE_MIN
assert 1 << EXPANSION_BITS == record_batch.EXPANSION_MAX
assert DECOMPRESSED_SIZE_MAX == record_batch.DECOMPRESSED_SIZE_MAX

cdef int64_t OFFSET_MAX = (<int64_t>1 << 62)
cdef int _has_crc = quipu_has_crc()
cdef Py_ssize_t _partitions_max = _fast_pure.PRODUCE_PARTITIONS_MAX
cdef Py_ssize_t _fetch_size_max = _fast_pure.FETCH_SIZE_MAX
cdef Py_ssize_t _fetch_odd_size_max = _fast_pure.FETCH_ODD_SIZE_MAX


# ---------------------------------------------------------------- bytes of requests

cdef struct Cursor:
    const uint8_t *data
    Py_ssize_t position
    Py_ssize_t size
    bint bad  # goes bad once and stays bad: one check at the end is enough


cdef inline Py_ssize_t take(Cursor *cursor, Py_ssize_t size) noexcept:
    """The position of the next `size` bytes."""
    cdef Py_ssize_t start = cursor.position
    if cursor.bad or size < 0 or size > cursor.size - start:
        cursor.bad = True
        return 0
    cursor.position = start + size
    return start


cdef inline int32_t take_int32(Cursor *cursor) noexcept:
    cdef Py_ssize_t start = take(cursor, 4)
    return 0 if cursor.bad else <int32_t>quipu_u32(cursor.data + start)


cdef inline int16_t take_int16(Cursor *cursor) noexcept:
    cdef Py_ssize_t start = take(cursor, 2)
    return 0 if cursor.bad else <int16_t>quipu_u16(cursor.data + start)


cdef inline int64_t take_uvarint(Cursor *cursor) noexcept:
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int index
    for index in range(5):
        if cursor.bad or cursor.position >= cursor.size:
            break
        byte = cursor.data[cursor.position]
        cursor.position += 1
        value |= (<uint64_t>(byte & 0x7F)) << (7 * index)
        if byte < 0x80:
            if value >= (<uint64_t>1 << 32):
                break
            return <int64_t>value
    cursor.bad = True
    return 0


cdef inline int64_t take_size(Cursor *cursor, bint flexible, bint wide) noexcept:
    """A length, -1 for null: compact, or of four (`wide`) or two bytes."""
    if flexible:
        return take_uvarint(cursor) - 1
    return take_int32(cursor) if wide else take_int16(cursor)


cdef inline void skip_tags(Cursor *cursor) noexcept:
    cdef int64_t count = take_uvarint(cursor)
    while count > 0 and not cursor.bad:
        take_uvarint(cursor)
        take(cursor, <Py_ssize_t>take_uvarint(cursor))
        count -= 1


cdef object take_string(Cursor *cursor, bint flexible):
    """A string or None; raises UnicodeDecodeError."""
    cdef int64_t size = take_size(cursor, flexible, False)
    cdef Py_ssize_t start
    if cursor.bad or size == -1:
        return None
    start = take(cursor, <Py_ssize_t>size)
    if cursor.bad:
        return None
    return PyUnicode_DecodeUTF8(<const char *>cursor.data + start, <Py_ssize_t>size, NULL)


cdef inline int64_t take_int64(Cursor *cursor) noexcept:
    cdef Py_ssize_t start = take(cursor, 8)
    return 0 if cursor.bad else <int64_t>quipu_u64(cursor.data + start)


cdef inline int64_t take_count(Cursor *cursor, bint flexible) noexcept:
    """The length of an array, which is not null and has at least a byte for every entry."""
    cdef int64_t count = take_size(cursor, flexible, True)
    if count < 0 or count > cursor.size - cursor.position:
        cursor.bad = True
        return 0
    return count


cdef object take_topic(Cursor *cursor, bint flexible, bint with_id):
    """A topic's name or id, None if there is none; raises UnicodeDecodeError."""
    cdef Py_ssize_t start
    if not with_id:
        return take_string(cursor, flexible)
    start = take(cursor, TOPIC_ID_SIZE)
    return None if cursor.bad else PyBytes_FromStringAndSize(
        <const char *>cursor.data + start, TOPIC_ID_SIZE)


# ---------------------------------------------------------------- Produce

cdef object parse(Cursor *cursor, int version, Py_ssize_t parts_max):
    """The whole request, or None if anything about it is not plainly right."""
    cdef bint flexible = version >= 9
    cdef int64_t topic_count, partition_count, size
    cdef int32_t partition, timeout_ms
    cdef int16_t acks
    cdef Py_ssize_t start
    cdef list parts = []
    cdef object topic
    transactional_id = take_string(cursor, flexible)
    acks = take_int16(cursor)
    timeout_ms = take_int32(cursor)
    topic_count = take_count(cursor, flexible)
    while topic_count > 0 and not cursor.bad:
        topic_count -= 1
        topic = take_topic(cursor, flexible, version >= 13)
        partition_count = take_count(cursor, flexible)
        if topic is None:
            return None
        while partition_count > 0 and not cursor.bad:
            partition_count -= 1
            partition = take_int32(cursor)
            size = take_size(cursor, flexible, True)
            start = -1 if size == -1 else take(cursor, <Py_ssize_t>size)
            if flexible:
                skip_tags(cursor)
            if cursor.bad:
                return None
            if len(parts) == parts_max:
                if parts_max == _partitions_max:
                    return None
                return transactional_id, acks, timeout_ms, []
            parts.append((topic, partition, start, -1 if start == -1 else start + size))
        if flexible:
            skip_tags(cursor)
    if flexible:
        skip_tags(cursor)
    if cursor.bad or cursor.position != cursor.size:
        return None
    return transactional_id, acks, timeout_ms, parts


cdef inline void skip_header(Cursor *cursor, bint flexible) noexcept:
    """Move past the header of a request: numbers, client id, tagged fields."""
    cdef int16_t size
    take(cursor, CLIENT_ID_START)
    size = take_int16(cursor)
    if size >= 0:
        take(cursor, size)
    elif size != -1:
        cursor.bad = True
    if flexible:
        skip_tags(cursor)


def parse_produce(object frame, Py_ssize_t position, int version,
                  Py_ssize_t parts_max=_partitions_max):
    """See `_fast_pure.parse_produce`."""
    cdef Py_buffer buffer
    cdef Cursor cursor
    cdef object result = None
    assert 3 <= version <= 13, version
    assert position >= -1, position
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    try:
        cursor.data = <const uint8_t *>buffer.buf
        cursor.position = max(position, 0)
        cursor.size = buffer.len
        cursor.bad = False
        if position == -1:
            skip_header(&cursor, version >= 9)
        try:
            result = parse(&cursor, version, parts_max)
        except UnicodeDecodeError:
            result = None
    finally:
        PyBuffer_Release(&buffer)
    if result is None:
        return _fast_pure.parse_produce(frame, position, version, parts_max)
    return result


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    char *PyBytes_AsString(object data) except NULL


def encode_one_part(int32_t correlation_id, int version, object topic, object part):
    """See `produce_codec.encode_one_part`."""
    cdef bint is_id = type(topic) is bytes
    cdef const char *name
    cdef Py_ssize_t name_size
    cdef Py_ssize_t size
    cdef bytes frame
    cdef uint8_t *out
    index, code, base_offset, append_time, log_start, message, record_errors = part
    if version < 9 or message is not None or record_errors:
        return _fast_pure.encode_one_part(correlation_id, version, topic, part)
    if is_id:
        name, name_size = PyBytes_AsString(topic), len(topic)
    else:
        name = PyUnicode_AsUTF8AndSize(topic, &name_size)
    if name_size > SHORT_NAME_MAX:
        return _fast_pure.encode_one_part(correlation_id, version, topic, part)
    size = 10 + (0 if is_id else 1) + name_size + 1 + PART_SIZE + 9
    frame = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t *>PyBytes_AS_STRING(frame)
    quipu_put32(out, <uint32_t>(size - 4))
    quipu_put32(out + 4, <uint32_t>correlation_id)
    out[8] = 0  # no tagged fields in the header
    out[9] = 2  # one topic
    out += 10
    if not is_id:
        out[0] = <uint8_t>(name_size + 1)
        out += 1
    memcpy(out, name, name_size)
    out += name_size
    out[0] = 2  # one partition
    quipu_put32(out + 1, <uint32_t><int32_t>index)
    quipu_put16(out + 5, <uint16_t><int16_t>code)
    quipu_put64(out + 7, <uint64_t><int64_t>base_offset)
    quipu_put64(out + 15, <uint64_t><int64_t>append_time)
    quipu_put64(out + 23, <uint64_t><int64_t>log_start)
    memcpy(out + 31, PART_END, 9)
    return frame


# ---------------------------------------------------------------- Fetch

cdef inline void put_item(object into, Py_ssize_t index, object value):
    Py_INCREF(value)  # the tuple takes over a reference
    PyTuple_SET_ITEM(into, index, value)


cdef object take_target(Cursor *cursor, int version, object topic):
    """One partition of a Fetch request, up to its tagged fields."""
    cdef int32_t partition = take_int32(cursor)
    cdef int32_t leader_epoch = take_int32(cursor) if version >= 9 else -1
    cdef int64_t offset = take_int64(cursor)
    cdef int32_t last_fetched_epoch = take_int32(cursor) if version >= 12 else -1
    cdef PyTypeObject *cls = <PyTypeObject *>FetchedFrom
    cdef object target
    if version >= 5:
        take(cursor, 8)  # a follower's log start offset
    target = cls.tp_alloc(cls, 6)
    put_item(target, 0, topic)
    put_item(target, 1, PyLong_FromLongLong(partition))
    put_item(target, 2, PyLong_FromLongLong(offset))
    put_item(target, 3, PyLong_FromLongLong(take_int32(cursor)))
    put_item(target, 4, PyLong_FromLongLong(leader_epoch))
    put_item(target, 5, PyLong_FromLongLong(last_fetched_epoch))
    return target


cdef inline void take_no_tags(Cursor *cursor, bint flexible) noexcept:
    """Tagged fields are the twin's: some of them mean something in a Fetch request."""
    if flexible and take_uvarint(cursor) != 0:
        cursor.bad = True


cdef list take_targets(Cursor *cursor, int version):
    cdef bint flexible = version >= 12
    cdef int64_t topic_count = take_count(cursor, flexible)
    cdef int64_t partition_count
    cdef list targets = []
    while topic_count > 0 and not cursor.bad:
        topic_count -= 1
        topic = take_topic(cursor, flexible, version >= 13)
        if topic is None:
            cursor.bad = True
        partition_count = take_count(cursor, flexible)
        while partition_count > 0 and not cursor.bad:
            partition_count -= 1
            targets.append(take_target(cursor, version, topic))
            take_no_tags(cursor, flexible)
        take_no_tags(cursor, flexible)
    return targets


cdef list take_forgotten(Cursor *cursor, int version):
    cdef bint flexible = version >= 12
    cdef int64_t topic_count = take_count(cursor, flexible)
    cdef int64_t partition_count
    cdef list forgotten = []
    while topic_count > 0 and not cursor.bad:
        topic_count -= 1
        topic = take_topic(cursor, flexible, version >= 13)
        if topic is None:
            cursor.bad = True
        partition_count = take_count(cursor, flexible)
        while partition_count > 0 and not cursor.bad:
            partition_count -= 1
            forgotten.append((topic, take_int32(cursor)))
        take_no_tags(cursor, flexible)
    return forgotten


cdef object parse_fetch_body(Cursor *cursor, int version):
    """The whole request, or None if anything about it is not plainly right."""
    cdef bint flexible = version >= 12
    cdef PyTypeObject *cls = <PyTypeObject *>FetchCall
    cdef object call = cls.tp_alloc(cls, 10)
    cdef object rack = ""
    cdef Py_ssize_t isolation
    cdef int32_t replica_id = take_int32(cursor) if version < 15 else -1
    put_item(call, 0, PyLong_FromLongLong(take_int32(cursor)))
    put_item(call, 1, PyLong_FromLongLong(take_int32(cursor)))
    put_item(call, 2, PyLong_FromLongLong(take_int32(cursor)))
    isolation = take(cursor, 1)
    put_item(call, 3, PyLong_FromLongLong(0 if cursor.bad else <signed char>cursor.data[isolation]))
    put_item(call, 4, PyLong_FromLongLong(take_int32(cursor) if version >= 7 else 0))
    put_item(call, 5, PyLong_FromLongLong(take_int32(cursor) if version >= 7 else -1))
    put_item(call, 6, take_targets(cursor, version))
    put_item(call, 7, take_forgotten(cursor, version) if version >= 7 else [])
    put_item(call, 8, PyLong_FromLongLong(replica_id))
    if version >= 11:
        rack = take_string(cursor, flexible)
    put_item(call, 9, rack)
    if rack is None:
        return None
    take_no_tags(cursor, flexible)
    return None if cursor.bad or cursor.position != cursor.size else call


def parse_fetch(object frame, Py_ssize_t position, int version):
    """See `_fast_pure.parse_fetch`."""
    cdef Py_buffer buffer
    cdef Cursor cursor
    cdef object result = None
    assert 4 <= version <= 18, version
    assert position >= -1, position
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    try:
        cursor.data = <const uint8_t *>buffer.buf
        cursor.position = max(position, 0)
        cursor.size = buffer.len
        cursor.bad = buffer.len > _fetch_size_max
        if position == -1:
            skip_header(&cursor, version >= 12)
        try:
            result = parse_fetch_body(&cursor, version)
        except UnicodeDecodeError:
            result = None
    finally:
        PyBuffer_Release(&buffer)
    if result is None:
        if buffer.len > _fetch_odd_size_max:
            raise MalformedBytes(
                f"a fetch request of {buffer.len} bytes that is not plain: it is malformed, or has "
                f"tagged fields, of which {_fetch_odd_size_max} bytes are taken")
        return _fast_pure.parse_fetch(frame, position, version)
    return result


cdef inline Py_ssize_t put_uvarint(uint8_t *out, uint64_t value) noexcept:
    """Write `value`; gives how many bytes it takes, at most ten."""
    cdef Py_ssize_t size = 0
    while value >= 0x80:
        out[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    out[size] = <uint8_t>value
    return size + 1


def encode_one_fetched(int32_t correlation_id, int version, object topic, object part, *,
                       int32_t session_id, bint committed_only):
    """See `fetch_codec.encode_one_fetched`."""
    cdef uint8_t head[FETCHED_HEAD_MAX]
    cdef uint8_t *out = head
    cdef bint is_id = type(topic) is bytes
    cdef const char *name
    cdef Py_ssize_t name_size, size
    cdef int64_t records_size
    cdef list buffers
    (index, code, high_watermark, stable, log_start, records, part_size, preferred,
     diverging_epoch, diverging_end) = part
    if is_id:
        name, name_size = PyBytes_AsString(topic), len(topic)
    else:
        name = PyUnicode_AsUTF8AndSize(topic, &name_size)
    if version < 12 or name_size > SHORT_NAME_MAX or diverging_epoch != -1 or diverging_end != -1:
        return _fast_pure.encode_one_fetched(
            correlation_id, version, topic, part, session_id=session_id,
            committed_only=committed_only)
    records_size = part_size
    quipu_put32(out + 4, <uint32_t>correlation_id)
    out[8] = 0  # no tagged fields in the header
    quipu_put32(out + 9, 0)  # no throttling
    quipu_put16(out + 13, 0)  # no error
    quipu_put32(out + 15, <uint32_t>session_id)
    out[19] = 2  # one topic
    out += 20
    if not is_id:
        out[0] = <uint8_t>(name_size + 1)
        out += 1
    memcpy(out, name, name_size)
    out += name_size
    out[0] = 2  # one partition
    quipu_put32(out + 1, <uint32_t><int32_t>index)
    quipu_put16(out + 5, <uint16_t><int16_t>code)
    quipu_put64(out + 7, <uint64_t><int64_t>high_watermark)
    quipu_put64(out + 15, <uint64_t><int64_t>stable)
    quipu_put64(out + 23, <uint64_t><int64_t>log_start)
    out[31] = 1 if committed_only else 0  # aborted transactions: none, or not asked for
    quipu_put32(out + 32, <uint32_t><int32_t>preferred)
    out += 36
    out += put_uvarint(out, <uint64_t>(records_size + 1))
    memcpy(out, FETCHED_END, 3)
    size = out - head
    quipu_put32(head, <uint32_t>(size - 4 + records_size + 3))
    if records_size == 0:
        return [PyBytes_FromStringAndSize(<const char *>head, size + 3)]
    buffers = [PyBytes_FromStringAndSize(<const char *>head, size)]
    buffers.extend(records)
    buffers.append(_fetched_end)
    return buffers


# ---------------------------------------------------------------- batches


cdef object header_of(const uint8_t *data):
    """A BatchHeader made in one allocation: what `tuple.__new__` does for a named tuple."""
    cdef PyTypeObject *cls = <PyTypeObject *>BatchHeader
    cdef object header = cls.tp_alloc(cls, 13)
    put_item(header, 0, PyLong_FromLongLong(<int64_t>quipu_u64(data)))
    put_item(header, 1, PyLong_FromLongLong(<int32_t>quipu_u32(data + 8)))
    put_item(header, 2, PyLong_FromLongLong(<int32_t>quipu_u32(data + 12)))
    put_item(header, 3, PyLong_FromLongLong(<signed char>data[16]))
    put_item(header, 4, PyLong_FromUnsignedLong(quipu_u32(data + 17)))
    put_item(header, 5, PyLong_FromLongLong(<int16_t>quipu_u16(data + 21)))
    put_item(header, 6, PyLong_FromLongLong(<int32_t>quipu_u32(data + 23)))
    put_item(header, 7, PyLong_FromLongLong(<int64_t>quipu_u64(data + 27)))
    put_item(header, 8, PyLong_FromLongLong(<int64_t>quipu_u64(data + 35)))
    put_item(header, 9, PyLong_FromLongLong(<int64_t>quipu_u64(data + 43)))
    put_item(header, 10, PyLong_FromLongLong(<int16_t>quipu_u16(data + 51)))
    put_item(header, 11, PyLong_FromLongLong(<int32_t>quipu_u32(data + 53)))
    put_item(header, 12, PyLong_FromLongLong(<int32_t>quipu_u32(data + 57)))
    return header


cdef inline int64_t count_max(int64_t size, int codec) noexcept:
    """See `record_batch.count_max`."""
    if codec != 0:
        size = min(size << EXPANSION_BITS, DECOMPRESSED_SIZE_MAX)
    return size // RECORD_SIZE_MIN


cdef inline bint is_plain(const uint8_t *data, Py_ssize_t size, Py_ssize_t size_max) noexcept:
    """Is the header that of an ordinary batch which fills its buffer?"""
    cdef int32_t count
    if size < HEADER_SIZE or size > size_max:
        return False
    count = <int32_t>quipu_u32(data + 57)
    return (
        quipu_u64(data) == 0
        and quipu_u32(data + 8) == <uint64_t>(size - LENGTH_START)
        and data[16] == 2
        and quipu_u16(data + 21) <= 4  # a known codec, no flags
        and count >= 1 and <int32_t>quipu_u32(data + 23) == count - 1
        and count <= count_max(size - HEADER_SIZE, quipu_u16(data + 21))
        and (<int64_t>quipu_u64(data + 43) == -1 or is_producer(data))
    )


cdef inline bint is_producer(const uint8_t *data) noexcept:
    """Are producer id, epoch and sequence all there, that is, not negative?"""
    return (data[43] | data[51] | data[53]) & 0x80 == 0


def check_batch(object data, *, Py_ssize_t size_max):
    """See `record_batch.check_batch`."""
    cdef Py_buffer buffer
    cdef const uint8_t *at
    cdef object header = None
    cdef uint32_t crc
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>buffer.buf
        if is_plain(at, buffer.len, size_max):
            if _has_crc and buffer.len <= INLINE_CRC_MAX:
                crc = quipu_crc(0, at + CRC_START, buffer.len - CRC_START)
            else:
                crc = _crc32c_of_package(memoryview(data)[CRC_START:])
            if crc == quipu_u32(at + 17):
                header = header_of(at)
    finally:
        PyBuffer_Release(&buffer)
    if header is None:
        return _fast_pure.check_batch(data, size_max=size_max)
    return header


def stamp(object batch, object header, *, int batch_type, int64_t log_offset,
          int64_t base_offset, int32_t leader_epoch):
    """See `stored_batch.stamp`.  What `header` tells is read from `batch`, which it belongs to."""
    cdef Py_buffer buffer
    cdef uint8_t *data
    cdef uint8_t *out
    cdef bytes prefix
    if not _has_crc:
        return _fast_pure.stamp(
            batch, header, batch_type=batch_type, log_offset=log_offset,
            base_offset=base_offset, leader_epoch=leader_epoch)
    assert 0 < batch_type < 256, batch_type
    prefix = PyBytes_FromStringAndSize(NULL, PREFIX_SIZE)
    PyObject_GetBuffer(batch, &buffer, PyBUF_WRITABLE)
    try:
        assert buffer.len >= HEADER_SIZE, buffer.len
        data = <uint8_t *>buffer.buf
        out = <uint8_t *>PyBytes_AS_STRING(prefix)
        quipu_put64(data, <uint64_t>base_offset)
        quipu_put32(data + 12, <uint32_t>leader_epoch)
        out[4] = <uint8_t>batch_type
        out[5] = LAYOUT
        out[6] = 0
        out[7] = 0
        quipu_put64(out + 8, <uint64_t>log_offset)
        quipu_put32(out, quipu_crc(quipu_crc(0, out + 4, 12), data, CRC_START))
    finally:
        PyBuffer_Release(&buffer)
    return prefix


# ---------------------------------------------------------------- walking a segment

cdef struct Walk:
    const uint8_t *data
    Py_ssize_t size
    Py_ssize_t position
    Py_ssize_t start  # of the batch found
    Py_ssize_t end
    Py_ssize_t taken
    Py_ssize_t count
    int64_t offset
    int64_t end_offset
    int64_t limit
    bint min_one
    bint broken


cdef bint step(Walk *walk) noexcept:
    """Move to the next batch to take; false at the end, at the limit, or if bytes are broken."""
    cdef const uint8_t *at
    cdef int64_t base_offset, last_offset
    cdef int32_t length
    cdef Py_ssize_t end
    while walk.position < walk.size:
        if walk.size - walk.position < PREFIX_SIZE + HEADER_SIZE:
            walk.broken = True
            return False
        at = walk.data + walk.position
        length = <int32_t>quipu_u32(at + 24)
        if length < BATCH_LENGTH_MIN:
            walk.broken = True
            return False
        end = walk.position + PREFIX_SIZE + LENGTH_START + length
        if end > walk.size:
            walk.broken = True
            return False
        if at[4] == 1:
            base_offset = <int64_t>quipu_u64(at + 16)
            last_offset = base_offset + <int32_t>quipu_u32(at + 39)
            if base_offset < 0 or base_offset > OFFSET_MAX:
                walk.broken = True  # the sum could overflow; the twin has no such limit
                return False
            if last_offset >= walk.offset:
                if base_offset >= walk.end_offset:
                    return False
                walk.start = walk.position + PREFIX_SIZE
                walk.end = end
                if walk.taken + end - walk.start > walk.limit and (
                        walk.count > 0 or not walk.min_one):
                    return False
                walk.taken += end - walk.start
                walk.count += 1
                walk.position = end
                return True
        walk.position = end
    return False


def slices(object mapping, Py_ssize_t position, *, int64_t offset, int64_t end_offset,
           int64_t limit, bint min_one):
    """See `_fast_pure.slices`."""
    cdef Py_buffer buffer
    cdef Walk first, walk
    cdef list buffers = []
    cdef bytes joined
    cdef char *out
    cdef bint broken
    assert position >= 0, position
    view = memoryview(mapping)
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        first = Walk(
            data=<const uint8_t *>buffer.buf, size=buffer.len, position=position, start=0, end=0,
            taken=0, count=0, offset=offset, end_offset=end_offset, limit=limit, min_one=min_one,
            broken=False)
        walk = first
        while step(&walk):  # count, so that a copy is made into a buffer of the right size
            pass
        broken = walk.broken
        if not broken and walk.count > 1 and walk.taken < walk.count * GATHER_SIZE_MAX:
            joined = PyBytes_FromStringAndSize(NULL, walk.taken)
            out = PyBytes_AS_STRING(joined)
            walk = first
            while step(&walk):
                if walk.taken > len(joined):  # the bytes changed under us: someone wrote the file
                    break
                memcpy(out, walk.data + walk.start, walk.end - walk.start)
                out += walk.end - walk.start
            broken = walk.taken != len(joined)
            buffers.append(memoryview(joined))
        elif not broken:
            walk = first
            while step(&walk):
                buffers.append(view[walk.start:walk.end])
    finally:
        PyBuffer_Release(&buffer)
    if broken:
        return _fast_pure.slices(
            mapping, position, offset=offset, end_offset=end_offset, limit=limit, min_one=min_one)
    return buffers, walk.taken, walk.position
