"""Writes rows to topics: `df.write.format("quipu")`, for batches and for streams.

    columns    value (text or bytes), and optionally key, headers, topic, partition
    options    topic         the topic of all rows; it overrides the column topic
               kafka.NAME    settings of the producer, named as in Java's client or librdkafka

The columns offset, timestamp and timestampType, which a read has, are ignored; any other column is
an error.  The producer is idempotent: its retries write nothing twice.  A task that fails after
some of its rows were written writes them again, so rows arrive at least once, as with Spark's Kafka
sink.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quipu.client.settings import ALIASES, REFUSED, parse_jaas
from quipu.model.errors import SettingError
from quipu.model.topics import InvalidTopicName, check_topic_name
from quipu.pipeline.reading.options import PREFIX, BadOption

ROWS_AT_ONCE: Final = 10_000
_BYTES: Final = ("string", "binary")
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "key": _BYTES, "value": _BYTES, "topic": ("string",), "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_IGNORED_COLUMNS: Final = frozenset({"offset", "timestamp", "timestampType"})
_OPTIONS: Final = ("topic", "includeHeaders")
_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
_JAVA_NAMES: Final = {java: ours for ours, java in ALIASES.items() if ours.startswith("ssl.")}


@dataclass(frozen=True)
class WriteOptions:
    """The checked options and columns of a write."""

    producer: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]  # the columns that are written
    topic: str | None = None


@dataclass
class Written(WriterCommitMessage):
    """How many rows a task wrote."""

    rows: int


def write_options(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> WriteOptions:
    """Check options and columns; raises BadOption for a wrong one."""
    if overwrite:
        raise BadOption("a topic cannot be overwritten; use mode('append')")
    topic: str | None = None
    settings: dict[str, str] = {}
    for name, value in given.items():
        folded = name.lower()
        if folded.startswith(PREFIX):
            settings[folded.removeprefix(PREFIX)] = value
        elif folded == "topic":
            topic = _topic(value)
        elif folded != "includeheaders" and folded not in _OF_SPARK:
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadOption(f"unknown option {name[:100]}{hint}")
    columns = _columns(schema)
    if topic is None and "topic" not in columns:
        raise BadOption("no topic to write to: give the option topic, or a column topic")
    return WriteOptions(tuple(sorted(producer_settings(settings).items())), columns, topic)


def producer_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings named as in librdkafka, which itself refuses unknown ones."""
    if "bootstrap.servers" not in given and "metadata.broker.list" not in given:
        raise BadOption("kafka.bootstrap.servers is missing: brokers as HOST:PORT,HOST:PORT")
    settings: dict[str, str] = {}
    for name, value in given.items():
        if name in REFUSED:
            raise BadOption(f"{PREFIX}{name} cannot be set: {REFUSED[name]}")
        if name == "sasl.jaas.config":
            try:
                settings["sasl.username"], settings["sasl.password"] = parse_jaas(value)
            except SettingError as error:
                raise BadOption(f"{PREFIX}{error}") from None
        elif name == "ssl.keystore.location":  # of Java: the key is in the same file
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = value
        elif not re.fullmatch(r"ssl\.(trust|key)store\.(type|password)", name):
            settings[_JAVA_NAMES.get(name, name)] = value
    return settings


class _TopicWriter:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        # Most processes that load this module only read, and librdkafka takes a while to load.
        from quipu.pipeline.sinks.producer import RowProducer  # noqa: PLC0415 see above

        sending = RowProducer(self._options.producer, self._options.columns, self._options.topic)
        rows = 0
        try:
            for batch in iterator:
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    sending.send(batch.slice(start, ROWS_AT_ONCE))
                rows += batch.num_rows
            sending.finish()
        except BaseException:
            sending.abandon()
            raise
        return Written(rows)


class BatchTopicWriter(_TopicWriter, DataSourceArrowWriter):
    """The writer of `df.write`; nothing is left to do when all tasks are done."""


class StreamTopicWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`; nothing is left to do when a batch's tasks are done."""


def _columns(schema: StructType) -> tuple[str, ...]:
    found = []
    for field in schema.fields:
        if field.name in _IGNORED_COLUMNS:
            continue
        allowed = _COLUMNS.get(field.name)
        if allowed is None:
            raise BadOption(f"the column {field.name[:80]!r} cannot be written; those that can are "
                            f"{', '.join(_COLUMNS)}")
        if field.dataType.simpleString() not in allowed:
            raise BadOption(f"the column {field.name} must be {' or '.join(allowed)}, "
                            f"not {field.dataType.simpleString()}")
        found.append(field.name)
    if "value" not in found:
        raise BadOption("a column value is needed, text or bytes")
    return tuple(found)


def _topic(name: str) -> str:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise BadOption(f"topic: {error}") from None
    return name
