"""Rows on their way through librdkafka's producer, one per process and settings."""

import atexit
import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from quipu.model.errors import Kind, QuipuError
from quipu.pipeline.reading.options import PREFIX, BadOption

FLUSH_SECONDS: Final = 1.0

Settings = tuple[tuple[str, str], ...]
Headers = list[tuple[str, str | bytes | None]]


class NotWritten(QuipuError):
    """Rows that a broker did not take."""

    kind = Kind.RETRY


class Sending:
    """Rows on their way through the process's producer."""

    def __init__(self, settings: Settings, columns: Sequence[str], topic: str | None) -> None:
        self._settings = settings
        self._columns = columns  # of the rows, those that are written
        self._topic = topic  # of all rows; None: each row says
        self._producer = _producer(settings)
        self._error: str | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand rows to the producer, and wait where it has no room."""
        columns = {name: batch.column(name) for name in self._columns}
        count = batch.num_rows
        values = _bytes(columns["value"])
        keys = _bytes(columns["key"]) if "key" in columns else [None] * count
        headers = _headers(columns["headers"]) if "headers" in columns else [None] * count
        topics = ([self._topic] * count if self._topic is not None
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
        _drop(self._settings)
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


_producers: dict[tuple[int, Settings], Producer] = {}


def _producer(settings: Settings) -> Producer:
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


def _drop(settings: Settings) -> None:
    _producers.pop((os.getpid(), settings), None)


atexit.register(_producers.clear)  # while librdkafka's threads can still be joined


def _bytes(column: pa.Array) -> list[bytes | None]:
    binary: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return binary


def _headers(column: pa.Array) -> list[Headers | None]:
    return [None if row is None else [(pair["key"], pair["value"]) for pair in row]
            for row in column.to_pylist()]


def _words(error: object) -> str:
    return f"{error.str()} [{error.name()}]" if isinstance(error, KafkaError) else str(error)
