# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""JSON's grammar over whole columns in C.  `_scan_pure.py` says what it does.

A `Scan` is a place in one row's bytes and the end of them; it never moves past that end, and
nothing is read at the end.  The first fault stays: code and place.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport getenv
from libc.string cimport memcmp, memcpy

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

import numpy as np
import pyarrow as pa

from quipu.pipeline.formats.json import _scan_pure
from quipu.pipeline.formats.json._scan_pure import JsonFaults, Values
from quipu.pipeline.formats.spans import laid

cdef enum:
    DEPTH_LIMIT = 512
    MISSING = 0
    NULL_ = 1
    TRUE_ = 2
    FALSE_ = 3
    INTEGER = 4
    DECIMAL = 5
    STRING = 6
    ESCAPED = 7
    OBJECT = 8
    ARRAY = 9

cdef enum:
    FINE = 0
    EOF_VALUE = 1
    NO_VALUE = 2
    NO_COLON = 3
    NO_COMMA_OBJECT = 4
    NO_COMMA_ARRAY = 5
    NO_KEY = 6
    BAD_NUMBER = 7
    BAD_ESCAPE = 8
    CONTROL = 9
    LONE_SURROGATE = 10
    EOF_STRING = 11
    TRAILING = 12
    TOO_DEEP = 13
    NOT_OBJECT = 14

assert DEPTH_LIMIT == _scan_pure.DEPTH_MAX
assert ARRAY == _scan_pure.ARRAY
assert NOT_OBJECT == _scan_pure.NOT_OBJECT

cdef uint64_t ONES = 0x0101010101010101
cdef uint64_t HIGHS = 0x8080808080808080


cdef struct Scan:
    const uint8_t *at
    const uint8_t *end
    int fault
    const uint8_t *fault_at


cdef struct Value:
    int kind
    const uint8_t *start
    const uint8_t *end


# ---------------------------------------------------------------- grammar

cdef inline bint broken(Scan *scan, int code) noexcept nogil:
    scan.fault = EOF_VALUE if scan.at >= scan.end and code != EOF_STRING else code
    scan.fault_at = scan.at
    return False


cdef inline int space(Scan *scan) noexcept nogil:
    """Skip white space; the byte after it, -1 at the end."""
    cdef uint8_t byte
    while scan.at < scan.end:
        byte = scan.at[0]
        if byte > 0x20 or (byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09):
            return byte
        scan.at += 1
    return -1


cdef inline bint is_digit(Scan *scan) noexcept nogil:
    return scan.at < scan.end and 0x30 <= scan.at[0] <= 0x39


cdef inline int hex_value(uint8_t byte) noexcept nogil:
    if 0x30 <= byte <= 0x39:
        return byte - 0x30
    byte |= 0x20
    return byte - 0x61 + 10 if 0x61 <= byte <= 0x66 else -1


cdef inline int take_unit(Scan *scan) noexcept nogil:
    """The number of the \\uXXXX that is here, -1 if it is none."""
    cdef int unit = 0
    cdef int index, digit
    if scan.end - scan.at >= 6 and scan.at[1] == b"u":
        for index in range(2, 6):
            digit = hex_value(scan.at[index])
            if digit < 0:
                broken(scan, BAD_ESCAPE)
                return -1
            unit = unit << 4 | digit
        return unit
    broken(scan, BAD_ESCAPE)
    return -1


cdef inline bint is_short_escape(uint8_t byte) noexcept nogil:
    return (byte == b'"' or byte == b"\\" or byte == b"/" or byte == b"b" or byte == b"f"
            or byte == b"n" or byte == b"r" or byte == b"t")


cdef bint skip_escape(Scan *scan) noexcept nogil:
    cdef const uint8_t *high
    cdef int unit
    if scan.end - scan.at < 2:
        scan.at = scan.end
        return broken(scan, EOF_STRING)
    if is_short_escape(scan.at[1]):
        scan.at += 2
        return True
    unit = take_unit(scan)
    if unit < 0:
        return False
    if 0xD800 <= unit < 0xDC00:
        high = scan.at
        scan.at += 6
        if scan.end - scan.at >= 2 and scan.at[0] == b"\\" and scan.at[1] == b"u":
            unit = take_unit(scan)
            if unit < 0:
                return False
        else:
            unit = 0
        if not 0xDC00 <= unit < 0xE000:
            scan.at = high
            return broken(scan, LONE_SURROGATE)
    elif 0xDC00 <= unit < 0xE000:
        return broken(scan, LONE_SURROGATE)
    scan.at += 6
    return True


cdef inline void skip_plain(Scan *scan) noexcept nogil:
    """Skip to the next quote, backslash or control character, eight bytes at a time."""
    cdef uint64_t word, quote, backslash
    cdef uint8_t byte
    while scan.end - scan.at >= 8:
        memcpy(&word, scan.at, 8)
        quote = word ^ (ONES * 0x22)
        backslash = word ^ (ONES * 0x5C)
        if (((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash)
                | ((word - ONES * 0x20) & ~word)) & HIGHS:
            break
        scan.at += 8
    while scan.at < scan.end:
        byte = scan.at[0]
        if byte == 0x22 or byte == 0x5C or byte < 0x20:
            break
        scan.at += 1


cdef inline bint skip_string(Scan *scan, Value *value) noexcept nogil:
    """The string whose opening quote is here."""
    value.kind = STRING
    scan.at += 1
    value.start = scan.at
    while True:
        skip_plain(scan)
        if scan.at >= scan.end:
            return broken(scan, EOF_STRING)
        if scan.at[0] == 0x22:
            value.end = scan.at
            scan.at += 1
            return True
        if scan.at[0] != 0x5C:
            return broken(scan, CONTROL)
        value.kind = ESCAPED
        if not skip_escape(scan):
            return False


cdef inline bint skip_key(Scan *scan, Value *name) noexcept nogil:
    """A member's name, up to and with its colon."""
    if space(scan) != 0x22:
        return broken(scan, NO_KEY)
    if not skip_string(scan, name):
        return False
    if space(scan) != 0x3A:
        return broken(scan, NO_COLON)
    scan.at += 1
    return True


cdef inline bint skip_literal(Scan *scan, Value *value, const char *text, int size,
                              int kind) noexcept nogil:
    if scan.end - scan.at < size or memcmp(scan.at, text, size) != 0:
        return broken(scan, NO_VALUE)
    value.kind = kind
    value.start = scan.at
    scan.at += size
    value.end = scan.at
    return True


cdef inline bint skip_number(Scan *scan, Value *value) noexcept nogil:
    cdef const uint8_t *good
    cdef bint is_zero
    value.kind = INTEGER
    value.start = scan.at
    if scan.at[0] == b"-":
        scan.at += 1
    if not is_digit(scan):
        scan.at = value.start
        return broken(scan, BAD_NUMBER if scan.at[0] == b"-" else NO_VALUE)
    is_zero = scan.at[0] == b"0"
    scan.at += 1
    while not is_zero and is_digit(scan):
        scan.at += 1
    good = scan.at
    if scan.at < scan.end and scan.at[0] == b".":
        scan.at += 1
        while is_digit(scan):
            scan.at += 1
            good = scan.at
            value.kind = DECIMAL
        scan.at = good
    if scan.at < scan.end and (scan.at[0] == b"e" or scan.at[0] == b"E"):
        scan.at += 1
        if scan.at < scan.end and (scan.at[0] == b"+" or scan.at[0] == b"-"):
            scan.at += 1
        while is_digit(scan):
            scan.at += 1
            good = scan.at
            value.kind = DECIMAL
        scan.at = good
    value.end = good
    if scan.at < scan.end and (scan.at[0] == b"." or scan.at[0] == b"e" or scan.at[0] == b"E"
                               or (is_zero and value.kind == INTEGER and is_digit(scan))):
        return broken(scan, BAD_NUMBER)
    return True


cdef inline bint skip_scalar(Scan *scan, Value *value) noexcept nogil:
    cdef uint8_t first = scan.at[0]
    if first == 0x22:
        return skip_string(scan, value)
    if first == b"t":
        return skip_literal(scan, value, b"true", 4, TRUE_)
    if first == b"f":
        return skip_literal(scan, value, b"false", 5, FALSE_)
    if first == b"n":
        return skip_literal(scan, value, b"null", 4, NULL_)
    return skip_number(scan, value)


cdef bint skip_value(Scan *scan, Value *value) noexcept nogil:
    """The value that comes next, all of it checked."""
    cdef uint8_t open_ones[DEPTH_LIMIT]
    cdef int depth = 0
    cdef int first
    cdef Value inner
    while True:
        first = space(scan)
        if first == b"{" or first == b"[":
            if depth == DEPTH_LIMIT:
                return broken(scan, TOO_DEEP)
            if depth == 0:
                value.kind = OBJECT if first == b"{" else ARRAY
                value.start = scan.at
            open_ones[depth] = <uint8_t>first
            depth += 1
            scan.at += 1
            if space(scan) != first + 2:  # } and ] come two after { and [
                if first == b"{" and not skip_key(scan, &inner):
                    return False
                continue
        elif first == -1:
            return broken(scan, NO_VALUE)
        elif depth == 0:
            return skip_scalar(scan, value)
        elif not skip_scalar(scan, &inner):
            return False
        while depth > 0:  # a value has ended here
            first = space(scan)
            if first == open_ones[depth - 1] + 2:
                scan.at += 1
                depth -= 1
            elif first == b",":
                scan.at += 1
                if open_ones[depth - 1] == b"{" and not skip_key(scan, &inner):
                    return False
                break
            else:
                return broken(scan, NO_COMMA_OBJECT if open_ones[depth - 1] == b"{"
                              else NO_COMMA_ARRAY)
        if depth == 0:
            value.end = scan.at
            return True


cdef inline bint skip_end(Scan *scan) noexcept nogil:
    return True if space(scan) == -1 else broken(scan, TRAILING)


# ---------------------------------------------------------------- escapes

cdef uint8_t *put_code_point(uint8_t *out, uint32_t code) noexcept nogil:
    if code < 0x80:
        out[0] = <uint8_t>code
        return out + 1
    if code < 0x800:
        out[0] = <uint8_t>(0xC0 | code >> 6)
        out[1] = <uint8_t>(0x80 | code & 0x3F)
        return out + 2
    if code < 0x10000:
        out[0] = <uint8_t>(0xE0 | code >> 12)
        out[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
        out[2] = <uint8_t>(0x80 | code & 0x3F)
        return out + 3
    out[0] = <uint8_t>(0xF0 | code >> 18)
    out[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
    out[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
    out[3] = <uint8_t>(0x80 | code & 0x3F)
    return out + 4


cdef inline uint8_t short_escape(uint8_t byte) noexcept nogil:
    if byte == b"b":
        return 8
    if byte == b"f":
        return 12
    if byte == b"n":
        return 10
    if byte == b"r":
        return 13
    return 9 if byte == b"t" else byte


cdef uint8_t *unescape(const uint8_t *at, const uint8_t *end, uint8_t *out) noexcept nogil:
    """Write what a checked string means, which takes no more room than it does; the end of it."""
    cdef Scan scan
    cdef uint32_t code
    scan.at, scan.end = at, end
    while scan.at < end:
        if scan.at[0] != 0x5C:
            out[0] = scan.at[0]
            out += 1
            scan.at += 1
        elif scan.at[1] != b"u":
            out[0] = short_escape(scan.at[1])
            out += 1
            scan.at += 2
        else:
            code = <uint32_t>take_unit(&scan)
            scan.at += 6
            if 0xD800 <= code < 0xDC00:
                code = 0x10000 + ((code - 0xD800) << 10) + <uint32_t>take_unit(&scan) - 0xDC00
                scan.at += 6
            out = put_code_point(out, code)
    return out


# ---------------------------------------------------------------- columns

cdef class Documents:
    """The rows of an array of text."""

    cdef object array
    cdef object place  # keeps the memory
    cdef const uint8_t *data
    cdef const int32_t *offsets
    cdef const uint8_t *valid  # NULL: no row is null
    cdef int64_t offset  # of the first row, in bits of `valid`
    cdef Py_ssize_t count

    def __init__(self, object array):
        self.array = array
        self.place = laid(array)
        self.data = <const uint8_t *><uintptr_t>self.place.data.address
        self.offsets = <const int32_t *><uintptr_t>self.place.offsets.ctypes.data
        valid = array.buffers()[0]
        self.valid = NULL
        if valid is not None:
            self.valid = <const uint8_t *><uintptr_t>valid.address
        self.offset = array.offset
        self.count = len(array)

    cdef inline bint start(self, Py_ssize_t row, Scan *scan) noexcept nogil:
        """Begin with a row; false if it is null."""
        cdef int64_t bit = self.offset + row
        if self.valid != NULL and not self.valid[bit >> 3] >> (bit & 7) & 1:
            return False
        scan.at = self.data + self.offsets[row]
        scan.end = self.data + self.offsets[row + 1]
        scan.fault = FINE
        return True


cdef class FaultList:
    """Grows with the faults that are found."""

    cdef list rows
    cdef list codes
    cdef list positions

    def __init__(self):
        self.rows, self.codes, self.positions = [], [], []

    cdef int add(self, Documents documents, Py_ssize_t row, Scan *scan) except -1:
        self.rows.append(row)
        self.codes.append(scan.fault)
        self.positions.append(scan.fault_at - documents.data - documents.offsets[row])
        return 0

    cdef object arrays(self):
        return JsonFaults(np.array(self.rows, np.int32), np.array(self.codes, np.uint8),
                      np.array(self.positions, np.int32))


def check(object array):
    """See `_scan_pure.check`."""
    cdef Documents documents = Documents(array)
    cdef FaultList faults = FaultList()
    cdef Py_ssize_t row
    cdef Scan scan
    cdef Value value
    for row in range(documents.count):
        if documents.start(row, &scan) and not (skip_value(&scan, &value) and skip_end(&scan)):
            faults.add(documents, row, &scan)
    return faults.arrays()


cdef struct Target:  # a name that is looked for, and its column
    const uint8_t *name
    Py_ssize_t size
    uint8_t *kinds
    int32_t *starts
    int32_t *ends


cdef class Targets:
    cdef object memory  # of the targets
    cdef list names
    cdef list columns
    cdef object scratch_memory
    cdef uint8_t *scratch  # for names with escapes
    cdef Py_ssize_t longest
    cdef Target *targets
    cdef Py_ssize_t count
    cdef Py_ssize_t guess  # members tend to come in the order of the columns

    def __init__(self, list names, Py_ssize_t rows):
        cdef Py_ssize_t index
        cdef const uint8_t *name
        self.names, self.columns, self.count, self.guess = names, [], len(names), 0
        self.memory = pa.allocate_buffer(max(8, self.count * <Py_ssize_t>sizeof(Target)))
        self.targets = <Target *><uintptr_t>self.memory.address
        self.longest = 0
        for index in range(self.count):
            name = <const uint8_t *>PyBytes_AS_STRING(names[index])
            column = Values(np.zeros(rows, np.uint8), np.empty(rows, np.int32),
                            np.empty(rows, np.int32))
            self.columns.append(column)
            self.targets[index].name = name
            self.targets[index].size = len(names[index])
            self.longest = max(self.longest, self.targets[index].size)
            self.targets[index].kinds = <uint8_t *><uintptr_t>column.kinds.ctypes.data
            self.targets[index].starts = <int32_t *><uintptr_t>column.starts.ctypes.data
            self.targets[index].ends = <int32_t *><uintptr_t>column.ends.ctypes.data
        self.scratch_memory = pa.allocate_buffer(6 * self.longest + 8)
        self.scratch = <uint8_t *><uintptr_t>self.scratch_memory.address

    cdef inline Py_ssize_t find(self, const Value *name) noexcept nogil:
        """The column of a name, -1 if it is not wanted."""
        cdef const uint8_t *text = name.start
        cdef Py_ssize_t size = name.end - name.start
        cdef Py_ssize_t tried, index
        if name.kind == ESCAPED:
            if size > 6 * self.longest:  # longer than any name can be written
                return -1
            size = unescape(name.start, name.end, self.scratch) - self.scratch
            text = self.scratch
        for tried in range(self.count):
            index = self.guess + tried
            if index >= self.count:
                index -= self.count
            if (self.targets[index].size == size
                    and memcmp(self.targets[index].name, text, size) == 0):
                self.guess = index + 1 if index + 1 < self.count else 0
                return index
        return -1

    cdef inline void begin(self, Py_ssize_t row, int32_t start) noexcept nogil:
        """Every value of the row is missing, and lies after the one before it."""
        cdef Py_ssize_t index
        cdef Target *target
        for index in range(self.count):
            target = &self.targets[index]
            target.kinds[row] = MISSING
            target.starts[row] = target.ends[row] = target.ends[row - 1] if row > 0 else start


cdef bint take_members(Scan *scan, const uint8_t *data, Targets targets,
                       Py_ssize_t row) noexcept nogil:
    cdef Value name, value
    cdef Target *target
    cdef Py_ssize_t index
    cdef const uint8_t *start = scan.at
    cdef int after = space(scan)
    if after != b"{":
        if skip_value(scan, &value) and skip_end(scan):
            scan.at = start
            scan.fault, scan.fault_at = NOT_OBJECT, start
        return False
    scan.at += 1
    if space(scan) == b"}":
        scan.at += 1
        return skip_end(scan)
    while True:
        if not skip_key(scan, &name) or not skip_value(scan, &value):
            return False
        index = targets.find(&name)
        if index >= 0:
            target = &targets.targets[index]
            target.kinds[row] = <uint8_t>value.kind
            target.starts[row] = <int32_t>(value.start - data)
            target.ends[row] = <int32_t>(value.end - data)
        after = space(scan)
        if after != b"," and after != b"}":
            return broken(scan, NO_COMMA_OBJECT)
        scan.at += 1
        if after == b"}":
            return skip_end(scan)


def members(object array, list names):
    """See `_scan_pure.members`."""
    cdef Documents documents = Documents(array)
    cdef Targets targets = Targets(names, documents.count)
    cdef FaultList faults = FaultList()
    cdef Py_ssize_t row
    cdef Scan scan
    for row in range(documents.count):
        targets.begin(row, documents.offsets[0])
        if documents.start(row, &scan) and not take_members(
                &scan, documents.data, targets, row):
            targets.begin(row, documents.offsets[0])
            faults.add(documents, row, &scan)
    return targets.columns, faults.arrays()


cdef Py_ssize_t take_elements(Scan *scan, const uint8_t *data, uint8_t *kinds, int32_t *starts,
                              int32_t *ends) noexcept nogil:
    """The elements of a checked array; only counted where there is no room for them."""
    cdef Py_ssize_t count = 0
    cdef Value value
    space(scan)
    scan.at += 1
    while space(scan) != b"]" and skip_value(scan, &value):
        if kinds != NULL:
            kinds[count] = <uint8_t>value.kind
            starts[count] = <int32_t>(value.start - data)
            ends[count] = <int32_t>(value.end - data)
        count += 1
        if space(scan) == b",":
            scan.at += 1
    return count


def elements(object array):
    """See `_scan_pure.elements`."""
    cdef Documents documents = Documents(array)
    cdef Py_ssize_t row
    cdef Scan scan
    cdef int64_t total = 0
    row_ends = np.zeros(documents.count + 1, np.int32)
    cdef int32_t *row_end = <int32_t *><uintptr_t>row_ends.ctypes.data
    for row in range(documents.count):
        if documents.start(row, &scan):
            total += take_elements(&scan, documents.data, NULL, NULL, NULL)
        row_end[row + 1] = <int32_t>total
    values = Values(np.empty(total, np.uint8), np.empty(total, np.int32),
                    np.empty(total, np.int32))
    cdef uint8_t *kinds = <uint8_t *><uintptr_t>values.kinds.ctypes.data
    cdef int32_t *starts = <int32_t *><uintptr_t>values.starts.ctypes.data
    cdef int32_t *ends = <int32_t *><uintptr_t>values.ends.ctypes.data
    for row in range(documents.count):
        if documents.start(row, &scan):
            take_elements(&scan, documents.data, kinds + row_end[row], starts + row_end[row],
                          ends + row_end[row])
    return row_ends, values


def unescaped(object array, object kinds):
    """See `_scan_pure.unescaped`."""
    cdef Documents documents = Documents(array)
    cdef Py_ssize_t row
    cdef Scan scan
    kinds = np.ascontiguousarray(kinds, np.uint8)
    assert len(kinds) == documents.count
    assert array.offset == 0  # no slice: its validity serves again
    cdef const uint8_t *kind = <const uint8_t *><uintptr_t>kinds.ctypes.data
    size = documents.offsets[documents.count] - documents.offsets[0]
    data = pa.allocate_buffer(max(size, 8), resizable=True)
    row_ends = np.zeros(documents.count + 1, np.int32)
    cdef int32_t *row_end = <int32_t *><uintptr_t>row_ends.ctypes.data
    cdef uint8_t *begin = <uint8_t *><uintptr_t>data.address
    cdef uint8_t *out = begin
    for row in range(documents.count):
        if documents.start(row, &scan):
            if kind[row] == ESCAPED:
                out = unescape(scan.at, scan.end, out)
            else:
                memcpy(out, scan.at, scan.end - scan.at)
                out += scan.end - scan.at
        row_end[row + 1] = <int32_t>(out - begin)
    return pa.Array.from_buffers(
        pa.string(), documents.count,
        [array.buffers()[0] if array.null_count else None, pa.py_buffer(row_ends),
         data.slice(0, out - begin)], array.null_count)
