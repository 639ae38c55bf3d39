"""Parses statements.

`parse` parses a whole script, `parse_piece` one statement of it, so that a shell can run the first
before it parses the second.  Errors point into the whole text.  With a `broker`, FROM KAFKA
TOPIC 't' means FROM KAFKA BROKER '…' TOPIC 't'.
"""

from quipu.pipeline.sql.cursor import TokenCursor
from quipu.pipeline.sql.errors import SqlError, located
from quipu.pipeline.sql.lexer import TokenizedStatement, TokenKind, split
from quipu.pipeline.sql.sources import parse_create_source, parse_kafka
from quipu.pipeline.sql.statements import (
    CreateConnection,
    CreateSink,
    CreateView,
    Drop,
    Explain,
    KafkaClause,
    Name,
    ObjectKind,
    Option,
    Query,
    Show,
    ShowColumns,
    ShowCreate,
    ShowKind,
    SinkKind,
    Statement,
    Subscribe,
)
from quipu.pipeline.sql.text import TextSpan

TEXT_SIZE_MAX = 16 * 1024 * 1024  # statements may contain large schemas
STATEMENTS = ("CREATE", "DROP", "SHOW", "EXPLAIN", "SELECT", "WITH", "VALUES", "SUBSCRIBE")
EXPLAINABLE = tuple(word for word in STATEMENTS if word != "EXPLAIN")
_READABLE = (ObjectKind.SOURCE, ObjectKind.VIEW)


def parse(text: str, broker: str | None = None) -> tuple[Statement, ...]:
    """Every statement of a script."""
    return tuple(parse_piece(text, piece, broker) for piece in pieces(text))


def parse_one(text: str, broker: str | None = None) -> Statement:
    """The only statement of a text."""
    found = pieces(text)
    with located(text):
        if not found:
            raise SqlError("There is no statement here", TextSpan(0, 0),
                           hint="write CREATE SOURCE …, SELECT … or SHOW SOURCES")
        if len(found) > 1:
            raise SqlError("There is more than one statement here", found[1].span,
                           hint="give one at a time")
    return parse_piece(text, found[0], broker)


def pieces(text: str) -> tuple[TokenizedStatement, ...]:
    """The statements of a script, as tokens that are not parsed yet."""
    if len(text) > TEXT_SIZE_MAX:
        raise SqlError(f"The text has {len(text)} characters, at most {TEXT_SIZE_MAX}",
                       hint="give it in parts, or put schemas into files")
    return split(text)


def parse_piece(text: str, piece: TokenizedStatement, broker: str | None = None) -> Statement:
    """One statement."""
    with located(text):
        return parse_cursor(TokenCursor(text, piece, broker))


def parse_cursor(cursor: TokenCursor) -> Statement:
    """One statement, to its end; afterwards `cursor.wanted` has what was expected next."""
    statement = _statement(cursor)
    cursor.expect_end()
    return statement


def _statement(cursor: TokenCursor, *, explained: bool = False) -> Statement:
    start = cursor.token.span
    if cursor.index == cursor.piece.query_start:
        return _query(cursor)
    match cursor.choose(*(EXPLAINABLE if explained else STATEMENTS)):
        case "CREATE":
            return _create(cursor, start)
        case "DROP":
            return _drop(cursor, start)
        case "SHOW":
            return _show(cursor, start)
        case "SUBSCRIBE":
            cursor.accept("TO")
            name = cursor.name("a source or view", *_READABLE)
            options = cursor.options() if cursor.accept("WITH") else ()
            return Subscribe(name, options, cursor.span_from(start))
        case "EXPLAIN":
            return Explain(_explained(cursor), cursor.span_from(start))
        case _:
            raise AssertionError("the lexer finds queries")


def _query(cursor: TokenCursor) -> Query:
    start = cursor.token.span
    text, span = _rest(cursor)
    return Query(text, start.to(span))


def _rest(cursor: TokenCursor) -> tuple[str, TextSpan]:
    """The rest of the statement, as written."""
    start, first = cursor.token.span, cursor.index
    while not cursor.at_end:
        cursor.take()
    if cursor.index == first:
        raise cursor.unexpected("SELECT", "WITH", "VALUES")
    span = cursor.span_from(start)
    return cursor.text[span.start:span.end], span


def _explained(cursor: TokenCursor) -> Statement | Name:
    is_query = cursor.index == cursor.piece.query_start
    if is_query or cursor.would_accept(*EXPLAINABLE) or cursor.sees("EXPLAIN"):
        return _statement(cursor, explained=True)
    kind_given = any(cursor.sees(kind.value) for kind in ObjectKind)
    if kind_given and cursor.piece.tokens[cursor.index + 1].kind is not TokenKind.END:
        cursor.take()
    return cursor.name("a statement or a name", *ObjectKind)


# -- CREATE


def _create(cursor: TokenCursor, start: TextSpan) -> Statement:
    or_replace = cursor.accept("OR", "REPLACE")
    materialized = cursor.accept("MATERIALIZED")
    choices = ["VIEW"] if or_replace else ["SOURCE", "VIEW"]
    if not (materialized or or_replace):
        choices += ["SINK", "CONNECTION"]
    match cursor.choose(*choices):
        case "SOURCE":
            return parse_create_source(cursor, start, materialized=materialized)
        case "VIEW":
            return _create_view(cursor, start, materialized=materialized, or_replace=or_replace)
        case "SINK":
            return _create_sink(cursor, start)
        case _:
            return _create_connection(cursor, start)


def _create_view(cursor: TokenCursor, start: TextSpan, *, materialized: bool,
                 or_replace: bool) -> CreateView:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if if_not_exists and or_replace:
        raise SqlError("OR REPLACE and IF NOT EXISTS contradict each other",
                       cursor.span_from(start), hint="leave one of them out")
    name = cursor.name("a name for the view")
    cursor.expect("AS")
    query, span = _rest(cursor)
    return CreateView(name, query, materialized, or_replace, if_not_exists, span,
                      cursor.span_from(start))


def _create_connection(cursor: TokenCursor, start: TextSpan) -> CreateConnection:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a name for the connection")
    cursor.expect("TO")
    is_registry = cursor.choose("KAFKA", "CONFLUENT") == "CONFLUENT"
    if is_registry:
        cursor.expect("SCHEMA", "REGISTRY")
    options = cursor.options()
    if cursor.accept("WITH"):
        options += cursor.options()
    return CreateConnection(name, is_registry, options, if_not_exists, cursor.span_from(start))


def _create_sink(cursor: TokenCursor, start: TextSpan) -> CreateSink:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a name for the sink")
    cursor.expect("FROM")
    view = cursor.name("a source or view", *_READABLE)
    cursor.expect("INTO")
    kind = SinkKind(cursor.choose(*(kind.value for kind in SinkKind)))
    path, kafka = "", None
    key: tuple[Name, ...] = ()
    options: tuple[Option, ...] = ()
    if kind in (SinkKind.PARQUET, SinkKind.DELTA):
        path = cursor.string("a path")
    elif kind is SinkKind.KAFKA:
        kafka, options = _sink_kafka(cursor)
        if cursor.accept("KEY"):
            key = cursor.names("a column")
        cursor.expect("FORMAT", "JSON")
    if cursor.accept("WITH"):
        options += cursor.options()
    return CreateSink(name, view, kind, path, kafka, key, options, if_not_exists,
                      cursor.span_from(start))


def _sink_kafka(cursor: TokenCursor) -> tuple[KafkaClause, tuple[Option, ...]]:
    kafka, options = parse_kafka(cursor)
    if len(kafka.topics) != 1:
        raise SqlError("A sink writes to one topic", kafka.topics_span, hint="write TOPIC 't'")
    return kafka, options


# -- DROP, SHOW


def _drop(cursor: TokenCursor, start: TextSpan) -> Drop:
    materialized = cursor.accept("MATERIALIZED")
    kinds = [ObjectKind.VIEW] if materialized else list(ObjectKind)
    kind = ObjectKind(cursor.choose(*(kind.value for kind in kinds)))
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name(f"a {kind.value.lower()}", kind)
    cascade = cursor.accept("CASCADE")
    return Drop(kind, name, materialized, if_exists, cascade, cursor.span_from(start))


def _show(cursor: TokenCursor, start: TextSpan) -> Statement:
    word = cursor.choose(*(kind.value for kind in ShowKind), "COLUMNS", "CREATE")
    if word == "COLUMNS":
        cursor.expect("FROM")
        name = cursor.name("a source or view", *_READABLE)
        return ShowColumns(name, cursor.span_from(start))
    if word == "CREATE":
        cursor.accept("MATERIALIZED")
        kind = ObjectKind(cursor.choose(*(kind.value for kind in ObjectKind)))
        name = cursor.name(f"a {kind.value.lower()}", kind)
        return ShowCreate(kind, name, cursor.span_from(start))
    return Show(ShowKind(word), cursor.span_from(start))
