"""Pass: resolves FORMAT clauses to specs and their columns (I10).

Schemas are read from files and registries here, and every format is constructed once, so that an
error of a format is an error of CREATE SOURCE, not of the first query.  The column of a key that
is one value (TEXT, BYTES, JSON) is called `key`; that of a value `text` or `data`.
"""

import re
from dataclasses import replace
from typing import assert_never

from quipu.pipeline.formats.avro.schema import AvroSchemaError, parse
from quipu.pipeline.formats.casts import CannotCast
from quipu.pipeline.formats.contract import Format
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.protobuf.format import ProtobufSchemaError
from quipu.pipeline.formats.regex import InvalidPattern
from quipu.pipeline.formats.specs import (
    Avro,
    Bytes,
    Csv,
    FormatSpec,
    Json,
    Protobuf,
    Regex,
    Text,
)
from quipu.pipeline.plan import registries
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.external_facts import Unreachable
from quipu.pipeline.plan.options import boolean
from quipu.pipeline.source import EnvelopeKind
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import (
    AvroClause,
    BytesClause,
    CsvClause,
    JsonClause,
    ProtobufClause,
    RegexClause,
    RegistryReference,
    TextClause,
)
from quipu.pipeline.sql.statements import Format as Written
from quipu.pipeline.sql.text import TextSpan

KEY = "key"
_FORMATS_HINT = "add FORMAT TEXT, BYTES, JSON, CSV WITH n COLUMNS, REGEX, AVRO or PROTOBUF"


def resolve_value(draft: Draft) -> Draft:
    """Find the value's format; its columns are found in `rows`."""
    written = draft.statement.value_format
    if written is None:
        raise SqlError("Source format must be specified", draft.statement.kafka.span,
                       hint=_FORMATS_HINT)
    return replace(draft, value=_spec(draft, written, is_key=False))


def resolve_key(draft: Draft) -> Draft:
    """Find the key's format and columns, if the key is used."""
    if not needs_key(draft):
        return draft
    statement = draft.statement
    written = statement.key_format
    spec: FormatSpec | None = None
    if written is not None:
        spec = _spec(draft, written, is_key=True)
    elif statement.bare_format and isinstance(statement.value_format, AvroClause | ProtobufClause):
        written = statement.value_format
        spec = _registered_key(draft, statement.value_format)
    if spec is None or written is None:
        return draft
    return replace(draft, key=spec, key_fields=made(spec, written.span).columns)


def needs_key(draft: Draft) -> bool:
    """Does the envelope or INCLUDE use keys?  If not, they are not read (I4)."""
    if draft.envelope.kind is EnvelopeKind.MATERIALIZE:
        return False  # a message holds many rows: its key is not a key of rows
    return (draft.envelope.kind is not EnvelopeKind.NONE
            or any(item.kind is None for item in draft.statement.include))


def made(spec: FormatSpec, span: TextSpan) -> Format:
    """The format of a spec; raises SqlError at the span if the spec is wrong."""
    try:
        return make_format(spec)
    except InvalidPattern as error:
        raise SqlError(f"parsing regex: {error}", span,
                       hint="correct the regular expression") from None
    except AvroSchemaError as error:
        raise SqlError(f"validating avro schema: {error}", span,
                       hint="correct the schema") from None
    except ProtobufSchemaError as error:
        raise SqlError(f"validating protobuf schema: {error}", span,
                       hint="correct the message's name or the descriptor set") from None
    except CannotCast as error:
        raise SqlError(f"JSON cannot be read as {error}", span,
                       hint="name other columns, or give the key another format") from None


def _spec(draft: Draft, written: Written, *, is_key: bool) -> FormatSpec:
    match written:
        case TextClause():
            return Text(KEY) if is_key else Text()
        case BytesClause():
            return Bytes(KEY) if is_key else Bytes()
        case JsonClause():
            return Json(name=KEY) if is_key else Json()
        case CsvClause():
            return _csv(written)
        case RegexClause():
            return Regex(written.pattern)
        case AvroClause(registry=RegistryReference() as reference):
            return registries.avro(draft, reference, is_key=is_key)
        case AvroClause():
            return Avro(_avro_schema(draft, written), framed=_framed(draft, written))
        case ProtobufClause(registry=RegistryReference() as reference):
            return registries.protobuf(draft, reference, is_key=is_key)
        case ProtobufClause():
            return Protobuf(_descriptors(draft, written), written.message or "",
                            framed=_wire_format(draft, default=False))
        case _:
            assert_never(written)


def _registered_key(draft: Draft, written: AvroClause | ProtobufClause) -> FormatSpec | None:
    """The key's format of a bare FORMAT, if the registry has a schema for keys."""
    if written.registry is None or not registries.has_key(draft, written.registry):
        return None
    if isinstance(written, AvroClause):
        return registries.avro(draft, written.registry, is_key=True)
    return registries.protobuf(draft, written.registry, is_key=True)


def _csv(written: CsvClause) -> Csv:
    delimiter = written.delimiter
    if not delimiter.isascii():
        raise SqlError("CSV delimiter must be an ASCII character", written.delimiter_span,
                       hint="write DELIMITED BY ';', for example")
    if delimiter in '"\r\n\0':
        raise SqlError("CSV cannot be delimited by quotes or ends of lines",
                       written.delimiter_span, hint="write DELIMITED BY ';', for example")
    if isinstance(written.columns, int):
        return Csv(tuple(f"column{number + 1}" for number in range(written.columns)), delimiter)
    return Csv(tuple(name.text for name in written.columns), delimiter)


def _avro_schema(draft: Draft, written: AvroClause) -> str:
    if written.file is None:
        return written.schema or ""
    try:
        text = _file(draft, written.file, written.span).decode()
        parse(text)
    except UnicodeDecodeError:
        raise SqlError("The schema's file is no UTF-8 text", written.span,
                       hint="name a file that holds an Avro schema in JSON") from None
    except AvroSchemaError:  # not shown: it may quote a file that the user may not read
        raise SqlError("The schema's file holds no Avro schema", written.span,
                       hint="write the schema itself, USING SCHEMA '…', to see what is wrong "
                            "with it") from None
    return text


def _descriptors(draft: Draft, written: ProtobufClause) -> bytes:
    if written.file is not None:
        return _file(draft, written.file, written.span)
    text = written.schema or ""
    digits = text[2:] if text.startswith("\\x") else ""
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", digits):
        raise SqlError("A descriptor set is '\\x' and hexadecimal digits, two for each byte",
                       written.span,
                       hint="write SCHEMA FILE 'path' of what protoc --descriptor_set_out wrote")
    return bytes.fromhex(digits)


def _file(draft: Draft, path: str, span: TextSpan) -> bytes:
    try:
        return draft.facts.file(path)
    except Unreachable as error:
        raise SqlError(f"The schema's file cannot be read: {error}", span,
                       hint="check the path; it is read on the driver's machine") from error


def _framed(draft: Draft, written: AvroClause) -> bool:
    for option in written.options:
        if option.name != "confluent wire format":
            raise SqlError(f"unexpected parameters for FORMAT AVRO: {option.name}", option.span,
                           hint="there is CONFLUENT WIRE FORMAT = TRUE or FALSE")
        return boolean(option)
    return _wire_format(draft, default=True)


def _wire_format(draft: Draft, *, default: bool) -> bool:
    option = draft.options.get("confluent wire format")
    return default if option is None else boolean(option)
