"""`make_format`: the format of a spec.  Rare formats are imported only when they are used."""

from quipu.pipeline.formats.bytes import BytesFormat
from quipu.pipeline.formats.contract import Format
from quipu.pipeline.formats.csv import CsvFormat
from quipu.pipeline.formats.json.format import JsonFormat
from quipu.pipeline.formats.regex import RegexFormat
from quipu.pipeline.formats.specs import (
    Avro,
    Bytes,
    Csv,
    Debezium,
    FormatSpec,
    Json,
    Materialize,
    Protobuf,
    Regex,
    Text,
)
from quipu.pipeline.formats.text import TextFormat


def make_format(spec: FormatSpec) -> Format:
    """The format of a spec; raises the error of the format if the spec is wrong."""
    match spec:
        case Text():
            return TextFormat(spec)
        case Bytes():
            return BytesFormat(spec)
        case Json():
            return JsonFormat(spec)
        case Csv():
            return CsvFormat(spec)
        case Regex():
            return RegexFormat(spec)
        case _:
            return _make_rare(spec)


def _make_rare(spec: Avro | Protobuf | Debezium | Materialize) -> Format:
    match spec:
        case Avro():
            from quipu.pipeline.formats.avro.format import AvroFormat  # noqa: PLC0415 loads TLS
            return AvroFormat(spec)
        case Protobuf():
            from quipu.pipeline.formats.protobuf.format import (  # noqa: PLC0415 as above
                ProtobufFormat,
            )
            return ProtobufFormat(spec)
        case Debezium():
            from quipu.pipeline.formats.debezium import DebeziumFormat  # noqa: PLC0415 as above
            return DebeziumFormat(spec)
        case Materialize():
            from quipu.pipeline.formats.materialize import (  # noqa: PLC0415 as above
                MaterializeFormat,
            )
            return MaterializeFormat(spec)
