# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SipHash-2-4 with 128 bits over a column of bytes, in C.  `_fingerprints_pure.py` says more.

Offsets are checked against the data before anything is read through them.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport getenv

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define ROTATED(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define ROUND \\
        v0 += v1; v1 = ROTATED(v1, 13) ^ v0; v0 = ROTATED(v0, 32); \\
        v2 += v3; v3 = ROTATED(v3, 16) ^ v2; \\
        v0 += v3; v3 = ROTATED(v3, 21) ^ v0; \\
        v2 += v1; v1 = ROTATED(v1, 17) ^ v2; v2 = ROTATED(v2, 32);

    static inline uint64_t quipu_word(const uint8_t *p)
    {
        uint64_t word;
        memcpy(&word, p, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    static inline uint64_t quipu_tail(const uint8_t *p, size_t size)
    {
        uint64_t word = 0;
        switch (size) {
        case 7: word |= (uint64_t)p[6] << 48;  /* every case falls through */
        case 6: word |= (uint64_t)p[5] << 40;
        case 5: word |= (uint64_t)p[4] << 32;
        case 4: word |= (uint64_t)p[3] << 24;
        case 3: word |= (uint64_t)p[2] << 16;
        case 2: word |= (uint64_t)p[1] << 8;
        case 1: word |= (uint64_t)p[0];
        }
        return word;
    }

    static inline void quipu_sip128(const uint8_t *p, size_t size, uint64_t k0, uint64_t k1,
                                    uint64_t *first, uint64_t *second)
    {
        uint64_t v0 = k0 ^ 0x736F6D6570736575ULL;
        uint64_t v1 = k1 ^ 0x646F72616E646F6DULL ^ 0xEE;
        uint64_t v2 = k0 ^ 0x6C7967656E657261ULL;
        uint64_t v3 = k1 ^ 0x7465646279746573ULL;
        uint64_t word;
        size_t left = size;
        while (left >= 8) {
            word = quipu_word(p);
            v3 ^= word; ROUND ROUND v0 ^= word;
            p += 8; left -= 8;
        }
        word = quipu_tail(p, left) | ((uint64_t)size << 56);
        v3 ^= word; ROUND ROUND v0 ^= word;
        v2 ^= 0xEE; ROUND ROUND ROUND ROUND
        *first = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xDD; ROUND ROUND ROUND ROUND
        *second = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    void quipu_sip128(const uint8_t *p, size_t size, uint64_t k0, uint64_t k1,
                      uint64_t *first, uint64_t *second) nogil


def sip128(const uint8_t[::1] data, const int32_t[::1] offsets, const uint8_t[::1] slots,
           tuple key):
    """The two halves of each row's hash; row i is data[offsets[i]:offsets[i + 1]]."""
    cdef Py_ssize_t count = offsets.shape[0] - 1
    cdef uint64_t k0 = key[0]
    cdef uint64_t k1 = key[1]
    if count < 0 or slots.shape[0] != count:
        raise ValueError(f"{count} rows with {slots.shape[0]} slots")
    one, two = np.empty(count, np.uint64), np.empty(count, np.uint64)
    cdef uint64_t[::1] first = one
    cdef uint64_t[::1] second = two
    cdef const uint8_t *start = NULL
    cdef Py_ssize_t i
    cdef int32_t low = 0
    cdef bint fine = True
    if data.shape[0]:
        start = &data[0]
    with nogil:
        for i in range(count + 1):
            if offsets[i] < low or offsets[i] > data.shape[0]:
                fine = False
                break
            low = offsets[i]
        if fine:
            for i in range(count):
                quipu_sip128(start + offsets[i], offsets[i + 1] - offsets[i], k0,
                             k1 ^ slots[i], &first[i], &second[i])
    if not fine:
        raise ValueError("offsets that run backwards or out of the data")
    return one, two
