"""Tables and JSON lines."""

import json

import pytest

from quipu.cli.output import cell, count, plain_table, printable, show


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    """K9: output that `awk` and a person can read."""
    rows = [
        {"topic": "a", "partitions": 3, "note": None},
        {"topic": "orders", "partitions": 12, "note": "x"},
    ]

    text = plain_table(rows, ["topic", "partitions", "note"])

    assert text == (
        "TOPIC   PARTITIONS  NOTE\n"
        "a                3  -\n"
        "orders          12  x\n"
    )  # fmt: skip


def test_a_table_without_rows_is_its_header() -> None:
    """K9: no row is no error."""
    assert plain_table([], ["topic", "end_offset"]) == "TOPIC  END OFFSET\n"


def test_names_cannot_steer_a_terminal() -> None:
    """K8: a client's group id is shown, not obeyed."""
    assert printable("a\x1b[2J\nb") == "a\\x1b[2J\\nb"
    assert cell("a\tb") == "a\\tb"
    assert cell(["t-0", "t-1"]) == "t-0,t-1"
    assert (cell(None), cell([]), cell(value=True)) == ("-", "-", "yes")


def test_json_lines_have_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    """K9: --json shows what a table leaves out."""
    show([{"topic": "ä", "id": 7}], ["topic"], as_json=True)

    assert json.loads(capsys.readouterr().out) == {"topic": "ä", "id": 7}


def test_counting_words() -> None:
    """K9: one record, two records."""
    assert [count(n, "record") for n in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]
