# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sorting by fingerprint and finding in sorted fingerprints, in C.  `_sorted_pure.py` says more.

First numbers are spread evenly, so rows are dealt into as many cells as there are rows by their
leading bits, and only neighbours in a cell are compared.  Where they are not spread (tests, or a
table of few rows) cells are long, and rows are left to the twin.  Nothing is read outside of the
arrays: every index is below a length that was compared.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, getenv, malloc

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

import numpy as np

from quipu.pipeline.tables import _sorted_pure

cdef enum:
    CELL_MAX = 64  # longer cells mean that numbers are not spread


def sort_pairs(const uint64_t[::1] first, const uint64_t[::1] second):
    """The stable order of rows by (first, second)."""
    cdef Py_ssize_t count = first.shape[0]
    if second.shape[0] != count:
        raise ValueError(f"{count} rows with {second.shape[0]} second numbers")
    if count >= 1 << 31:
        return _sorted_pure.sort_pairs(np.asarray(first), np.asarray(second))
    order = np.empty(count, np.int64)
    cdef int64_t[::1] out = order
    cdef int bits = 0
    while bits < 24 and (<Py_ssize_t>1 << bits) < count:
        bits += 1
    cdef Py_ssize_t cells = <Py_ssize_t>1 << bits
    cdef uint32_t *ends = <uint32_t *>malloc((cells + 1) * sizeof(uint32_t))
    if ends == NULL:
        raise MemoryError
    cdef int shift = 64 - bits
    cdef bint spread
    with nogil:
        spread = _deal(first, second, ends, out, shift, cells)
    free(ends)
    if not spread:
        return _sorted_pure.sort_pairs(np.asarray(first), np.asarray(second))
    return order


cdef inline Py_ssize_t _cell(uint64_t number, int shift) noexcept nogil:
    return 0 if shift == 64 else <Py_ssize_t>(number >> shift)


cdef bint _deal(
    const uint64_t[::1] first, const uint64_t[::1] second, uint32_t *ends, int64_t[::1] out,
    int shift, Py_ssize_t cells,
) noexcept nogil:
    cdef Py_ssize_t count = first.shape[0]
    cdef Py_ssize_t i, j, start
    cdef uint32_t total = 0, size
    cdef int64_t row, other
    for i in range(cells + 1):
        ends[i] = 0
    for i in range(count):
        ends[_cell(first[i], shift)] += 1
    for i in range(cells):
        size = ends[i]
        if size > CELL_MAX:
            return False
        ends[i] = total
        total += size
    for i in range(count):  # in order, so equal rows stay in order
        j = _cell(first[i], shift)
        out[ends[j]] = i
        ends[j] += 1
    start = 0
    for i in range(cells):
        for j in range(start + 1, ends[i]):
            row = out[j]
            size = j
            while size > start:
                other = out[size - 1]
                if first[other] < first[row] or (
                    first[other] == first[row] and second[other] <= second[row]
                ):
                    break
                out[size] = other
                size -= 1
            out[size] = row
        start = ends[i]
    return True


def find_pairs(
    const uint64_t[::1] run_first, const uint64_t[::1] run_second,
    const uint64_t[::1] first, const uint64_t[::1] second, const int64_t[::1] rest,
):
    """Look for the pairs first[rest], second[rest] in a run."""
    cdef Py_ssize_t end = run_first.shape[0]
    cdef Py_ssize_t count = rest.shape[0]
    if run_second.shape[0] != end or second.shape[0] != first.shape[0]:
        raise ValueError("halves of different lengths")
    places = np.empty(count, np.int64)
    hits = np.empty(count, np.int64)
    misses = np.empty(count, np.int64)
    cdef int64_t[::1] at = places
    cdef int64_t[::1] hit = hits
    cdef int64_t[::1] miss = misses
    cdef Py_ssize_t i, row, low = 0, high, middle, step, found = 0, lost = 0
    cdef uint64_t a, b, last_a = 0, last_b = 0
    cdef bint fine = True
    with nogil:
        for i in range(count):
            row = rest[i]
            if row < 0 or row >= first.shape[0]:
                fine = False
                break
            a = first[row]
            b = second[row]
            if _below(a, b, last_a, last_b):
                low = 0  # not sorted after all: begin again
            last_a = a
            last_b = b
            # from where the last one was, in steps that double, then by halves
            step = 1
            high = low
            while high < end and _below(run_first[high], run_second[high], a, b):
                low = high + 1
                high += step
                step *= 2
            if high > end:
                high = end
            while low < high:
                middle = low + (high - low) // 2
                if _below(run_first[middle], run_second[middle], a, b):
                    low = middle + 1
                else:
                    high = middle
            if low < end and run_first[low] == a and run_second[low] == b:
                at[found] = low
                hit[found] = row
                found += 1
            else:
                miss[lost] = row
                lost += 1
    if not fine:
        raise IndexError("a row that is not there")
    return places[:found], hits[:found], misses[:lost]


cdef inline bint _below(uint64_t a, uint64_t b, uint64_t c, uint64_t d) noexcept nogil:
    return a < c or (a == c and b < d)
