"""ENVELOPE NONE, and the formats that need no schema registry.

FORMAT JSON ARRAY, of case 95, is refused among the statements (tests/pipeline/sql).
"""

import pytest

from tests.pipeline.spark.cases.cases import (
    BOTH_TEXT,
    Case,
    Message,
    Outcome,
    Stage,
    Story,
    Topic,
    check,
    from_topic,
    protobuf,
)
from tests.pipeline.spark.cases.codecs import Protobuf

NO_VALUE = "Envelope error: Flat: Value not present for message"
NO_COLUMN = "CSV error at record number 1: expected 2 columns, got 1."
NO_JSON = "Failed to decode JSON"
VISIT = (r"REGEX '(?P<ip>\d{1,3}(?:\.\d{1,3}){3}) - - \[(?P<at>[^]]+)\] "
         r'"(?P<path>(?:GET /search/\?kw=(?P<search>[^ ]*)|GET /detail/(?P<product>\d+)|[^"])*)" '
         r"(?P<code>\d{3})'")
HOME = b'10.1.2.3 - - [08/Mar/2020] "GET / HTTP/1.1" 200'
SEARCH = b'10.1.2.4 - - [09/Mar/2020] "GET /search/?kw=bed HTTP/1.1" 404'
DETAIL = b'10.1.2.5 - - [10/Mar/2020] "GET /detail/42 HTTP/1.1" 500'
PAIR = r"REGEX '(?P<one>[^:]+):(?P<two>.*)'"
KEY = Protobuf('syntax = "proto3"; message Key { string key1 = 1; string key2 = 2; }', "Key",
               wire=False)
VALUE = Protobuf('syntax = "proto3"; message Value { string value1 = 1; string value2 = 2; }',
                 "Value", wire=False)
NAMES = "(key1, key2, value1, value2)"
DOCUMENTS = ['{"a": [1, {"b": null}]}', "[1, 2]", '"text"', '""', "1.5", "true", "null",
             "4.9E-324", "{}"]
THREE = [("k1", "l1", "A1", "B1"), ("k2", "l2", "", "B2"), ("k3", "l3", "A3", "B3x")]


def with_value(*values: str | bytes | None, partition: int = 0) -> list[Message]:
    return [Message(None, value, partition) for value in values]


STORY = Story(
    Topic("none-text"),
    Topic("none-bytes"),
    Topic("none-two", partitions=2),
    Topic("none-nulls"),
    Topic("none-csv", partitions=2),
    Topic("none-csv-bad"),
    Topic("none-visits"),
    Topic("none-json"),
    Topic("none-json-bad"),
    Topic("none-csv-pairs"),
    Topic("none-regex-pairs"),
    Topic("none-protobuf-pairs", key=KEY, value=VALUE),
    Stage(
        {
            "none-text": [("hello", "world"), (None, "foo"), (None, None), ("bar", None)],
            "none-bytes": with_value("©1", "©2"),
            "none-two": [*with_value("©1"), *with_value("©2", partition=1)],
            "none-nulls": with_value("Sé", None, "así"),
            "none-csv": [*with_value("1,2"), *with_value("2,3", partition=1)],
            "none-csv-bad": with_value("1,2", "3", '"4,5",6', b"\xc3\x28,7"),
            "none-visits": with_value(HOME, SEARCH, b"nothing of that kind", DETAIL,
                                      b"10.1.2.6 \xc3\x28"),
            "none-json": with_value(*DOCUMENTS),
            "none-json-bad": with_value("[1]", '{"a": nope}', '{"a":', "2"),
            "none-csv-pairs": [("k1,l1", "A1,B1"), ("k2,l2", ",B2"), ("k3,l3", "A3,B3"),
                               ("k4,l4", "A4,B4"), ("k3,l3", "A3,B3x"), ("k4,l4", None)],
            "none-regex-pairs": [("k1:l1", "A1:B1"), ("k2:l2", "A2:B2"), ("k3:l3", "A3:B3x"),
                                 ("k2:l2", "no match")],
            "none-protobuf-pairs": [
                ({"key1": "k1", "key2": "l1"}, {"value1": "A1", "value2": "B1"}),
                ({"key1": "k2", "key2": "l2"}, {"value2": "B2"}),
                ({"key1": "k3", "key2": "l3"}, {"value1": "A3", "value2": "B3x"}),
                ({"key1": "k4", "key2": "l4"}, {"value1": "A4"}),
                ({"key1": "k4", "key2": "l4"}, None)],
        },
        Case("84", "neither key nor value is no message; a key alone is a bad one",
             f"{from_topic('none-text')} {BOTH_TEXT} INCLUDE KEY ENVELOPE NONE",
             rows=[("hello", "world"), (None, "foo")], letters=[(0, 3, NO_VALUE)],
             ours="a bad record does not stop a source"),
        Case("84s", "which stops a strict source",
             f"{from_topic('none-text')} {BOTH_TEXT} INCLUDE KEY WITH (ERRORS = 'strict')",
             unreadable=[NO_VALUE]),
        Case("84i", "and shows in a column, if it shall",
             f"{from_topic('none-text')} {BOTH_TEXT} INCLUDE KEY, OFFSET "
             "WITH (ERRORS = 'inline')",
             columns="key text, error record(description text), text text, offset bigint",
             rows=[("hello", None, "world", 0), (None, None, "foo", 1),
                   ("bar", {"description": NO_VALUE}, None, 3)], letters=[]),
        Case("85", "bytes and offsets", f"{from_topic('none-bytes')} FORMAT BYTES INCLUDE OFFSET",
             columns="data bytes not null, offset bigint",
             rows=[(b"\xc2\xa91", 0), (b"\xc2\xa92", 1)],
             ours="an offset is a nullable bigint, not an unsigned number"),
        Case("86", "another name", f"(named_col) {from_topic('none-bytes')} FORMAT BYTES",
             columns="named_col bytes not null", rows=[(b"\xc2\xa91",), (b"\xc2\xa92",)]),
        Case("87", "from an offset on",
             f"{from_topic('none-bytes', ', START OFFSET [1]')} FORMAT BYTES INCLUDE OFFSET",
             rows=[(b"\xc2\xa92", 1)]),
        Case("88", "by partition",
             f"{from_topic('none-two', ', START OFFSET [0,1]')} FORMAT BYTES INCLUDE OFFSET",
             rows=[(b"\xc2\xa91", 0)]),
        Case("89", "a message without value is no row", f"{from_topic('none-nulls')} FORMAT BYTES",
             rows=[("Sé".encode(),), ("así".encode(),)], letters=[]),
        Case("91", "CSV",
             f"(first, second) {from_topic('none-csv')} FORMAT CSV WITH 2 COLUMNS",
             columns="first text not null, second text not null", rows=[("1", "2"), ("2", "3")]),
        Case("91o", "CSV from offsets on",
             f"(first, second) {from_topic('none-csv', ', START OFFSET [1,0]')} "
             "FORMAT CSV WITH 2 COLUMNS", rows=[("2", "3")]),
        Case("92", "a row of CSV with too few columns",
             f"{from_topic('none-csv-bad')} FORMAT CSV WITH 2 COLUMNS",
             columns="column1 text not null, column2 text not null",
             rows=[("1", "2"), ("4,5", "6")],
             letters=[(0, 1, NO_COLUMN), (0, 3, "invalid UTF-8")],
             ours="a bad record does not stop a source"),
        Case("93", "groups that take no part are NULL, lines that do not match are no rows",
             f"{from_topic('none-visits')} FORMAT {VISIT}",
             columns="ip text, at text, path text, search text, product text, code text",
             rows=[("10.1.2.3", "08/Mar/2020", "GET / HTTP/1.1", None, None, "200"),
                   ("10.1.2.4", "09/Mar/2020", "GET /search/?kw=bed HTTP/1.1", "bed", None, "404"),
                   ("10.1.2.5", "10/Mar/2020", "GET /detail/42 HTTP/1.1", None, "42", "500")],
             letters=[(0, 4, "UTF-8")], ours="a bad record does not stop a source"),
        Case("93s", "a line that is no text stops a strict source",
             f"{from_topic('none-visits')} FORMAT {VISIT} WITH (ERRORS = 'strict')",
             unreadable=["UTF-8"]),
        Case("94c", "upserts of CSV",
             f"{NAMES} {from_topic('none-csv-pairs')} KEY FORMAT CSV WITH 2 COLUMNS "
             "VALUE FORMAT CSV WITH 2 COLUMNS ENVELOPE UPSERT",
             columns="key1 text not null, key2 text not null, value1 text not null, "
                     "value2 text not null", rows=THREE),
        Case("94r", "upserts of groups: what does not match is taken away",
             f"{NAMES} {from_topic('none-regex-pairs')} KEY FORMAT {PAIR} VALUE FORMAT {PAIR} "
             "ENVELOPE UPSERT", rows=[THREE[0], THREE[2]]),
        Case("94p", "upserts of Protocol Buffers",
             f"{NAMES} {from_topic('none-protobuf-pairs')} KEY FORMAT {protobuf(KEY)} "
             f"VALUE FORMAT {protobuf(VALUE)} ENVELOPE UPSERT", rows=THREE),
        Case("95", "documents of any kind", f"{from_topic('none-json')} FORMAT JSON",
             columns="data text not null", rows=[(document,) for document in DOCUMENTS],
             ours="a document is text as it came, so no number is too precise"),
        Case("95b", "what is no document", f"{from_topic('none-json-bad')} FORMAT JSON",
             rows=[("[1]",), ("2",)],
             letters=[(0, 1, f"{NO_JSON}: expected value at line 1 column 7"),
                      (0, 2, f"{NO_JSON}: EOF while parsing a value at line 1 column 5")],
             ours="a bad record does not stop a source")))


@pytest.mark.parametrize("case", STORY.cases, ids=lambda case: case.number)
def test_formats(case: Case, outcomes: dict[str, Outcome]) -> None:
    """I4, I10, I14, I15: rows of every format; what becomes of bad records."""
    check(case, outcomes)
