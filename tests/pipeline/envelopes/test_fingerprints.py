"""Fingerprints: the published hash, the same in both twins, and buckets that never move."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.envelopes import _fingerprints_pure, fingerprints
from quipu.pipeline.envelopes.events import Slot
from quipu.pipeline.envelopes.fingerprints import buckets_of, bytes_and_offsets

SECRET = bytes(range(16))
# of the message 00 01 02 …, by its length, with the key 00 01 … 0f: SipHash's own test vectors
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4", 3: "9c70b60c5267a94e5f33b6b02985ed51",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239", 8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed", 15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
}


def halves(identities: list[bytes], slot: Slot, twin: object) -> list[str]:
    data, offsets = bytes_and_offsets(pa.array(identities, pa.binary()))
    key = int.from_bytes(SECRET[:8], "little"), int.from_bytes(SECRET[8:], "little")
    slots = np.full(len(identities), slot, np.uint8)
    first, second = twin.sip128(data, offsets, slots, key)  # type: ignore[attr-defined] # a module
    return [(a.tobytes() + b.tobytes()).hex() for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize("twin", [fingerprints, _fingerprints_pure], ids=["served", "numpy"])
def test_the_hash_is_siphash(twin: object) -> None:
    found = halves([bytes(range(size)) for size in VECTORS], Slot.KEY, twin)

    assert found == list(VECTORS.values())


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=20), st.sampled_from(Slot))
def test_both_twins_agree(identities: list[bytes], slot: Slot) -> None:
    assert halves(identities, slot, fingerprints) == halves(identities, slot, _fingerprints_pure)


def test_the_same_bytes_in_other_slots_are_other_identities() -> None:
    found = [halves([b"", b"key"], slot, fingerprints) for slot in Slot]

    assert len({each for both in found for each in both}) == 2 * len(Slot)


def test_a_slice_has_the_fingerprints_of_its_own_rows() -> None:
    whole = pa.array([b"a", b"bc", b"", b"def"], pa.binary())
    slots = np.zeros(4, np.uint8)
    first, second = fingerprints.fingerprints(whole, slots, SECRET)
    part = fingerprints.fingerprints(whole.slice(1, 2), slots[1:3], SECRET)

    assert (part[0] == first[1:3]).all()
    assert (part[1] == second[1:3]).all()


def test_buckets_are_the_same_for_ever() -> None:
    """Tables on disk rely on it."""
    keys = pa.array([f"key-{number}".encode() for number in range(8)], pa.binary())

    assert buckets_of(keys, 16).tolist() == BUCKETS
    spread = np.bincount(buckets_of(pa.array([str(each).encode() for each in range(8000)]), 8))
    assert spread.min() > 900


BUCKETS = [11, 11, 14, 7, 7, 8, 1, 2]


def test_offsets_that_leave_the_data_are_refused() -> None:
    if not fingerprints.COMPILED:
        return  # numpy checks for itself
    data, slots = np.zeros(4, np.uint8), np.zeros(1, np.uint8)
    for offsets in ([0, 5], [3, 1], [-1, 2]):
        with pytest.raises(ValueError, match="out of the data"):
            fingerprints.sip128(data, np.array(offsets, np.int32), slots, (0, 0))
