"""Fingerprints: a 128-bit hash of an identity, and the bucket of an identity.

    fingerprint   SipHash-2-4-128 of the identity's bytes under the table's secret, the slot xored
                  into the secret's second half.  Two identities of one table have the same
                  fingerprint with a chance of 2**-128 a pair, and such a pair cannot be searched
                  for without the secret; so a table stores fingerprints and compares only those.
    bucket        the first half of SipHash-2-4-128 under an all-zero secret, slot ignored, modulo
                  the number of buckets.  It is the same for every table and every version, so a
                  reader can compute it without any state.

A slot distinguishes special identities from keys with the same bytes (`events.Slot`).
The hash is compiled if a compiler was found, else in numpy, as with QUIPU_PURE=1; `COMPILED` says
which of the two is used.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.envelopes import _fingerprints_pure

try:
    from quipu.pipeline.envelopes._fingerprints import sip128
except ImportError:
    from quipu.pipeline.envelopes._fingerprints_pure import sip128

COMPILED: Final = sip128 is not _fingerprints_pure.sip128
SECRET_SIZE: Final = 16

U64 = npt.NDArray[np.uint64]


def fingerprints(
    identities: pa.BinaryArray, slots: npt.NDArray[np.uint8], secret: bytes,
) -> tuple[U64, U64]:
    """The two halves of each identity's fingerprint."""
    assert len(secret) == SECRET_SIZE, len(secret)
    key = int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")
    data, offsets = bytes_and_offsets(identities)
    return sip128(data, offsets, np.ascontiguousarray(slots), key)


def buckets_of(identities: pa.BinaryArray, count: int) -> npt.NDArray[np.uint16]:
    """The bucket, out of `count`, of each identity."""
    data, offsets = bytes_and_offsets(identities)
    first, _ = sip128(data, offsets, np.zeros(len(identities), np.uint8), (0, 0))
    return (first % np.uint64(count)).astype(np.uint16)


def bytes_and_offsets(
    array: pa.BinaryArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The data and offsets of a binary array without nulls, or of a slice of one."""
    assert array.null_count == 0
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offset_buffer is None:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int32)
    offsets = np.frombuffer(offset_buffer, np.int32, len(array) + 1, array.offset * 4)
    if data_buffer is None:
        return np.zeros(0, np.uint8), offsets
    return np.frombuffer(data_buffer, np.uint8), offsets
