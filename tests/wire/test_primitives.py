"""Uvarints and tag sections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from quipu.model.errors import MalformedBytes
from quipu.wire.primitives import (
    PACKINGS_MAX,
    UVARINTS,
    Arrays,
    Packings,
    read_tags,
    read_uvarint,
    uvarint,
    write_tags,
)

numbers = st.integers(0, (1 << 32) - 1)


@given(numbers)
def test_a_uvarint_is_read_as_it_was_written(value: int) -> None:
    """K2: also by the oracle, and with any bytes before and after it."""
    data = uvarint(value)

    assert data == UnsignedVarInt32.encode(value) == UVARINTS[value]
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\0", b"\xff" * 4 + b"\x10", b"\xff" * 5])
def test_a_uvarint_of_more_than_32_bits_is_malformed(data: bytes) -> None:
    """K8: neither too many bytes nor too many bits in the fifth."""
    with pytest.raises(MalformedBytes):
        read_uvarint(data + b"\0", 0)


@given(st.dictionaries(numbers, st.binary(max_size=300), max_size=200))
def test_a_tag_section_is_read_as_it_was_written(tags: dict[int, bytes]) -> None:
    """K12: in ascending order, whatever the order was."""
    out: list[bytes] = []
    write_tags(out, tags)
    data = b"".join(out)

    assert read_tags(data, 1, len(data), data[0]) == (tuple(sorted(tags.items())), len(data))


def test_formats_are_kept_but_not_without_end() -> None:
    """K8: a client that varies the lengths of arrays does not fill the memory with formats."""
    arrays, packings = Arrays("i"), Packings(["h", ("i", True), "x"])
    for length in range(3 * PACKINGS_MAX):
        data = packings[length](7, UVARINTS[length + 1], *range(length))
        assert arrays[length](data, 2 + len(UVARINTS[length + 1])) == tuple(range(length))

    assert len(arrays) <= PACKINGS_MAX
    assert len(packings) <= PACKINGS_MAX
