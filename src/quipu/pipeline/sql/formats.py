"""The grammar of formats and of column types."""

from quipu.pipeline.sql.cursor import TokenCursor
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import TokenKind
from quipu.pipeline.sql.secrets import option_name
from quipu.pipeline.sql.statements import (
    AvroClause,
    BytesClause,
    CsvClause,
    Format,
    JsonClause,
    Name,
    Option,
    ProtobufClause,
    RegexClause,
    RegistryReference,
    Strategy,
    TextClause,
    TypeName,
)
from quipu.pipeline.sql.text import TextSpan

CSV_COLUMNS_MAX = 10_000
TYPE_DEPTH_MAX = 32
TYPE_ARGUMENT_MAX = 1_000_000
SCHEMA_ID_MAX = 2**31 - 1
FORMATS = ("AVRO", "PROTOBUF", "REGEX", "CSV", "JSON", "TEXT", "BYTES")


def parse_format(cursor: TokenCursor) -> Format:
    start = cursor.token.span
    match cursor.choose(*FORMATS):
        case "TEXT":
            return TextClause(start)
        case "BYTES":
            return BytesClause(start)
        case "JSON":
            if cursor.accept("ARRAY"):
                raise SqlError("JSON ARRAY format in sources not yet supported",
                               cursor.span_from(start),
                               hint="write FORMAT JSON and explode the array in a view")
            return JsonClause(start)
        case "CSV":
            return _csv(cursor, start)
        case "REGEX":
            pattern_span = cursor.token.span
            return RegexClause(cursor.string("a regular expression"), pattern_span)
        case "AVRO":
            return _avro(cursor, start)
        case _:
            return _protobuf(cursor, start)


def _csv(cursor: TokenCursor, start: TextSpan) -> CsvClause:
    cursor.expect("WITH")
    if cursor.accept("HEADER") or cursor.accept("HEADERS"):
        columns: int | tuple[Name, ...] = cursor.names("a column's name")
    else:
        columns = _csv_count(cursor)
    if not cursor.accept("DELIMITED", "BY"):
        return CsvClause(columns, span=cursor.span_from(start))
    delimiter_span = cursor.token.span
    delimiter = cursor.string("a one-character string")
    if len(delimiter) != 1:
        raise SqlError("The delimiter must be a one-character string", delimiter_span,
                       hint="write DELIMITED BY ';', for example")
    return CsvClause(columns, delimiter, cursor.span_from(start), delimiter_span)


def _csv_count(cursor: TokenCursor) -> int:
    at = cursor.token
    if at.kind is not TokenKind.NUMBER:
        raise cursor.unexpected("a number of columns", "HEADER",
                                hint="write CSV WITH 3 COLUMNS or CSV WITH HEADER (a, b, c)")
    count = cursor.integer("a number of columns", maximum=CSV_COLUMNS_MAX)
    if count == 0:
        raise SqlError("CSV has at least one column", at.span, hint="write CSV WITH 1 COLUMN")
    if not cursor.accept("COLUMN"):
        cursor.expect("COLUMNS")
    return count


def _avro(cursor: TokenCursor, start: TextSpan) -> AvroClause:
    cursor.expect("USING")
    if cursor.choose("CONFLUENT", "SCHEMA") == "CONFLUENT":
        registry = _registry(cursor, start)
        return AvroClause(registry=registry, span=cursor.span_from(start))
    schema, file = _schema_or_file(cursor, "a schema in JSON")
    options: tuple[Option, ...] = ()
    if cursor.sees_symbol("(") or _sees_wire_format_option(cursor):
        cursor.accept("WITH")
        options = cursor.options()
    return AvroClause(schema=schema, file=file, options=options, span=cursor.span_from(start))


def _sees_wire_format_option(cursor: TokenCursor) -> bool:
    """Is WITH next, and part of the format: `… SCHEMA '…' WITH (confluent_wire_format = …)`?"""
    tokens = cursor.piece.tokens[cursor.index:cursor.index + 5]
    if len(tokens) < 3 or not (tokens[0].is_word("WITH") and tokens[1].is_symbol("(")):
        return False
    name = option_name(" ".join(token.value for token in tokens[2:]))
    return name.startswith("confluent wire format")


def _schema_or_file(cursor: TokenCursor, what: str) -> tuple[str | None, str | None]:
    if cursor.accept("FILE"):
        return None, cursor.string("a path")
    return cursor.string(what), None


def _protobuf(cursor: TokenCursor, start: TextSpan) -> ProtobufClause:
    if cursor.accept("USING"):
        cursor.expect("CONFLUENT")
        registry = _registry(cursor, start)
        return ProtobufClause(registry=registry, span=cursor.span_from(start))
    cursor.expect("MESSAGE")
    message = cursor.string("a message's name")
    cursor.expect("USING", "SCHEMA")
    schema, file = _schema_or_file(cursor, "a descriptor set, '\\x' and hexadecimal digits,")
    return ProtobufClause(message=message, schema=schema, file=file,
                          span=cursor.span_from(start))


def _registry(cursor: TokenCursor, start: TextSpan) -> RegistryReference:
    """Parse the clause after CONFLUENT."""
    cursor.expect("SCHEMA", "REGISTRY")
    url = name = None
    if cursor.accept("CONNECTION"):
        name = cursor.name("a connection")
    elif cursor.token.kind is TokenKind.STRING:
        url = cursor.string("an address")
    else:
        raise cursor.unexpected("CONNECTION", "an address",
                                hint="write CONNECTION and its name, or 'http://host:8081'")
    options: tuple[Option, ...] = ()
    if cursor.sees_symbol("("):
        options = cursor.options()
    key = value = None
    if cursor.accept("SEED"):
        if cursor.accept("KEY", "SCHEMA"):
            key = _inline(cursor)
        cursor.expect("VALUE", "SCHEMA")
        value = _inline(cursor)
    # KEY FORMAT … VALUE FORMAT: what follows the key's registry may be VALUE FORMAT.
    if cursor.sees("KEY", "STRATEGY") and cursor.accept("KEY", "STRATEGY"):
        key = _strategy(cursor)
    if cursor.sees("VALUE", "STRATEGY") and cursor.accept("VALUE", "STRATEGY"):
        value = _strategy(cursor)
    return RegistryReference(url, name, options, key, value, cursor.span_from(start))


def _inline(cursor: TokenCursor) -> Strategy:
    start = cursor.token.span
    return Strategy(schema=cursor.string("a schema in JSON"), span=start)


def _strategy(cursor: TokenCursor) -> Strategy:
    start = cursor.token.span
    match cursor.choose("ID", "LATEST", "INLINE"):
        case "ID":
            number = cursor.integer("a schema's number", maximum=SCHEMA_ID_MAX)
            return Strategy(id=number, span=cursor.span_from(start))
        case "INLINE":
            return _inline(cursor)
        case _:
            return Strategy(span=start)


def parse_type(cursor: TokenCursor, depth: int = 0) -> TypeName:
    """Parse a type; `[]` after it makes a list type."""
    start = cursor.token.span
    if depth > TYPE_DEPTH_MAX:
        raise SqlError(f"Types are nested more than {TYPE_DEPTH_MAX} deep", start,
                       hint="flatten the record")
    kind = _simple_or_nested(cursor, depth)
    while cursor.accept_symbol("["):
        cursor.expect_symbol("]")
        depth += 1
        if depth > TYPE_DEPTH_MAX:
            raise SqlError(f"Types are nested more than {TYPE_DEPTH_MAX} deep", start)
        kind = TypeName("list", parts=(("", kind),), span=cursor.span_from(start))
    return kind


def _simple_or_nested(cursor: TokenCursor, depth: int) -> TypeName:
    start = cursor.token.span
    if cursor.token.kind is not TokenKind.WORD:
        raise cursor.unexpected("a type", hint="write text, bigint, boolean, timestamptz, …")
    name = cursor.take().value.lower()
    if name == "double" and cursor.accept("PRECISION"):
        name = "double precision"
    elif name == "timestamp" and (cursor.sees("WITH", "TIME") or cursor.sees("WITHOUT", "TIME")):
        name += f" {cursor.take().value.lower()} time zone"
        cursor.expect("TIME", "ZONE")
    elif name in ("record", "map") and cursor.accept_symbol("("):
        parts = _parts(cursor, depth, named=name == "record")
        if name == "map" and len(parts) != 2:
            raise SqlError("A map has a type of keys and a type of values",
                           cursor.span_from(start), hint="write map(text, bigint), for example")
        return TypeName(name, parts=parts, span=cursor.span_from(start))
    arguments = []
    if cursor.accept_symbol("("):
        arguments.append(cursor.integer("a size", maximum=TYPE_ARGUMENT_MAX))
        while cursor.accept_symbol(","):
            arguments.append(cursor.integer("a size", maximum=TYPE_ARGUMENT_MAX))
        cursor.expect_symbol(")")
    return TypeName(name, tuple(arguments), span=cursor.span_from(start))


def _parts(cursor: TokenCursor, depth: int, *, named: bool) -> tuple[tuple[str, TypeName], ...]:
    parts = []
    while True:
        name = cursor.name("a field's name").text if named else ""
        parts.append((name, parse_type(cursor, depth + 1)))
        if not cursor.accept_symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(parts)
