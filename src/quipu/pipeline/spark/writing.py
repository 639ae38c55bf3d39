"""Rows into topics: `df.write.format("quipu")`, for batches and for streams.

    columns    value (text or bytes), and if wanted key, headers, topic, partition
    options    topic         all rows go there, whatever the column topic says
               kafka.NAME    settings of the producer, as Java's client or librdkafka spell them

The columns offset, timestamp and timestampType of what was read from a topic are passed over; any
other is an error.  The producer is idempotent: its retries write nothing twice.  A task that fails
after some of its rows were written writes them again, so rows arrive at least once, as they do
with Spark's Kafka sink.
"""

import atexit
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quipu.client.settings import ALIASES, REFUSED, parse_jaas
from quipu.model.errors import Kind, QuipuError, SettingError
from quipu.model.topics import InvalidTopicName, check_topic_name
from quipu.pipeline.reading.options import PREFIX, BadOption

FLUSH_SECONDS: Final = 1.0
ROWS_AT_ONCE: Final = 10_000
_BYTES: Final = ("string", "binary")
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "key": _BYTES, "value": _BYTES, "topic": ("string",), "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_PASSED_OVER: Final = frozenset({"offset", "timestamp", "timestampType"})
_OPTIONS: Final = ("topic", "includeHeaders")
_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
_JAVA_NAMES: Final = {java: ours for ours, java in ALIASES.items() if ours.startswith("ssl.")}


Headers = list[tuple[str, str | bytes | None]]


class NotWritten(QuipuError):
    """Rows that a broker did not take."""

    kind = Kind.RETRY


@dataclass(frozen=True)
class WriteOptions:
    """See above."""

    producer: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]  # of the rows, those that are written
    topic: str | None = None


@dataclass
class Written(WriterCommitMessage):
    """How many rows a task wrote."""

    rows: int


def write_options(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> WriteOptions:
    """Options and columns, checked together."""
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
        raise BadOption("where to write? Give the option topic, or a column topic")
    return WriteOptions(tuple(sorted(producer_settings(settings).items())), columns, topic)


def producer_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings as librdkafka spells them; it says itself which of them it does not know."""
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
    """One task's rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        sending = Sending(self._options)
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
    """Of `df.write`; there is nothing to do when all tasks are done."""


class StreamTopicWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Of `df.writeStream`; there is nothing to do when all tasks of a batch are done."""


class Sending:
    """Rows on their way through the process's producer."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._producer = _producer(options.producer)
        self._error: str | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand rows to the producer, and wait where it has no room."""
        columns = {name: batch.column(name) for name in self._options.columns}
        count = batch.num_rows
        values = _bytes(columns["value"])
        keys = _bytes(columns["key"]) if "key" in columns else [None] * count
        headers = _headers(columns["headers"]) if "headers" in columns else [None] * count
        topics = ([self._options.topic] * count if self._options.topic is not None
                  else columns["topic"].to_pylist())
        partitions = columns["partition"].to_pylist() if "partition" in columns else [None] * count
        if None in topics:
            raise NotWritten("a row has no topic: its column topic is null", kind=Kind.INVALID)
        for row in zip(topics, values, keys, partitions, headers, strict=True):
            self._send(*row)
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        """Wait until the brokers have everything."""
        while self._producer.flush(FLUSH_SECONDS):
            self._check()
        self._check()

    def abandon(self) -> None:
        """Throw away what is not sent yet; the producer is not used again."""
        _drop(self._options.producer)
        self._producer.purge()

    def _send(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int | None,
        headers: Headers | None,
    ) -> None:
        where = -1 if partition is None else partition
        while True:
            try:
                self._producer.produce(topic, value, key, where, headers=headers or [],
                                       on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(FLUSH_SECONDS)
                self._check()
            except KafkaException as error:
                raise NotWritten(f"{topic}: {_words(error.args[0])}") from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._error is None:
            self._error = f"{message.topic()}: {_words(error)}"

    def _check(self) -> None:
        if self._error is not None:
            raise NotWritten(self._error)


_producers: dict[tuple[int, tuple[tuple[str, str], ...]], Producer] = {}


def _producer(settings: tuple[tuple[str, str], ...]) -> Producer:
    """The process's producer with these settings: tasks that follow each other share it."""
    key = (os.getpid(), settings)
    if key not in _producers:
        chosen: dict[str, Any] = {
            "client.id": "quipu-writer", "enable.idempotence": "true", "linger.ms": "5",
            "queue.buffering.max.messages": "200000", "compression.type": "lz4",
            "log_level": "2", **dict(settings), "delivery.report.only.error": True}
        try:
            _producers[key] = Producer(chosen)
        except KafkaException as error:
            raise BadOption(f"{PREFIX}*: {_words(error.args[0])}") from None
    return _producers[key]


def _drop(settings: tuple[tuple[str, str], ...]) -> None:
    _producers.pop((os.getpid(), settings), None)


atexit.register(_producers.clear)  # while librdkafka's threads can still be joined


def _columns(schema: StructType) -> tuple[str, ...]:
    found = []
    for field in schema.fields:
        if field.name in _PASSED_OVER:
            continue
        allowed = _COLUMNS.get(field.name)
        if allowed is None:
            raise BadOption(f"no place for the column {field.name[:80]!r}; those that are written "
                            f"are {', '.join(_COLUMNS)}")
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


def _bytes(column: pa.Array) -> list[bytes | None]:
    binary: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return binary


def _headers(column: pa.Array) -> list[Headers | None]:
    return [None if row is None else [(pair["key"], pair["value"]) for pair in row]
            for row in column.to_pylist()]


def _words(error: object) -> str:
    return f"{error.str()} [{error.name()}]" if isinstance(error, KafkaError) else str(error)
