"""SipHash-2-4 with 128 bits over a column of bytes, in numpy: the twin of `_fingerprints.pyx`.

All rows of a block are hashed together, a word of eight bytes at a time; a shorter row drops out
earlier.  Blocks are small, so that the state of a round stays in the processor's cache.
"""

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
_BLOCK = 8192
_WORD = 8


def sip128(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], slots: npt.NDArray[np.uint8],
    key: tuple[int, int],
) -> tuple[U64, U64]:
    """The two halves of each row's hash; row i is data[offsets[i]:offsets[i + 1]].

    Its slot is xored into the second half of the key, so that equal bytes in different slots are
    different identities.
    """
    count = len(offsets) - 1
    first, second = np.empty(count, np.uint64), np.empty(count, np.uint64)
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    # every position at which eight bytes can be read: words need not be aligned
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, strides=(1,))
    for start in range(0, count, _BLOCK):
        rows = slice(start, min(start + _BLOCK, count))
        begins = offsets[rows].astype(np.int64)
        sizes = offsets[rows.start + 1:rows.stop + 1].astype(np.int64) - begins
        first[rows], second[rows] = _block(words, begins, sizes, _initial(slots[rows], key))
    return first, second


def _initial(slots: npt.NDArray[np.uint8], key: tuple[int, int]) -> U64:
    low = np.full(len(slots), key[0], np.uint64)
    high = np.uint64(key[1]) ^ slots.astype(np.uint64)
    return np.stack([
        low ^ np.uint64(0x736F6D6570736575),
        high ^ np.uint64(0x646F72616E646F6D ^ 0xEE),  # 0xEE: the variant with 128 bits
        low ^ np.uint64(0x6C7967656E657261),
        high ^ np.uint64(0x7465646279746573),
    ])


def _block(
    words: U64, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], state: U64,
) -> tuple[U64, U64]:
    full = sizes // _WORD
    for index in range(int(full.max(initial=0))):
        active = np.flatnonzero(full > index)
        inner = state[:, active]
        _absorb(inner, words[begins[active] + index * _WORD])
        state[:, active] = inner
    rest = (sizes % _WORD).astype(np.uint64)
    tail = words[begins + full * _WORD] & ((np.uint64(1) << (rest * np.uint64(8))) - np.uint64(1))
    _absorb(state, tail | (sizes.astype(np.uint64) << np.uint64(56)))
    state[2] ^= np.uint64(0xEE)
    _rounds(state, 4)
    first = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= np.uint64(0xDD)
    _rounds(state, 4)
    return first, state[0] ^ state[1] ^ state[2] ^ state[3]


def _absorb(state: U64, word: U64) -> None:
    state[3] ^= word
    _rounds(state, 2)
    state[0] ^= word


def _rounds(state: U64, count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 += v1
        v1[:] = _rotated(v1, 13) ^ v0
        v0[:] = _rotated(v0, 32)
        v2 += v3
        v3[:] = _rotated(v3, 16) ^ v2
        v0 += v3
        v3[:] = _rotated(v3, 21) ^ v0
        v2 += v1
        v1[:] = _rotated(v1, 17) ^ v2
        v2[:] = _rotated(v2, 32)


def _rotated(value: U64, bits: int) -> U64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
