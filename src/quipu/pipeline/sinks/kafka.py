"""A Kafka topic as the target of a sink; each version is written once, without transactions.

Values are JSON objects.  With KEY columns the topic is a changelog by key: the newest row of a key,
or a null value if there is no row of that key any more; consumers that apply upserts see the view.
The key is the column itself if it is one text or bytes column, else a JSON object.  Without KEY
only a view that never removes rows can be written.

While the broker is down, one idempotent producer keeps retrying: the broker recognizes messages
that it has stored but not acknowledged, and keeps their order.  So no message is lost or doubled.

After a crash of the driver there is another producer.  A version always has the same messages in
the same order for each partition, and every message has its version in a header.  Before a version
is written, the checkpoint has the ends of the partitions; after an interruption the messages from
there on are read, and only the missing ones are written (pipeline.S1).

    checkpoint    {"version": 6, "ends": {"0": 120, "1": 118}, "topic_id": "7f0c…"}

Version 6 is complete; version 7, if any, begins at those ends of that topic.  If the topic was
deleted and created again, everything written is gone, and the changes alone would mislead its
consumers: the sink stops with an error.  Checkpoints of Quipu 0.3 have no topic id, and get one
with their next version.

One case is left: a request of the crashed producer may still lie unread in the broker while the
topic is read; if the broker stores it afterwards, messages of that one version are there twice.
"""

import base64
import datetime as dt
import decimal
import json
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, TopicDescription
from confluent_kafka.error import KafkaException

from quipu.model.errors import ErrorKind
from quipu.pipeline.durable import replace_file
from quipu.pipeline.sinks.producer import NotWritten
from quipu.pipeline.views.changes import DIFF, ViewChange

SECONDS_MAX = 60.0
FLUSH_SECONDS = 5.0  # without any progress; then it is an error, and tried again
QUEUE_SECONDS = 1.0  # how long to wait for the producer to make room
HEADER = "quipu.version"
NO_ID = "A" * 22  # librdkafka's text for the id of a broker without topic ids

Pair = tuple[bytes | None, bytes | None]


class _SinkMessage(NamedTuple):
    """A message to send, and its partition."""

    key: bytes | None
    value: bytes | None
    partition: int


class _TopicCheckpoint(NamedTuple):
    """The content of the checkpoint file, which the module's docstring describes."""

    version: int | None
    ends: Mapping[int, int]
    topic_id: str | None


class KafkaTarget:
    """A topic; `settings` are those of librdkafka, with `bootstrap.servers`."""

    def __init__(
        self, name: str, topic: str, *, key: tuple[str, ...], settings: Mapping[str, str],
        checkpoint: Path,
    ) -> None:
        self._topic = topic
        self._key = key
        self._checkpoint = checkpoint
        self._name = name.encode()
        self._settings = {**settings, "log_level": "0"}
        self._producer = self._new_producer()
        self._failed: KafkaError | None = None
        self._begun: int | None = None  # the version that is being written
        self._rest: deque[_SinkMessage] = deque()  # its messages that the producer does not have
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        if not checkpoint.exists():
            self._record(None, self._topic_now(None))

    def position(self) -> int | None:
        """The last version that was written as a whole; None before the first."""
        return self._last_checkpoint().version

    def write(self, change: ViewChange) -> None:
        """Send the messages of a version that the topic does not have, then record the version."""
        label = b"%s %d" % (self._name, change.version)
        last = self._last_checkpoint()
        if self._begun != change.version:
            self._topic_now(last.topic_id)
            self._rest = deque(self._missing(change, label, last.ends))
            self._begun = change.version
        while self._rest and self._failed is None:
            self._produce(self._rest[0], label)
            self._rest.popleft()
        waiting = len(self._producer)
        while (left := self._producer.flush(FLUSH_SECONDS)) and self._failed is None:
            if left >= waiting:
                raise self._late()
            waiting = left
        if self._failed is not None:
            raise NotWritten(f"topic {self._topic}: {self._replace_producer().str()}")
        self._record(change.version, self._topic_now(last.topic_id))
        self._begun = None

    def close(self) -> None:
        """Drop the messages that were not sent yet; the next target finds what is missing."""
        self._producer.purge()

    def _new_producer(self) -> Producer:
        return Producer({"linger.ms": 5, "message.timeout.ms": 0, **self._settings,
                         "enable.idempotence": True})

    def _replace_producer(self) -> KafkaError:
        """Replace a producer one of whose messages was refused: others may not have been sent."""
        self._producer.flush(FLUSH_SECONDS)
        self._producer.purge()
        assert self._failed is not None
        error, self._failed = self._failed, None
        self._producer = self._new_producer()
        self._begun = None
        return error

    def _late(self) -> NotWritten:
        waiting = len(self._producer) + len(self._rest)
        return NotWritten(f"topic {self._topic}: {waiting} messages wait for a broker that does "
                          "not accept them")

    def _missing(
        self, change: ViewChange, label: bytes, ends: Mapping[int, int],
    ) -> Iterator[_SinkMessage]:
        """The messages of a version that the topic does not have."""
        there = self._found(label, ends)
        for number, (key, value) in enumerate(self._messages(change)):
            partition = _partition(key, number, len(ends))
            if there[partition] > 0:
                there[partition] -= 1
            else:
                yield _SinkMessage(key, value, partition)

    def _last_checkpoint(self) -> _TopicCheckpoint:
        found = json.loads(self._checkpoint.read_text())
        version = found["version"]
        return _TopicCheckpoint(
            None if version is None else int(version),
            {int(partition): int(end) for partition, end in found["ends"].items()},
            found.get("topic_id"))

    def _topic_now(self, known: str | None) -> TopicDescription:
        """The topic as it is now; raises NotWritten if its id is not the known one."""
        admin = AdminClient({**self._settings})  # must be referenced until it has responded
        found: TopicDescription = admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=SECONDS_MAX)[self._topic].result()
        now = str(found.topic_id)
        if known not in (None, NO_ID, now) and now != NO_ID:
            raise NotWritten(
                f"topic {self._topic} was deleted and created anew (its id was {known}, and is "
                f"{now}); what was written is gone: DROP the sink and create it again, which "
                "writes the view as a whole", kind=ErrorKind.INVALID)
        return found

    def _record(self, version: int | None, topic: TopicDescription) -> None:
        """Record in the checkpoint that a version is complete, and the ends of the partitions."""
        consumer = self._consumer()
        try:
            ends = {number: consumer.get_watermark_offsets(
                TopicPartition(self._topic, number), timeout=SECONDS_MAX)[1]
                for number in sorted(each.id for each in topic.partitions)}
        finally:
            consumer.close()
        content = {"version": version, "ends": ends, "topic_id": str(topic.topic_id)}
        replace_file(self._checkpoint, json.dumps(content).encode())

    def _found(self, label: bytes, ends: Mapping[int, int]) -> dict[int, int]:
        """The number of messages of a version that each partition has."""
        there = dict.fromkeys(ends, 0)
        consumer = self._consumer()
        try:
            for partition, start in ends.items():
                where = TopicPartition(self._topic, partition, start)
                _, end = consumer.get_watermark_offsets(where, timeout=SECONDS_MAX)
                if end > start:
                    consumer.assign([where])
                    there[partition] = sum(_label(message) == label
                                           for message in _read(consumer, end))
        finally:
            consumer.close()
        return there

    def _consumer(self) -> Consumer:
        return Consumer({
            **self._settings, "group.id": "quipu-sink", "enable.auto.commit": False,
            "enable.partition.eof": True, "isolation.level": "read_uncommitted",
            "check.crcs": True,
        })

    def _produce(self, message: _SinkMessage, label: bytes) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS
        while True:
            try:
                self._producer.produce(
                    self._topic, message.value, message.key, message.partition,
                    headers=[(HEADER, label)], on_delivery=self._delivered)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise self._late() from None
                self._producer.poll(QUEUE_SECONDS)
            except KafkaException as error:  # for example, it is too large
                self._failed = error.args[0]
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = self._failed or error

    def _messages(self, change: ViewChange) -> list[Pair]:
        """Messages for the added rows, in order; then null values for keys without a row."""
        added: list[Pair] = []
        removed: set[bytes | None] = set()
        for batch in change.batches:
            rows = batch.drop_columns([DIFF])
            keys = _keys(rows, self._key)
            for key, row, diff in zip(keys, rows.to_pylist(), batch.column(DIFF).to_pylist(),
                                      strict=True):
                if diff > 0:
                    added += [(key, json_of(row))] * diff
                else:
                    removed.add(key)
        added.sort(key=_by_bytes)
        if not self._key:
            return added
        gone: list[Pair] = [(key, None) for key in removed - {key for key, _ in added}]
        return added + sorted(gone, key=_by_bytes)


def _by_bytes(pair: Pair) -> tuple[bytes, bytes]:
    return pair[0] or b"", pair[1] or b""


def _partition(key: bytes | None, number: int, count: int) -> int:
    """The partition of a message: by its key as librdkafka chooses, or round-robin."""
    return (number if key is None else zlib.crc32(key)) % count


def _read(consumer: Consumer, end: int) -> Iterator[Message]:
    """The messages of the assigned partition, up to `end`."""
    while True:
        message = consumer.poll(SECONDS_MAX)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return
            raise KafkaException(error)
        yield message
        offset = message.offset()
        if offset is not None and offset >= end - 1:
            return


def _label(message: Message) -> bytes | None:
    value = dict(message.headers() or []).get(HEADER)
    return value.encode() if isinstance(value, str) else value


def _keys(rows: pa.RecordBatch, names: tuple[str, ...]) -> list[bytes | None]:
    if not names:
        return [None] * rows.num_rows
    columns = rows.select(list(names))
    kind = columns.schema.field(0).type
    if len(names) == 1 and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return [value.encode() if isinstance(value, str) else value
                for value in columns.column(0).to_pylist()]
    return [json_of(row) for row in columns.to_pylist()]


def json_of(row: Any) -> bytes:  # noqa: ANN401 whatever Arrow's columns hold
    """A row as JSON: bytes in base64, numerics as numbers, times in ISO 8601."""
    return orjson.dumps(row, default=_plain, option=orjson.OPT_UTC_Z)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(f"{value:f}")
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    raise TypeError(type(value).__name__)
