"""The grammar of CREATE SOURCE, and of the Kafka clause that sinks share with it.

    CREATE [MATERIALIZED] SOURCE [IF NOT EXISTS] name [(columns)]
      FROM KAFKA {BROKER 'h:p' | CONNECTION c} topics
      [WITH (…)] [FORMAT … | KEY FORMAT … VALUE FORMAT …] [INCLUDE …] [ENVELOPE …] [WITH (…)]

BROKER may be left out if the cursor has one.  Topics come after it (TOPIC 't', TOPICS ('a', 'b'),
TOPIC LIST ('a', 'b'), TOPIC PATTERN 're'), or in parentheses together with other options
(TOPIC 't', START OFFSET (0, 1)); the options are then the same as in WITH.
"""

from quipu.pipeline.source import EnvelopeKind, MetadataKind
from quipu.pipeline.sql.cursor import TokenCursor
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.formats import parse_format, parse_type
from quipu.pipeline.sql.lexer import TokenKind
from quipu.pipeline.sql.statements import (
    ColumnItem,
    CreateSource,
    EnvelopeClause,
    Format,
    Include,
    KafkaClause,
    Name,
    ObjectKind,
    Option,
)
from quipu.pipeline.sql.text import TextSpan

TOPIC_OPTIONS = ("topic", "topics", "topic list", "topic pattern")
ITEMS = ("KEY", "TIMESTAMP", "PARTITION", "OFFSET", "TOPIC", "HEADERS", "HEADER", "DEBEZIUM")
_PLAIN_ITEMS = {"PARTITION": MetadataKind.PARTITION, "OFFSET": MetadataKind.OFFSET,
                "TOPIC": MetadataKind.TOPIC, "HEADERS": MetadataKind.HEADERS}
_DEBEZIUM_ITEMS = {"OP": MetadataKind.DEBEZIUM_OP, "TIMESTAMP": MetadataKind.DEBEZIUM_TIMESTAMP,
                   "TABLE": MetadataKind.DEBEZIUM_TABLE}


def parse_create_source(
    cursor: TokenCursor, start: TextSpan, *, materialized: bool,
) -> CreateSource:
    """Parse the rest of CREATE [MATERIALIZED] SOURCE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a name for the source")
    columns, primary_key = _columns(cursor) if cursor.sees_symbol("(") else ((), ())
    cursor.expect("FROM", "KAFKA")
    kafka, options = parse_kafka(cursor)
    if cursor.accept("WITH"):
        options += cursor.options()
    key_format, value_format, bare = _formats(cursor)
    include = _include(cursor)
    envelope, upsert_format = _envelope(cursor)
    if upsert_format is not None and key_format is None:
        key_format, bare = upsert_format, False
    _refuse_misplaced(cursor)
    if cursor.accept("WITH"):
        options += cursor.options()
    return CreateSource(
        name, kafka, columns, primary_key, key_format, value_format, bare, include, envelope,
        options, materialized, if_not_exists, cursor.span_from(start))


def _columns(cursor: TokenCursor) -> tuple[tuple[ColumnItem, ...], tuple[Name, ...]]:
    cursor.expect_symbol("(")
    columns: list[ColumnItem] = []
    primary_key: tuple[Name, ...] = ()
    while True:
        start = cursor.token.span
        if cursor.accept("PRIMARY", "KEY"):
            if primary_key:
                raise SqlError("Multiple key constraints not allowed", cursor.span_from(start),
                               hint="name all columns of the key in one PRIMARY KEY (…)")
            primary_key = cursor.names("a column")
            cursor.expect("NOT", "ENFORCED")
        else:
            columns.append(_column(cursor))
            if (columns[0].type is None) != (columns[-1].type is None):
                raise SqlError("cannot mix column definitions and column names",
                               cursor.span_from(start),
                               hint="give every column a type, or none of them")
        if not cursor.accept_symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(columns), primary_key


def _column(cursor: TokenCursor) -> ColumnItem:
    name = cursor.name("a column")
    if cursor.token.kind is not TokenKind.WORD:
        return ColumnItem(name)
    kind = parse_type(cursor)
    nullable = True
    if cursor.accept("NOT", "NULL"):
        nullable = False
    else:
        cursor.accept("NULL")
    return ColumnItem(name, kind, nullable)


# -- the cluster and the topics


def parse_kafka(cursor: TokenCursor) -> tuple[KafkaClause, tuple[Option, ...]]:
    """Parse BROKER or CONNECTION, the topics, and the other options in parentheses."""
    start = cursor.token.span
    broker, connection = cursor.broker, None
    omitted = cursor.sees("TOPIC") or cursor.sees("TOPICS") or cursor.sees_symbol("(")
    if broker is None or not omitted:
        if cursor.choose("BROKER", "CONNECTION") == "BROKER":
            broker = cursor.string("a broker's address")
        else:
            broker, connection = None, cursor.name("a connection", ObjectKind.CONNECTION)
    topics: tuple[str, ...] = ()
    pattern = None
    options: tuple[Option, ...] = ()
    topics_span = cursor.span_from(start)
    if cursor.sees_symbol("("):
        options = cursor.options()
        given = [option for option in options if option.name in TOPIC_OPTIONS]
        options = tuple(option for option in options if option not in given)
        if len(given) > 1:
            raise SqlError("Topics are given twice", given[1].span.to(given[1].value_span),
                           hint="write TOPICS ('a', 'b') for several")
        if not given:
            raise SqlError("KAFKA CONNECTION without TOPIC", cursor.span_from(start),
                           hint="write TOPIC 't' in the parentheses")
        topics, pattern = _topics_of_option(given[0])
        topics_span = given[0].value_span
    else:
        topics_start = cursor.token.span
        topics, pattern = _topics(cursor)
        topics_span = cursor.span_from(topics_start)
    return KafkaClause(broker, connection, topics, pattern, cursor.span_from(start),
                      topics_span), options


def _topics(cursor: TokenCursor) -> tuple[tuple[str, ...], str | None]:
    if cursor.accept("TOPICS"):
        return _topic_list(cursor), None
    if not cursor.accept("TOPIC"):
        raise cursor.unexpected("TOPIC", "TOPICS")
    if cursor.accept("PATTERN"):
        return (), cursor.string("a regular expression")
    if cursor.accept("LIST"):
        return _topic_list(cursor), None
    return (cursor.string("a topic's name"),), None


def _topic_list(cursor: TokenCursor) -> tuple[str, ...]:
    cursor.expect_symbol("(")
    topics = [cursor.string("a topic's name")]
    while cursor.accept_symbol(","):
        topics.append(cursor.string("a topic's name"))
    cursor.expect_symbol(")")
    return tuple(topics)


def _topics_of_option(option: Option) -> tuple[tuple[str, ...], str | None]:
    values = option.value if isinstance(option.value, tuple) else (option.value,)
    several = option.name in ("topics", "topic list")
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values) or not texts or (len(texts) > 1 and not several):
        raise SqlError(f"{option.name.upper()} must be {'a list of strings' if several else ''}"
                       f"{'' if several else 'a string'}", option.value_span,
                       hint="write TOPIC 't', TOPICS ('a', 'b') or TOPIC PATTERN 're'")
    if option.name == "topic pattern":
        return (), texts[0]
    return texts, None


# -- formats, INCLUDE and ENVELOPE


def _formats(cursor: TokenCursor) -> tuple[Format | None, Format | None, bool]:
    """The key's format, the value's, and whether they were given as one."""
    if cursor.accept("FORMAT"):
        return None, parse_format(cursor), True
    if cursor.accept("KEY", "FORMAT"):
        key = parse_format(cursor)
        if not cursor.accept("VALUE", "FORMAT"):
            raise cursor.unexpected("VALUE", hint="write VALUE FORMAT … after KEY FORMAT …")
        return key, parse_format(cursor), False
    return None, None, False


def _include(cursor: TokenCursor) -> tuple[Include, ...]:
    if not cursor.accept("INCLUDE"):
        return ()
    items = [_item(cursor)]
    while cursor.accept_symbol(","):
        items.append(_item(cursor))
    if any(cursor.sees(word) for word in ITEMS):
        raise cursor.unexpected("comma", hint="write commas between the items of INCLUDE")
    return tuple(items)


def _item(cursor: TokenCursor) -> Include:
    start = cursor.token.span
    kind: MetadataKind | None = None
    match cursor.choose(*ITEMS):
        case "KEY":
            pass
        case "HEADER":
            return _header(cursor, start)
        case "TIMESTAMP":
            typed = cursor.accept("TYPE")
            kind = MetadataKind.TIMESTAMP_TYPE if typed else MetadataKind.TIMESTAMP
        case "DEBEZIUM":
            kind = _DEBEZIUM_ITEMS[cursor.choose(*_DEBEZIUM_ITEMS)]
        case word:
            kind = _PLAIN_ITEMS[word]
    alias = cursor.name("a column's name") if cursor.accept("AS") else None
    return Include(kind, alias, span=cursor.span_from(start))


def _header(cursor: TokenCursor, start: TextSpan) -> Include:
    header = cursor.string("a header's key")
    if not cursor.accept("AS"):
        raise cursor.unexpected("AS", hint="name the column: HEADER 'key' AS name [type]")
    alias = cursor.name("a column's name")
    kind = None
    if cursor.token.kind is TokenKind.WORD and not (
            cursor.sees("ENVELOPE") or cursor.sees("WITH") or cursor.sees("INCLUDE")):
        kind = parse_type(cursor)
    return Include(MetadataKind.HEADER, alias, header, kind, cursor.span_from(start))


def _envelope(cursor: TokenCursor) -> tuple[EnvelopeClause | None, Format | None]:
    if not cursor.accept("ENVELOPE"):
        return None, None
    start = cursor.token.span
    key_format = None
    match cursor.choose("NONE", "DEBEZIUM", "UPSERT", "MATERIALIZE"):
        case "NONE":
            return EnvelopeClause(EnvelopeKind.NONE, span=start), None
        case "MATERIALIZE":
            return EnvelopeClause(EnvelopeKind.MATERIALIZE, span=start), None
        case "DEBEZIUM":
            if not cursor.accept("UPSERT"):
                return EnvelopeClause(EnvelopeKind.DEBEZIUM, span=start), None
            kind = EnvelopeKind.DEBEZIUM_UPSERT
        case _:
            kind = EnvelopeKind.UPSERT
            if cursor.accept("FORMAT"):
                key_format = parse_format(cursor)
    order_by, inline, error_name = _upsert_options(cursor)
    return EnvelopeClause(kind, order_by, inline, error_name, cursor.span_from(start)), key_format


def _upsert_options(cursor: TokenCursor) -> tuple[tuple[Name, ...], bool, Name | None]:
    order_by: tuple[Name, ...] = ()
    inline, error_name = False, None
    if not cursor.accept_symbol("("):
        return order_by, inline, error_name
    while True:
        start = cursor.token.span
        if cursor.choose("ORDER", "VALUE") == "ORDER":
            cursor.expect("BY")
            twice = bool(order_by)
            order_by = cursor.names("TIMESTAMP")
        else:
            twice = inline
            inline, error_name = True, _inline_errors(cursor)
        if twice:
            raise SqlError("This is given twice", cursor.span_from(start), hint="leave one out")
        if not cursor.accept_symbol(","):
            break
    cursor.expect_symbol(")")
    return order_by, inline, error_name


def _inline_errors(cursor: TokenCursor) -> Name | None:
    """Parse the rest of VALUE DECODING ERRORS [=] INLINE [AS n]; INLINE may be in parentheses."""
    cursor.expect("DECODING", "ERRORS")
    cursor.accept_symbol("=")
    wrapped = cursor.accept_symbol("(")
    if not cursor.accept("INLINE"):
        raise cursor.unexpected("one of INLINE")
    name = cursor.name("a column's name") if cursor.accept("AS") else None
    if wrapped:
        cursor.expect_symbol(")")
    return name


def _refuse_misplaced(cursor: TokenCursor) -> None:
    """Raise SqlError with the right order if a clause comes out of order."""
    order = "FORMAT or KEY FORMAT … VALUE FORMAT …, then INCLUDE, then ENVELOPE, then WITH"
    for word in ("INCLUDE", "FORMAT", "KEY", "VALUE", "ENVELOPE"):
        if cursor.sees(word):
            raise SqlError(f"Expected end of statement, found {word}", cursor.token.span,
                           hint=f"the order is {order}, each once")
