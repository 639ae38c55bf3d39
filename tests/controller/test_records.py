"""Records of the metadata log: their bytes, and what a newer program may have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.controller.records import (
    TYPES,
    BrokerRegistered,
    ConfigChanged,
    ProducerIdsReserved,
    TopicDeleted,
    UnknownRecord,
    decode_record,
    encode_record,
)
from quipu.model.errors import MalformedBytes, QuipuError


def test_a_record_is_its_type_its_version_and_its_fields() -> None:
    """T4, T7: the bytes that a metadata log holds, once and for all."""
    record = ConfigChanged(resource_type=2, resource_name="t", name="retention.ms", value=None)
    encoded = encode_record(record)

    assert encoded == b"\0\6\0\0\2\2t\x0dretention.ms\0\0"
    assert decode_record(encoded) == record


def test_every_type_survives_with_defaults() -> None:
    """controller.R1: each type has a number of its own."""
    for kind in TYPES.values():
        assert decode_record(encode_record(kind())) == kind()


@pytest.mark.parametrize("head", [b"\0\x63\0\0", b"\0\1\0\7"], ids=["type 99", "version 7"])
def test_what_a_newer_program_wrote_is_refused_in_words(head: bytes) -> None:
    """T11, controller.R2: a record this version does not know crashes nothing, and is not skipped
    either.
    """
    with pytest.raises(UnknownRecord, match="a newer one wrote it"):
        decode_record(head + b"anything")


def test_a_tagged_field_of_a_newer_program_is_read_past() -> None:
    """controller.R3: optional additions are tagged fields."""
    plain = encode_record(ProducerIdsReserved(node_id=1, next_producer_id=5))
    tagged = plain[:-1] + b"\1\x63\2hi"  # one tag, number 99, two bytes

    record = decode_record(tagged)

    assert isinstance(record, ProducerIdsReserved)
    assert record.next_producer_id == 5


@given(data=st.binary(max_size=64))
def test_any_bytes_are_a_record_or_an_error(data: bytes) -> None:
    try:
        record = decode_record(data)
    except QuipuError:
        return
    assert type(record) in TYPES.values()


@pytest.mark.parametrize("size", range(4))
def test_bytes_without_a_head_are_refused(size: int) -> None:
    with pytest.raises(MalformedBytes):
        decode_record(bytes(size))


def test_cut_bytes_are_refused() -> None:
    for record in (BrokerRegistered(node_id=1, host="h", port=1, rack="r"), TopicDeleted()):
        encoded = encode_record(record)
        for size in range(4, len(encoded)):
            with pytest.raises(MalformedBytes):
                decode_record(encoded[:size])
