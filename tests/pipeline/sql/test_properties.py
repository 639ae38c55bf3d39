"""What holds for every statement and every text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.sql.completion import complete
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import TokenKind, split
from quipu.pipeline.sql.parser import parse, parse_one
from quipu.pipeline.sql.printer import canonical
from quipu.pipeline.sql.secrets import mask_text, secret_spans
from quipu.pipeline.sql.statements import Statement
from tests.pipeline.sql.strategies import statements

WORDS = ["CREATE", "SOURCE", "s", "(", ")", "a", "bigint", ",", "FROM", "KAFKA", "BROKER", "'b:1'",
         "TOPIC", "'t'", "KEY", "FORMAT", "VALUE", "TEXT", "JSON", "AVRO", "USING", "SCHEMA", "'x",
         "INCLUDE", "TIMESTAMP", "AS", '"Off"', "ENVELOPE", "UPSERT", "DEBEZIUM", "WITH", "=", "1",
         "-", ";", "/*", "*/", "--", "\n", "VIEW", "SELECT", "PASSWORD", "CONNECTION", "TO", "DROP",
         "SHOW", "EXPLAIN", "[", "]", "HEADER", "`", "\\", "ORDER", "BY", "CSV", "2", "COLUMNS"]
scraps = st.one_of(
    st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))


def mistake(text: str) -> SqlError | None:
    try:
        parse(text)
    except SqlError as error:
        return error
    return None


@given(statement=statements)
@settings(max_examples=100)
def test_what_is_printed_is_parsed_to_the_same(statement: Statement) -> None:
    assert parse_one(canonical(statement, secrets=True)) == statement


@given(statement=statements)
@settings(max_examples=50)
def test_the_canonical_text_is_its_own_canonical_text(statement: Statement) -> None:
    text = canonical(statement, secrets=True)

    assert canonical(parse_one(text), secrets=True) == text


@given(text=scraps)
@settings(max_examples=100)
def test_any_text_is_parsed_or_refused_at_a_place_within_it(text: str) -> None:
    """I19: never another error, and the place is in the text."""
    error = mistake(text)
    if error is None:
        return
    assert 1 <= error.line <= text.count("\n") + 1
    assert error.length >= 1
    assert 0 <= error.span.start <= error.span.end <= len(text)
    shown = str(error).split("\n")
    assert shown[0].startswith(f"line {error.line}, column {error.column}: ")
    assert set(shown[2].strip()) == {"^"}
    assert error.hint


@given(text=scraps)
@settings(max_examples=100)
def test_tokens_cover_the_text_in_order(text: str) -> None:
    position = 0
    for piece in split(text):
        for token in piece.tokens[:-1]:
            assert position <= token.span.start < token.span.end
            position = token.span.end
        assert piece.tokens[-1].kind is TokenKind.END


@given(text=scraps)
@settings(max_examples=100)
def test_secrets_do_not_overlap_and_completion_never_fails(text: str) -> None:
    ends = 0
    for span in secret_spans(text):
        assert ends <= span.start < span.end
        ends = span.end
    mask_text(text)
    assert isinstance(complete(text, {}), list)


@given(secret=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=6,
                      max_size=12).map(lambda text: f"zq{text}qz"),
       name=st.sampled_from(["SASL PASSWORD", "sasl_password", "PASSWORD", "SSL KEY", "PASWORD",
                             '"sasl.password"', "CLIENT SECRET", "SSL KEY PASSWORD"]),
       equals=st.sampled_from([" ", " = ", " /* is */ ", "="]),
       ending=st.sampled_from([")", "", ", !)", ") x", "); SHOW"]))
@settings(max_examples=100)
def test_passwords_are_in_no_error_and_no_printed_statement(
        secret: str, name: str, equals: str, ending: str) -> None:
    text = f"CREATE CONNECTION c TO KAFKA (BROKER 'b:1', {name}{equals}'{secret}'{ending}"
    try:
        shown = "".join(canonical(statement) + repr(statement) for statement in parse(text))
    except SqlError as error:
        shown = str(error)

    assert secret not in shown
    assert secret not in mask_text(text)
