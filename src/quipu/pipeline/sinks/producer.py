"""Sends rows to topics with librdkafka's producer, one per process and settings."""

import atexit
import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from quipu.model.errors import ErrorKind, QuipuError
from quipu.pipeline.reading.options import PREFIX, BadOption

FLUSH_SECONDS: Final = 1.0
_ANY: Final = -1  # the partition that lets librdkafka choose

Settings = tuple[tuple[str, str], ...]
Headers = list[tuple[str, str | bytes | None]]


class NotWritten(QuipuError):
    """A broker did not accept rows."""

    kind = ErrorKind.RETRY


class _Errors:
    """Records the first error of a producer's messages, for all tasks that share the producer."""

    def __init__(self) -> None:
        self.first: str | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.first is None:
            self.first = f"{message.topic()}: {_text(error)}"


class RowProducer:
    """Sends the rows of one task."""

    def __init__(self, settings: Settings, columns: Sequence[str], topic: str | None) -> None:
        self._settings = settings
        self._columns = columns  # the columns that are written
        self._topic = topic  # the topic of all rows; None: it is in the column topic
        self._producer, self._errors = _producer(settings)

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand rows to the producer, and wait while its queue is full."""
        columns = {name: batch.column(name) for name in self._columns}
        count = batch.num_rows
        nothing = [None] * count
        topics = [self._topic] * count if self._topic is not None else _topics(columns["topic"])
        keys = _bytes(columns["key"]) if "key" in columns else nothing
        partitions = (columns["partition"].fill_null(_ANY).to_pylist() if "partition" in columns
                      else [_ANY] * count)
        headers = _headers(columns["headers"]) if "headers" in columns else nothing
        produce = self._producer.produce
        for topic, value, key, partition, pairs in zip(
            topics, _bytes(columns["value"]), keys, partitions, headers, strict=True
        ):
            while True:
                try:
                    produce(topic, value, key, partition, headers=pairs)
                    break
                except BufferError:
                    self._producer.poll(FLUSH_SECONDS)
                    self._check()
                except KafkaException as error:
                    raise NotWritten(f"{topic}: {_text(error.args[0])}") from None
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        """Wait until the brokers have acknowledged all rows."""
        while self._producer.flush(FLUSH_SECONDS):
            self._check()
        self._check()

    def abandon(self) -> None:
        """Drop the rows that are not sent yet, and the producer with them."""
        _drop(self._settings)
        self._producer.purge()

    def _check(self) -> None:
        if self._errors.first is not None:
            raise NotWritten(self._errors.first)


_producers: dict[tuple[int, Settings], tuple[Producer, _Errors]] = {}


def _producer(settings: Settings) -> tuple[Producer, _Errors]:
    """The process's producer with these settings: tasks that follow each other share it."""
    key = (os.getpid(), settings)
    if key not in _producers:
        errors = _Errors()
        chosen: dict[str, Any] = {
            "client.id": "quipu-writer", "enable.idempotence": "true", "linger.ms": "5",
            "queue.buffering.max.messages": "500000", "queue.buffering.max.kbytes": "131072",
            "compression.type": "lz4", "log_level": "2", **dict(settings),
            "on_delivery": errors, "delivery.report.only.error": True}
        try:
            _producers[key] = Producer(chosen), errors
        except KafkaException as error:
            raise BadOption(f"{PREFIX}*: {_text(error.args[0])}") from None
    return _producers[key]


def _drop(settings: Settings) -> None:
    _producers.pop((os.getpid(), settings), None)


atexit.register(_producers.clear)  # while librdkafka's threads can still be joined


def _topics(column: pa.Array) -> list[str]:
    if column.null_count:
        raise NotWritten("a row has no topic: its column topic is null", kind=ErrorKind.INVALID)
    names: list[str] = column.to_pylist()
    return names


def _bytes(column: pa.Array) -> list[bytes | None]:
    binary: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return binary


def _headers(column: pa.Array) -> list[Headers | None]:
    return [None if row is None else [(pair["key"], pair["value"]) for pair in row]
            for row in column.to_pylist()]


def _text(error: object) -> str:
    return f"{error.str()} [{error.name()}]" if isinstance(error, KafkaError) else str(error)
