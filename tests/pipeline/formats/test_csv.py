"""CSV: cut at once where there are no quotes, by Python's reader where there are."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.specs import Csv
from tests.pipeline.formats.decoding import decoded

TWO = make_format(Csv(("first", "second")))


def wrong(found: int, expected: int = 2) -> str:
    return f"CSV error at record number 1: expected {expected} columns, got {found}."


@pytest.mark.parametrize("messages", [
    [(b"1,2", ("1", "2")), (b"2,3", ("2", "3"))],
    [(b"1,2\n", ("1", "2")), (b"a b,c\r\n", ("a b", "c")), (b",", ("", "")), (None, None)],
    [(b"1,2", ("1", "2")), (b"1", wrong(1)), (b"1,2,3", wrong(3)), (b"", wrong(1)),
     (b"4,5", ("4", "5"))],
    [(b'"a,b",c', ("a,b", "c")), (b'"say ""hi""",x', ('say "hi"', "x")), (b"3,4", ("3", "4")),
     (b'"two\nlines",y\n', ("two\nlines", "y")), (b'a"b,c', ('a"b', "c")), (b'"a"', wrong(1))],
    [(b'"never closed,2', wrong(1)), (b'"x",y', ("x", "y"))],
    [(b"\xff,2", "CSV error at record number 1: invalid UTF-8"), ("é,ü".encode(), ("é", "ü"))],
    [(b"1,2\n3,4", 'Unexpected bytes remaining for decoded value: "3,4"'), (b"5,6", ("5", "6"))],
    [(b"1,2\n\n", ("1", "2")), (b"\n", wrong(1)), (b'"a\n', wrong(1))],
])
def test_one_record_per_message(messages: list[tuple[bytes | None, object]]) -> None:
    """I10, I15: each row by itself, whatever is next to it."""
    assert decoded(TWO, [message for message, _ in messages]) == [row for _, row in messages]


def test_delimiters() -> None:
    """I10: DELIMITED BY."""
    assert decoded(make_format(Csv(("a", "b"), "|")), [b"1,5|2", b"1"]) == [
        ("1,5", "2"), wrong(1)]
    assert decoded(make_format(Csv(("a", "b"), "\t")), [b'"1\t5"\t2', b"1\t2"]) == [
        ("1\t5", "2"), ("1", "2")]


def test_one_column() -> None:
    """I10: a message without bytes is then one empty field."""
    assert decoded(make_format(Csv(("only",))), [b"", b"x", b"x,y", b'"q"', b"\n"]) == [
        ("",), ("x",), wrong(2, 1), ("q",), ("",)]


def test_a_field_may_be_as_large_as_its_message() -> None:
    """I10: more than the limit of Python's reader."""
    large = "x" * 200_000
    assert decoded(TWO, [f'"{large}",2'.encode()]) == [(large, "2")]


@given(st.lists(st.text(st.sampled_from('ab," \\é'), max_size=8), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_both_readers_see_quotes_alike(texts: list[str]) -> None:
    """I15: odd placements of quotes; which reader serves depends on a row's neighbours."""
    decoded(TWO, [text.encode() for text in texts])
    decoded(TWO, [text.encode() for text in texts if text.count('"') % 2 == 0])


fields = st.text(st.sampled_from('ab,"\n\r é;'), max_size=5)


@given(st.lists(st.lists(fields, min_size=1, max_size=3), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_what_a_writer_wrote_is_read(rows: list[list[str]]) -> None:
    """I10: Python's writer as oracle; the number of fields tells good rows."""
    messages: list[bytes | None] = []
    for row in rows:
        out = io.StringIO()
        csv.writer(out).writerow(row)
        messages.append(out.getvalue().encode())
    assert decoded(TWO, messages) == [
        tuple(row) if len(row) == 2 else wrong(len(row)) for row in rows]
