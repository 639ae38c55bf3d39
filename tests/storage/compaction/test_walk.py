"""The compiled walk over records and the one in Python decide the same; the map is bounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.storage.compaction import _walk_pure, walk
from quipu.wire.record_batch import HEADER_SIZE, Record, encode_batch

SECRET = b"0123456789abcdef"
PAIRS = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=9),
                           st.integers(-5, 1 << 41)), min_size=1, max_size=30)


def body(pairs: list[tuple[bytes | None, bytes | None, int]]) -> memoryview:
    return memoryview(bytes(encode_batch(
        [Record(key, value, (("n", b"v"),), timestamp=at) for key, value, at in pairs])))[
            HEADER_SIZE:]


def decided(module: Any, batches: list[memoryview], counts: list[int]) -> list[object]:
    offsets = module.OffsetMap(1 << 16, SECRET)
    found: list[object] = []
    for number, (data, count) in enumerate(zip(batches, counts, strict=True)):
        found.append(offsets.put(data, count, number * 100))
    for number, (data, count) in enumerate(zip(batches, counts, strict=True)):
        found += [tuple(offsets.keep(data, count, number * 100, drop_tombstones=drop))
                  for drop in (False, True)]
    return [*found, len(offsets)]


@given(st.lists(PAIRS, min_size=1, max_size=4), st.integers(-(1 << 42), 1 << 42))
def test_the_two_walks_decide_the_same(
    batches: list[list[tuple[bytes | None, bytes | None, int]]], shift: int
) -> None:
    """K5: which records stay, and the records with another base timestamp."""
    bodies, counts = [body(pairs) for pairs in batches], [len(pairs) for pairs in batches]
    assert decided(walk, bodies, counts) == decided(_walk_pure, bodies, counts)
    for data, count in zip(bodies, counts, strict=True):
        assert walk.rebase(data, count, shift) == _walk_pure.rebase(data, count, shift)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_bytes_that_are_no_records_raise_in_both(data: bytes, count: int) -> None:
    """K5: malformed records raise MalformedBytes in both, and nothing else."""
    outcomes = []
    for module in (walk, _walk_pure):
        offsets = module.OffsetMap(1 << 16, SECRET)
        try:
            outcomes.append(tuple(offsets.keep(memoryview(data), count, 0, drop_tombstones=False)))
        except MalformedBytes:
            outcomes.append("malformed")
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("module", [walk, _walk_pure])
def test_the_map_is_bounded(module: Any) -> None:
    """K5: one key a million times takes one entry; one key too many ends the range."""
    offsets = module.OffsetMap(10 * module.ENTRY_SIZE, SECRET)
    same = body([(b"same", b"v", 0)] * 10_000)
    for number in range(100 if module is walk else 3):
        assert offsets.put(same, 10_000, number * 10_000)
    assert len(offsets) == 1
    assert offsets.put(body([(b"%d" % number, b"v", 0) for number in range(9)]), 9, 0)
    assert not offsets.put(body([(b"more", b"v", 0)]), 1, 0)
    assert offsets.put(body([(b"8", b"v", 0)]), 1, 0)
