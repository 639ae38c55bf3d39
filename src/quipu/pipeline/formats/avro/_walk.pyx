# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The Avro walk in C.  `_walk_pure.py` says what it does.

Messages are read where they lie, values are written straight into buffers of Arrow's layout, and
no Python object is made for a message that can be read.  Every read is held against the end of
its message, every write against the room that is left; numbers that say how much follows are held
against the bytes that are left.  Validity bits are kept only once a sink has its first null.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, getenv, malloc, realloc
from libc.string cimport memcpy, memset

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

from quipu.pipeline.formats.avro import steps
from quipu.pipeline.formats.avro._walk_pure import Walked
from quipu.pipeline.formats.avro.steps import (
    Complaint, MessageFault, Filled, ArrowKind, Op, assemble)
from quipu.pipeline.formats.bounds import TooManyValues

cdef extern from "_walk.h":
    bint quipu_is_utf8(const uint8_t *p, int64_t size) nogil
    bint quipu_decimal(const uint8_t *p, int64_t size, int precision, uint8_t *out) nogil
    void quipu_uuid(const uint8_t *p, uint8_t *out) nogil
    int quipu_time(int64_t number, int width, uint8_t *out) nogil

# C wants its numbers written out: as steps.py has them, which is asserted below.

cpdef enum Kinds:
    BIT = 0
    I32 = 1
    I64 = 2
    F32 = 3
    F64 = 4
    I128 = 5
    BLOB = 6
    STRUCT = 7
    LIST = 8

cpdef enum Ops:
    OP_SKIP_NOTHING = 0
    OP_SKIP_VARINT = 1
    OP_SKIP_BYTES = 2
    OP_SKIP_BLOB = 3
    OP_SKIP_BLOCKS = 4
    OP_SKIP_PAIRS = 5
    OP_SKIP_RECORD = 6
    OP_SKIP_UNION = 7
    OP_NULL = 8
    OP_BOOLEAN = 9
    OP_INT_I32 = 10
    OP_INT_I64 = 11
    OP_INT_F32 = 12
    OP_INT_F64 = 13
    OP_LONG_I64 = 14
    OP_LONG_F32 = 15
    OP_LONG_F64 = 16
    OP_FLOAT_F32 = 17
    OP_FLOAT_F64 = 18
    OP_DOUBLE_F64 = 19
    OP_TEXT = 20
    OP_BLOB = 21
    OP_FIXED = 22
    OP_ENUM = 23
    OP_DECIMAL = 24
    OP_DECIMAL_FIXED = 25
    OP_UUID_FIXED = 26
    OP_TIME_MILLIS = 27
    OP_TIME_MICROS = 28
    OP_RECORD = 29
    OP_LIST = 30
    OP_MAP = 31
    OP_UNION = 32
    OP_CHOICE = 33
    OP_CONSTANT = 34
    OP_FAIL = 35

cdef enum:
    NO_MEMORY = -1  # not a message's fault
    FINE = 0

cpdef enum Faults:
    SHORT_FRAME = 1
    MAGIC = 2
    NO_PROGRAM = 3
    ENDED = 4
    LONG_NUMBER = 5
    INT_RANGE = 6
    BOOLEAN = 7
    UTF8 = 8
    LENGTH = 9
    BRANCH = 10
    SYMBOL = 11
    UNKNOWN_SYMBOL = 12
    ITEMS = 13
    DECIMAL = 14
    TIME = 15
    TIMESTAMP = 16
    DEPTH = 17
    TOO_LARGE = 18
    FAILED = 19
    TRAILING = 20
    TOO_MANY = 21

cdef enum:
    FRAME_SIZE = 5
    EMPTY_ITEMS_MAX = 1000
    WALK_DEPTH_MAX = 200
    ROOM = 64  # the first room of a sink, in values

assert EMPTY_ITEMS_MAX == steps.EMPTY_ITEMS_MAX
assert WALK_DEPTH_MAX == steps.WALK_DEPTH_MAX
for mine, theirs in ((Kinds, ArrowKind), (Ops, Op), (Faults, MessageFault)):
    assert [(each.name.removeprefix("OP_"), each.value) for each in mine] == [
        (each.name, each.value) for each in theirs], theirs

cdef int64_t NO_ID = steps.NO_ID
cdef int64_t UNITS_MAX = steps.UNITS_MAX


cdef struct Step:
    int op
    int sink
    int64_t number
    int64_t other
    int first  # of its children, in `links`
    int count
    int first_text  # in `texts`
    int text_count


cdef struct Text:
    const uint8_t *at
    int64_t size  # -1: there is none


cdef struct Sink:
    int kind
    int width  # of a value, in bytes; 0 for a struct
    int first  # of its children, in `links`
    int count
    int64_t length
    int64_t room  # how many values fit
    int64_t null_count
    uint8_t *valid  # bits; NULL: no nulls so far
    uint8_t *values  # numbers, a byte per bit, or `length + 1` offsets
    uint8_t *data
    int64_t data_size
    int64_t data_room


cdef class Code:
    """A program in C."""

    cdef Step *steps
    cdef int step_count
    cdef int *links
    cdef Text *texts
    cdef object kept  # the bytes that `texts` points into
    cdef object program
    cdef object allowance  # of its messages; the sinks are always the same

    def __cinit__(self, program):
        cdef int index, at = 0, text_at = 0
        self.step_count = len(program.steps)
        self.kept = program.steps
        self.program = program
        self.steps = <Step *>calloc(self.step_count + 1, sizeof(Step))
        self.links = <int *>calloc(sum(len(s.children) for s in program.steps) + 1, sizeof(int))
        self.texts = <Text *>calloc(sum(len(s.texts) for s in program.steps) + 1, sizeof(Text))
        if self.steps == NULL or self.links == NULL or self.texts == NULL:
            raise MemoryError
        for index, step in enumerate(program.steps):
            self.steps[index] = Step(
                int(step.op), step.sink, step.number, step.other,
                at, len(step.children), text_at, len(step.texts))
            for child in step.children:
                self.links[at] = child
                at += 1
            for text in step.texts:
                if text is None:
                    self.texts[text_at].size = -1
                else:
                    self.texts[text_at].at = <const uint8_t *>(<bytes>text)
                    self.texts[text_at].size = len(text)
                text_at += 1

    def __dealloc__(self):
        free(self.steps)
        free(self.links)
        free(self.texts)


cdef class Owned:
    """Memory of a sink, handed to Arrow."""

    cdef uint8_t *at
    cdef int64_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.at, self.size, 1, flags)

    def __dealloc__(self):
        free(self.at)


cdef object owned(uint8_t **at, int64_t size):
    cdef Owned memory
    if size == 0:
        return b""
    memory = Owned.__new__(Owned)
    memory.at = at[0]
    memory.size = size
    at[0] = NULL
    return memory


cdef class Filling:
    """All sinks while they fill, and the message that is being read."""

    cdef Sink *sinks
    cdef int sink_count
    cdef int *sink_links
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Step *steps
    cdef int *links
    cdef Text *texts
    cdef int depth
    cdef int64_t detail
    cdef int64_t free  # what is left of FREE_VALUES_MAX
    cdef int64_t left  # units that the message may still make
    cdef int64_t fixed
    cdef int64_t per_byte
    cdef int64_t spent  # units of the messages so far

    def __cinit__(self, sinks):
        cdef int index, at = 0
        cdef Sink *sink
        widths = {BIT: 1, I32: 4, I64: 8, F32: 4, F64: 8, I128: 16, BLOB: 4, LIST: 4}
        self.sink_count = len(sinks)
        self.free = steps.FREE_VALUES_MAX
        self.sinks = <Sink *>calloc(self.sink_count, sizeof(Sink))
        self.sink_links = <int *>calloc(self.sink_count, sizeof(int))
        if self.sinks == NULL or self.sink_links == NULL:
            raise MemoryError
        for index, each in enumerate(sinks):
            sink = &self.sinks[index]
            sink.kind = int(each.kind)
            sink.width = widths.get(sink.kind, 0)
            sink.first, sink.count = at, len(each.children)
            for child in each.children:
                self.sink_links[at] = child
                at += 1
            if sink.width and not make_room(sink):
                raise MemoryError
            if sink.kind == BLOB or sink.kind == LIST:
                (<int32_t *>sink.values)[0] = 0

    def __dealloc__(self):
        cdef int index
        if self.sinks != NULL:
            for index in range(self.sink_count):
                free(self.sinks[index].valid)
                free(self.sinks[index].values)
                free(self.sinks[index].data)
        free(self.sinks)
        free(self.sink_links)

    cdef list filled(self):
        cdef int index
        cdef Sink *sink
        result = []
        for index in range(self.sink_count):
            sink = &self.sinks[index]
            validity = values = data = None
            if sink.null_count:
                validity = owned(&sink.valid, (sink.length + 7) // 8)
            if sink.kind == BIT:
                pack(sink.values, sink.length)
                values = owned(&sink.values, (sink.length + 7) // 8)
            elif sink.kind == BLOB or sink.kind == LIST:
                values = owned(&sink.values, (sink.length + 1) * 4)
            elif sink.width:
                values = owned(&sink.values, sink.length * sink.width)
            if sink.kind == BLOB:
                data = owned(&sink.data, sink.data_size)
            result.append(Filled(sink.length, validity, values, data))
        return result


cdef void pack(uint8_t *flags, int64_t length) noexcept nogil:
    """A byte per flag to a bit per flag, in place."""
    cdef int64_t index
    cdef uint8_t byte = 0
    for index in range(length):
        byte |= flags[index] << (index & 7)
        if index & 7 == 7:
            flags[index >> 3] = byte
            byte = 0
    if length & 7:
        flags[length >> 3] = byte


# -- sinks ----------------------------------------------------------------------------------------

cdef bint make_room(Sink *sink) noexcept nogil:
    """Twice as many values; one more than `room` for offsets, and all bits of what is new are 0."""
    cdef int64_t room = sink.room * 2 if sink.room else ROOM
    cdef uint8_t *grown
    if sink.width:
        grown = <uint8_t *>realloc(sink.values, (room + 1) * sink.width)
        if grown == NULL:
            return False
        sink.values = grown
    if sink.valid != NULL:
        grown = <uint8_t *>realloc(sink.valid, room // 8)
        if grown == NULL:
            return False
        sink.valid = grown
        memset(grown + sink.room // 8, 0, (room - sink.room) // 8)
    sink.room = room
    return True


cdef bint begin_nulls(Sink *sink) noexcept nogil:
    """A sink's first null: from now on it has bits, ones for all that came before."""
    cdef int64_t whole = sink.length // 8
    sink.valid = <uint8_t *>calloc(sink.room // 8, 1)
    if sink.valid == NULL:
        return False
    memset(sink.valid, 0xFF, whole)
    if sink.length & 7:
        sink.valid[whole] = <uint8_t>((1 << (sink.length & 7)) - 1)
    return True


cdef inline bint claim(Sink *sink) noexcept nogil:
    """Room for one more value, which is valid; the caller writes it."""
    if sink.length == sink.room and not make_room(sink):
        return False
    if sink.valid != NULL:
        sink.valid[sink.length >> 3] |= <uint8_t>(1 << (sink.length & 7))
    sink.length += 1
    return True


cdef int append_blob(Sink *sink, const uint8_t *at, int64_t size) noexcept nogil:
    cdef int64_t room
    cdef uint8_t *grown
    if sink.data_size + size > INT32_MAX:
        return TOO_LARGE
    if sink.data_size + size > sink.data_room:
        room = max(sink.data_room * 2, sink.data_size + size + 1024)
        grown = <uint8_t *>realloc(sink.data, room)
        if grown == NULL:
            return NO_MEMORY
        sink.data = grown
        sink.data_room = room
    if not claim(sink):
        return NO_MEMORY
    if size:
        memcpy(sink.data + sink.data_size, at, size)
    sink.data_size += size
    (<int32_t *>sink.values)[sink.length] = <int32_t>sink.data_size
    return FINE


cdef int append_null(Filling filling, int index) noexcept nogil:
    cdef Sink *sink = &filling.sinks[index]
    cdef int child, fault
    filling.left -= 1
    if sink.length == sink.room and not make_room(sink):
        return NO_MEMORY
    if sink.valid == NULL and not begin_nulls(sink):
        return NO_MEMORY
    if sink.kind == STRUCT:
        for child in range(sink.first, sink.first + sink.count):
            fault = append_null(filling, filling.sink_links[child])
            if fault:
                return fault
    elif sink.kind == BLOB or sink.kind == LIST:
        (<int32_t *>sink.values)[sink.length + 1] = (<int32_t *>sink.values)[sink.length]
    else:
        memset(sink.values + sink.length * sink.width, 0, sink.width)
    sink.length += 1
    sink.null_count += 1
    return FINE


cdef void truncate(Filling filling, int index, int64_t length) noexcept nogil:
    """Forget all values from `length` on, with all within them."""
    cdef Sink *sink = &filling.sinks[index]
    cdef int64_t inner = length
    cdef int child
    if sink.valid != NULL:
        while sink.length > length:
            sink.length -= 1
            if not sink.valid[sink.length >> 3] & (1 << (sink.length & 7)):
                sink.null_count -= 1
            sink.valid[sink.length >> 3] &= <uint8_t>~(1 << (sink.length & 7))
    if sink.length > length:
        sink.length = length
    if sink.kind == BLOB or sink.kind == LIST:
        inner = (<int32_t *>sink.values)[sink.length]
        sink.data_size = inner if sink.kind == BLOB else 0
    for child in range(sink.first, sink.first + sink.count):
        truncate(filling, filling.sink_links[child], inner)


# -- pieces of a message --------------------------------------------------------------------------

cdef inline int read_long(Filling filling, int64_t *out) noexcept nogil:
    cdef const uint8_t *at = filling.at
    cdef uint64_t result, byte
    cdef int shift
    if at >= filling.end:
        return ENDED
    result = at[0]
    at += 1
    if result >= 0x80:
        result &= 0x7F
        shift = 7
        while True:
            if at >= filling.end:
                return ENDED
            byte = at[0]
            at += 1
            if shift == 63 and byte > 1:
                return LONG_NUMBER
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    filling.at = at
    out[0] = <int64_t>((result >> 1) ^ (~(result & 1) + 1))
    return FINE


cdef inline int read_int(Filling filling, int64_t *out) noexcept nogil:
    cdef int fault = read_long(filling, out)
    if fault:
        return fault
    if out[0] != <int32_t>out[0]:
        filling.detail = out[0]
        return INT_RANGE
    return FINE


cdef inline int read_blob(Filling filling, const uint8_t **at, int64_t *size) noexcept nogil:
    cdef int fault = read_long(filling, size)
    if fault:
        return fault
    if size[0] < 0:
        filling.detail = size[0]
        return LENGTH
    if size[0] > filling.end - filling.at:
        return ENDED
    at[0] = filling.at
    filling.at += size[0]
    return FINE


cdef int read_block(Filling filling, int64_t least, int64_t *count,
                    const uint8_t **end) noexcept nogil:
    """The number of items of the next block, and its end if the message gives it, else NULL."""
    cdef int64_t size, most
    cdef int fault = read_long(filling, count)
    if fault:
        return fault
    end[0] = NULL
    if count[0] < 0:
        fault = read_long(filling, &size)
        if fault:
            return fault
        if not 0 <= size <= filling.end - filling.at:
            filling.detail = size
            return LENGTH
        count[0] = INT64_MAX if count[0] == INT64_MIN else -count[0]
        end[0] = filling.at + size
    most = (filling.end - filling.at) // least if least else EMPTY_ITEMS_MAX
    if count[0] > most:
        filling.detail = count[0]
        return ITEMS
    return FINE


cdef inline int scaled(Filling filling, int64_t number, int64_t factor,
                       int64_t *out) noexcept nogil:
    if factor == 1:
        out[0] = number
    elif factor > 0:
        if number > INT64_MAX // factor or number < INT64_MIN // factor:
            filling.detail = number
            return TIMESTAMP
        out[0] = number * factor
    else:
        out[0] = number // -factor
        if number < 0 and out[0] * -factor != number:
            out[0] -= 1
    return FINE


# -- steps ----------------------------------------------------------------------------------------

cdef inline bint spend(Filling filling, int64_t units) noexcept nogil:
    """Is there something left of what the message may make?"""
    filling.left -= units
    return filling.left >= 0


cdef int take_blocks(Filling filling, const Step *step) noexcept nogil:
    """Lists and maps, read or skipped."""
    cdef bint pairs = step.op == OP_MAP or step.op == OP_SKIP_PAIRS
    cdef bint skips = step.op == OP_SKIP_BLOCKS or step.op == OP_SKIP_PAIRS
    cdef const Step *item = &filling.steps[filling.links[step.first]]
    cdef const uint8_t *end
    cdef const uint8_t *blob
    cdef int64_t count, size
    cdef int fault
    cdef Sink *sink = NULL
    cdef Sink *keys = NULL
    if not skips:
        sink = &filling.sinks[step.sink]
        keys = &filling.sinks[filling.sink_links[sink.first]]
    while True:
        fault = read_block(filling, step.number + pairs, &count, &end)
        if fault:
            return fault
        if count == 0:
            break
        if skips and end != NULL:
            filling.at = end
            continue
        while count:
            count -= 1
            if pairs:
                fault = read_blob(filling, &blob, &size)
                if fault:
                    return fault
                if not skips:
                    if not quipu_is_utf8(blob, size):
                        return UTF8
                    fault = append_blob(keys, blob, size)
                    if fault:
                        return fault
            fault = take(filling, item)
            if fault:
                return fault
    if skips:
        return FINE
    if keys.length > INT32_MAX:
        return TOO_LARGE
    if not claim(sink):
        return NO_MEMORY
    (<int32_t *>sink.values)[sink.length] = <int32_t>keys.length
    return FINE


cdef int take_choice(Filling filling, const Step *step) noexcept nogil:
    cdef Sink *sink = &filling.sinks[step.sink]
    cdef int place, fault
    for place in range(sink.count):
        if place == step.number:
            fault = take(filling, &filling.steps[filling.links[step.first]])
        else:
            fault = append_null(filling, filling.sink_links[sink.first + place])
        if fault:
            return fault
    return FINE if claim(sink) else NO_MEMORY


cdef int take_constant(Filling filling, const Step *step) noexcept nogil:
    cdef const uint8_t *at = filling.at
    cdef const uint8_t *end = filling.end
    cdef Text *text = &filling.texts[step.first_text]
    cdef int fault
    if not spend(filling, text.size >> 3):
        return TOO_MANY
    filling.at = text.at
    filling.end = text.at + text.size
    fault = take(filling, &filling.steps[filling.links[step.first]])
    filling.at = at
    filling.end = end
    return fault


cdef int take_nested(Filling filling, const Step *step) noexcept nogil:
    """Steps that hold others."""
    cdef int fault = FINE
    cdef int child
    cdef int64_t branch
    filling.depth += 1
    if filling.depth > WALK_DEPTH_MAX:
        return DEPTH
    if step.op == OP_RECORD or step.op == OP_SKIP_RECORD:
        for child in range(step.first, step.first + step.count):
            fault = take(filling, &filling.steps[filling.links[child]])
            if fault:
                return fault
        if step.op == OP_RECORD and not claim(&filling.sinks[step.sink]):
            return NO_MEMORY
    elif step.op == OP_UNION or step.op == OP_SKIP_UNION:
        fault = read_long(filling, &branch)
        if fault:
            return fault
        if not 0 <= branch < step.count:
            filling.detail = branch
            return BRANCH
        fault = take(filling, &filling.steps[filling.links[step.first + branch]])
    elif step.op == OP_CHOICE:
        fault = take_choice(filling, step)
    elif step.op == OP_CONSTANT:
        fault = take_constant(filling, step)
    else:
        fault = take_blocks(filling, step)
    filling.depth -= 1
    return fault


cdef int take_rare(Filling filling, const Step *step) noexcept nogil:
    """Steps that skip, and values that need more than copying."""
    cdef const uint8_t *blob
    cdef uint8_t made[40]
    cdef int64_t number, size
    cdef int fault, op = step.op
    cdef Sink *sink
    if op == OP_SKIP_NOTHING:
        return FINE
    if op == OP_SKIP_VARINT:
        return read_long(filling, &number)
    if op == OP_SKIP_BLOB:
        return read_blob(filling, &blob, &size)
    if op == OP_FAIL:
        filling.detail = step - filling.steps
        return FAILED
    if op == OP_SKIP_BYTES or op == OP_FIXED or op == OP_DECIMAL_FIXED or op == OP_UUID_FIXED:
        size = step.number
        if op == OP_DECIMAL_FIXED:
            size = step.other
        elif op == OP_UUID_FIXED:
            size = 16
        if size > filling.end - filling.at:
            return ENDED
        blob = filling.at
        filling.at += size
        if op == OP_SKIP_BYTES:
            return FINE
        if op == OP_FIXED:
            return append_blob(&filling.sinks[step.sink], blob, size)
        if op == OP_UUID_FIXED:
            quipu_uuid(blob, made)
            return append_blob(&filling.sinks[step.sink], made, 36)
    elif op == OP_DECIMAL:
        fault = read_blob(filling, &blob, &size)
        if fault:
            return fault
    else:  # OP_TIME_MILLIS or OP_TIME_MICROS
        fault = read_long(filling, &number)
        if fault:
            return fault
        size = quipu_time(number, 3 if op == OP_TIME_MILLIS else 6, made)
        if size == 0:
            filling.detail = number
            return TIME
        return append_blob(&filling.sinks[step.sink], made, size)
    sink = &filling.sinks[step.sink]
    if not quipu_decimal(blob, size, <int>step.number, made):
        return DECIMAL
    if not claim(sink):
        return NO_MEMORY
    memcpy(sink.values + (sink.length - 1) * 16, made, 16)
    return FINE


cdef int take(Filling filling, const Step *step) noexcept nogil:
    """One step; what is wrong with the message, if anything is."""
    cdef const uint8_t *blob
    cdef int64_t number, size
    cdef float single
    cdef double wide
    cdef int fault, op = step.op
    cdef Sink *sink
    cdef Text *text
    if not spend(filling, 1):
        return TOO_MANY
    if op == OP_NULL:
        return append_null(filling, step.sink)
    if op == OP_TEXT or op == OP_BLOB:
        fault = read_blob(filling, &blob, &size)
        if fault:
            return fault
        if op == OP_TEXT and not quipu_is_utf8(blob, size):
            return UTF8
        return append_blob(&filling.sinks[step.sink], blob, size)
    if op == OP_ENUM:
        fault = read_long(filling, &number)
        if fault:
            return fault
        if not 0 <= number < step.text_count:
            filling.detail = number
            return SYMBOL
        text = &filling.texts[step.first_text + number]
        if text.size < 0:
            filling.detail = number
            return UNKNOWN_SYMBOL
        if not spend(filling, text.size >> 3):
            return TOO_MANY
        return append_blob(&filling.sinks[step.sink], text.at, text.size)
    if op < OP_NULL or OP_TEXT < op < OP_RECORD or op == OP_FAIL:
        if OP_SKIP_BLOCKS <= op <= OP_SKIP_UNION:
            return take_nested(filling, step)
        return take_rare(filling, step)
    if op >= OP_RECORD:
        return take_nested(filling, step)
    # What is left are numbers.
    sink = &filling.sinks[step.sink]
    number = 0
    single = 0
    wide = 0
    if op == OP_LONG_I64 or op == OP_LONG_F32 or op == OP_LONG_F64:
        fault = read_long(filling, &number)
    elif op == OP_BOOLEAN or op == OP_FLOAT_F32 or op == OP_FLOAT_F64 or op == OP_DOUBLE_F64:
        fault = read_plain(filling, op, &number, &single, &wide)
    else:
        fault = read_int(filling, &number)
    if fault:
        return fault
    if op == OP_INT_I64 or op == OP_LONG_I64:
        fault = scaled(filling, number, step.number, &number)
        if fault:
            return fault
    if not claim(sink):
        return NO_MEMORY
    if op == OP_LONG_I64 or op == OP_INT_I64:
        (<int64_t *>sink.values)[sink.length - 1] = number
    elif op == OP_INT_I32:
        (<int32_t *>sink.values)[sink.length - 1] = <int32_t>number
    elif op == OP_BOOLEAN:
        sink.values[sink.length - 1] = <uint8_t>number
    elif op == OP_FLOAT_F32:
        (<float *>sink.values)[sink.length - 1] = single
    elif op == OP_INT_F32 or op == OP_LONG_F32:
        (<float *>sink.values)[sink.length - 1] = <float>(<double>number)
    elif op == OP_DOUBLE_F64:
        (<double *>sink.values)[sink.length - 1] = wide
    elif op == OP_FLOAT_F64:
        (<double *>sink.values)[sink.length - 1] = single
    else:
        (<double *>sink.values)[sink.length - 1] = <double>number
    return FINE


cdef inline int read_plain(Filling filling, int op, int64_t *number, float *single,
                           double *wide) noexcept nogil:
    """Values of a fixed size."""
    cdef int64_t size = 1 if op == OP_BOOLEAN else 8 if op == OP_DOUBLE_F64 else 4
    if size > filling.end - filling.at:
        return ENDED
    if op == OP_BOOLEAN:
        number[0] = filling.at[0]
        if number[0] > 1:
            filling.detail = number[0]
            return BOOLEAN
    elif op == OP_DOUBLE_F64:
        memcpy(wide, filling.at, 8)
    else:
        memcpy(single, filling.at, 4)
    filling.at += size
    return FINE


# -- messages -------------------------------------------------------------------------------------

cdef class Messages:
    """An array of bytes, as Arrow lays it out."""

    cdef Py_buffer validity
    cdef Py_buffer offsets
    cdef Py_buffer data
    cdef int64_t start
    cdef int64_t length
    cdef const int32_t *bounds
    cdef const uint8_t *bytes

    def __cinit__(self, array):
        validity, offsets, data = array.buffers()
        self.start, self.length = array.offset, len(array)
        if validity is not None:
            PyObject_GetBuffer(validity, &self.validity, PyBUF_SIMPLE)
        if offsets is not None and self.length:
            PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
            assert self.offsets.len >= (self.start + self.length + 1) * 4
            self.bounds = <const int32_t *>self.offsets.buf + self.start
        if data is not None:
            PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
            self.bytes = <const uint8_t *>self.data.buf
        if self.length:
            assert self.bounds[self.length] <= self.data.len

    def __dealloc__(self):
        if self.validity.obj is not None:
            PyBuffer_Release(&self.validity)
        if self.offsets.obj is not None:
            PyBuffer_Release(&self.offsets)
        if self.data.obj is not None:
            PyBuffer_Release(&self.data)


cdef inline bint is_null(Messages messages, int64_t row) noexcept nogil:
    cdef int64_t at = messages.start + row
    if messages.validity.buf == NULL:
        return False
    return not (<const uint8_t *>messages.validity.buf)[at >> 3] & (1 << (at & 7))


cdef inline int64_t id_of(const uint8_t *at) noexcept nogil:
    return (<int64_t>at[1] << 24) | (<int64_t>at[2] << 16) | (<int64_t>at[3] << 8) | at[4]


def load(program):
    """See `_walk_pure`."""
    return Code(program)


def schema_ids(data):
    """See `_walk_pure`."""
    cdef Messages messages = Messages(data)
    cdef int64_t row, size, schema_id, last = -1
    cdef const uint8_t *at
    seen = {}
    for row in range(messages.length):
        if is_null(messages, row):
            continue
        size = messages.bounds[row + 1] - messages.bounds[row]
        at = messages.bytes + messages.bounds[row]
        if size < FRAME_SIZE or at[0] != 0:
            continue
        schema_id = id_of(at)
        if schema_id != last:
            last = schema_id
            seen[schema_id] = None
    return list(seen)


cdef class Table:
    """Programs by id.  Neighbours mostly have the same id, so the last one is looked at first."""

    cdef dict codes
    cdef Code code
    cdef int64_t schema_id

    def __cinit__(self, codes):
        self.codes = dict(codes)
        self.schema_id = -2

    cdef int use(self, Filling filling, int64_t schema_id) except -1:
        """Make ready for a message of this id; FINE, or NO_PROGRAM."""
        if schema_id != self.schema_id:
            self.code = self.codes[schema_id]
            self.schema_id = schema_id
            filling.steps = self.code.steps
            filling.links = self.code.links
            filling.texts = self.code.texts
            if self.code.allowance is None:
                self.code.allowance = steps.allowance(filling.sink_count, self.code.program)
            filling.fixed, filling.per_byte = self.code.allowance
        return FINE if self.code.step_count else NO_PROGRAM


cdef int message(Filling filling, Table table, bint framed, int64_t *schema_id) except -2:
    """Read the message that lies between `at` and `end`."""
    cdef const uint8_t *start = filling.at
    cdef int64_t most
    cdef int fault
    schema_id[0] = NO_ID
    if framed:
        if filling.end - start < FRAME_SIZE:
            filling.detail = filling.end - start
            return SHORT_FRAME
        if start[0] != 0:
            filling.detail = start[0]
            return MAGIC
        schema_id[0] = id_of(start)
        filling.at += FRAME_SIZE
    if schema_id[0] != table.schema_id or table.code.step_count == 0:
        fault = table.use(filling, schema_id[0])
        if fault:
            return fault
    filling.depth = 0
    most = filling.free + filling.fixed + min(
        UNITS_MAX, filling.per_byte * (filling.end - filling.at))
    filling.left = most
    fault = take(filling, filling.steps)
    if fault:
        return fault
    if filling.at != filling.end:
        filling.detail = filling.at - start
        return TRAILING
    filling.spent += most - filling.left
    if filling.left < filling.free:
        filling.free = max(filling.left, 0)
    return FINE


def walk(sinks, codes, data, *, bint framed):
    """See `_walk_pure`."""
    cdef Filling filling = Filling(sinks)
    cdef Messages messages = Messages(data)
    cdef Table table = Table(codes)
    cdef int64_t row, schema_id = NO_ID
    cdef int fault
    complaints = []
    for row in range(messages.length):
        if is_null(messages, row):
            fault = append_null(filling, 0)
        else:
            filling.at = messages.bytes + messages.bounds[row]
            filling.end = messages.bytes + messages.bounds[row + 1]
            filling.detail = 0
            fault = message(filling, table, framed, &schema_id)
            if fault > 0:
                complaints.append(Complaint(row, MessageFault(fault), filling.detail, schema_id))
                truncate(filling, 0, row)
                fault = append_null(filling, 0)
        if fault:
            raise MemoryError
        if filling.spent > UNITS_MAX and messages.length > 1:
            raise TooManyValues
    return Walked(assemble(sinks, filling.filled()), complaints)
