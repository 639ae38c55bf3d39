"""TEXT and BYTES."""

import pyarrow as pa

from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.specs import Bytes, Text
from tests.pipeline.formats.decoding import decoded

MESSAGES = [b"plain", "bìrd".encode(), None, b"", b"\xc3\x28", b"\xe2\x82", "🐟".encode(), b"\0"]


def test_text_must_be_utf8() -> None:
    """I10, I15: a message that is no text is an error, and its neighbours are untouched."""
    assert decoded(make_format(Text()), MESSAGES) == [
        ("plain",), ("bìrd",), None, ("",), "Failed to decode UTF-8", "Failed to decode UTF-8",
        ("🐟",), ("\0",)]


def test_a_character_cut_between_two_messages_is_an_error_of_both() -> None:
    """I15: the bytes of both together would be text."""
    whole = "é".encode()
    bad = "Failed to decode UTF-8"
    assert decoded(make_format(Text()), [whole[:1], whole[1:], whole]) == [bad, bad, ("é",)]


def test_many_bad_messages_are_all_found() -> None:
    """I15: across blocks of rows."""
    messages = [b"\xff" if row % 700 == 3 else b"fine" for row in range(5000)]
    found = make_format(Text()).decode(pa.array(messages, pa.binary()))
    assert [row for row, bad in enumerate(found.errors.is_valid().to_pylist()) if bad] == [
        row for row in range(5000) if row % 700 == 3]
    assert found.columns[0].null_count == found.errors.is_valid().sum().as_py()


def test_bytes_are_as_they_came() -> None:
    """I10: and not copied."""
    data = pa.array(MESSAGES, pa.binary())
    found = make_format(Bytes("raw")).decode(data)
    assert found.columns[0] is data
    assert decoded(make_format(Bytes("raw")), MESSAGES) == [
        None if message is None else (message,) for message in MESSAGES]
    assert make_format(Bytes("raw")).columns[0].name == "raw"


def test_good_text_is_not_copied() -> None:
    """I4: nothing is paid for what is not asked."""
    data = pa.array([b"a", None, b"bc"], pa.binary())
    found = make_format(Text()).decode(data)
    assert found.columns[0].buffers()[2].address == data.buffers()[2].address
