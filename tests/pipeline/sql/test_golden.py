"""Statements and their canonical text; mistakes and what is said about them."""

from pathlib import Path

from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import parse, parse_one
from quipu.pipeline.sql.printer import canonical
from tests.pipeline.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"


def canonical_text(text: str) -> str:
    statements = parse(text)
    for statement in statements:
        assert parse_one(canonical(statement, secrets=True)) == statement
    return without_password(";\n".join(canonical(statement) for statement in statements))


def without_password(answer: str) -> str:
    assert "hunter2" not in answer
    return answer


def error_text(text: str) -> str:
    try:
        parsed = parse(text)
    except SqlError as error:
        return without_password(str(error))
    raise AssertionError(f"no error: {parsed}")


def test_statements_have_one_canonical_text_without_passwords() -> None:
    """I1, I3, I10, I13, I14, I16: every statement, as it is understood and printed."""
    check_golden(GOLDEN / "statements.txt", canonical_text)


def test_mistakes_are_underlined_and_have_a_hint() -> None:
    """I19: line, column, the text underlined, and what to write instead."""
    check_golden(GOLDEN / "errors.txt", error_text)
