"""Scripts cut into statements, completion, and errors as they are shown."""

from typing import NamedTuple

import pytest

from quipu.pipeline.sql.completion import complete
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import split
from quipu.pipeline.sql.parser import TEXT_SIZE_MAX, parse, parse_one, pieces
from quipu.pipeline.sql.printer import canonical
from quipu.pipeline.sql.secrets import Secret, is_secret, mask_text
from quipu.pipeline.sql.statements import CreateConnection, CreateView, ObjectKind
from quipu.pipeline.sql.text import TextSpan

NAMES = {ObjectKind.SOURCE: ["orders", "Odd"], ObjectKind.VIEW: ["totals"],
         ObjectKind.CONNECTION: ["kafka1"], ObjectKind.SINK: ["out"]}


class Cut(NamedTuple):
    why: str
    text: str
    want: list[str]


CUTS = [
    Cut("nothing", " \n -- nothing ;\n /* nor /* here */ ; */ ;; ", []),
    Cut("semicolons end statements", "SHOW SOURCES; SHOW VIEWS", ["SHOW SOURCES", "SHOW VIEWS"]),
    Cut("strings hide semicolons", "SELECT ';'; SELECT 1", ["SELECT ';'", "SELECT 1"]),
    Cut("in queries a backslash escapes", r"SELECT '\';'; X", [r"SELECT '\';'", "X"]),
    Cut("raw strings have no escapes", r"SELECT r'\'; X", [r"SELECT r'\'", "X"]),
    Cut("in our statements it does not", r"DROP '\'; X", [r"DROP '\'", "X"]),
    Cut("double quotes hold strings in queries", r'SELECT "\";"; X', [r'SELECT "\";"', "X"]),
    Cut("and names in our statements", r'DROP "\";"', [r'DROP "\"', '"']),
    Cut("backticks", "SELECT `;`; X", ["SELECT `;`", "X"]),
    Cut("a view is half ours, half Spark's", r"CREATE VIEW '\' AS SELECT '\';'; X",
        [r"CREATE VIEW '\' AS SELECT '\';'", "X"]),
    Cut("comments within", "SHOW -- a;b\n /* c;d */ SOURCES;", ["SHOW -- a;b\n /* c;d */ SOURCES"]),
]


@pytest.mark.parametrize("case", CUTS, ids=lambda case: case.why)
def test_scripts_are_cut_into_statements(case: Cut) -> None:
    cut = [case.text[piece.span.start:piece.span.end] for piece in split(case.text)]

    assert cut == case.want


def test_a_shell_can_tell_whether_a_statement_has_ended() -> None:
    assert [piece.ended for piece in split("SHOW SOURCES; SELECT 'a;")] == [True, False]


COMPLETIONS = [
    ("", "CREATE"), ("SHOW SOURCES; ", "DROP"), ("cre", "CREATE"), ("CREATE ", "SOURCE"),
    ("CREATE SOURCE s FROM KAFKA ", "BROKER"), ("CREATE SOURCE s FROM KAFKA CONNECTION ", "kafka1"),
    ("CREATE SOURCE s FROM KAFKA BROKER 'b' TOPIC 't' ", "INCLUDE"),
    ("CREATE SOURCE s FROM KAFKA BROKER 'b' TOPIC 't' FORMAT TEXT INCLUDE KEY, ti", "TIMESTAMP"),
    ("CREATE SOURCE s FROM KAFKA BROKER 'b' TOPIC 't' FORMAT TEXT ENVELOPE ", "DEBEZIUM"),
    ("DROP SOURCE ", '"Odd"'), ("DROP SINK ", "out"), ("SUBSCRIBE TO t", "totals"),
    ("SELECT * FROM ord", "orders"), ("CREATE VIEW v AS SELECT * FROM ", "totals"),
    ("SHOW COLUMNS FROM ", "totals"), ("EXPLAIN ", "SELECT"),
]


@pytest.mark.parametrize(("text", "word"), COMPLETIONS, ids=[text for text, _ in COMPLETIONS])
def test_the_grammar_completes(text: str, word: str) -> None:
    offered = complete(text, NAMES)

    assert word in offered
    assert len(offered) == len(set(offered))


@pytest.mark.parametrize(
    "text", ["SHOW WRONG ", "SELECT 'abc", "CREATE SOURCE s FROM KAFKA BROKER "])
def test_nothing_is_offered_where_nothing_is_known(text: str) -> None:
    assert complete(text, NAMES) == []


def test_an_error_knows_its_place() -> None:
    """I19: line and column, as editors count; what is underlined ends with its line."""
    text = "SHOW SOURCES;\n  DROP 'two\nlines'"
    with pytest.raises(SqlError) as caught:
        parse(text)

    error = caught.value
    assert (error.line, error.column, error.length) == (2, 8, 4)
    assert error.span == TextSpan(21, 32)
    assert error.message.startswith("Expected CONNECTION")
    assert str(error).split("\n")[1:3] == ["      DROP 'two", "           ^^^^"]


def test_a_long_line_is_shown_around_the_mistake() -> None:
    text = f"SHOW SOURCES {'x' * 500}"
    with pytest.raises(SqlError) as caught:
        parse(text)

    assert all(len(line) < 110 for line in str(caught.value).split("\n")[1:3])


def test_a_text_without_limits_is_refused() -> None:
    with pytest.raises(SqlError, match="at most"):
        pieces(" " * (TEXT_SIZE_MAX + 1))


def test_one_statement_is_one_statement() -> None:
    with pytest.raises(SqlError, match="no statement"):
        parse_one("-- nothing")
    with pytest.raises(SqlError, match="more than one") as caught:
        parse_one("SHOW VIEWS;\nSHOW SINKS")
    assert caught.value.line == 2


def test_a_view_keeps_its_query_as_written() -> None:
    """I13: the query and where it stands."""
    text = "CREATE VIEW v AS  select\n 'x'  ;"
    view = parse_one(text)

    assert isinstance(view, CreateView)
    assert view.query == "select\n 'x'"
    assert text[view.query_span.start:view.query_span.end] == view.query


def test_passwords_are_read_but_not_shown() -> None:
    connection = parse_one("CREATE CONNECTION c TO KAFKA (BROKER 'b:1', SASL PASSWORD 'hunter2')")

    assert isinstance(connection, CreateConnection)
    assert connection.options[1].value == Secret("hunter2")
    assert "hunter2" not in repr(connection)


@pytest.mark.parametrize(("name", "secret"), [
    ("sasl.password", True), ("SASL PASSWORD", True), ("ssl_key", True), ("ssl.key.pem", True),
    ("ssl key password", True), ("sasl jaas config", True), ("basic.auth.user.info", True),
    ("sasl_passwrd", True), ("ssl key location", False), ("sasl username", False),
    ("security protocol", False), ("start offset", False), ("topic", False), ("broker", False)])
def test_names_tell_what_is_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_a_script_can_be_shown() -> None:
    script = """CREATE CONNECTION c TO KAFKA (BROKERS ('a:1', 'b:1'), SASL PASSWORD = hunter2);
        SELECT * FROM s WHERE name = 'public'"""

    assert mask_text(script) == script.replace("hunter2", "'***'")


def test_a_broker_that_is_known_need_not_be_written() -> None:
    """I1: a shell has a broker of its own; what is kept names it."""
    text = "CREATE SOURCE s FROM KAFKA TOPIC 't' FORMAT TEXT"
    for each in (text, text.replace("TOPIC 't'", "(TOPIC 't')")):
        assert "BROKER 'b:1' TOPIC 't'" in canonical(parse_one(each, "b:1"))
    other = parse_one(text.replace("TOPIC", "CONNECTION c TOPIC"), "b:1")
    assert "CONNECTION c" in canonical(other)
    with pytest.raises(SqlError, match="Expected BROKER or CONNECTION"):
        parse_one(text)
