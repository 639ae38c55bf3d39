"""Rows into a Kafka topic, each version once, as far as that can be had without transactions.

Values are JSON objects.  With KEY columns the topic is a changelog by key: the newest row of a key,
or a null value where no row has it any more; consumers that know upserts see the view.  The key is
the column itself if it is one text or bytes column, else a JSON object.  Without KEY only a view
that never takes rows back can be written.

While the broker is away, one idempotent producer goes on trying: whatever the broker has taken and
not acknowledged, it recognizes, and order stays.  So nothing is lost and nothing is there twice.

After a crash of the driver there is another producer.  A version is always the same messages in the
same order for each partition, and every message says its version in a header.  Before a version is
begun, the mark remembers where the partitions end; what was cut short is found by reading from
there on, and only what is missing is written.

    mark    {"version": 6, "ends": {"0": 120, "1": 118}, "topic_id": "7f0c…"}

6 is whole; 7, if any, begins at those ends of that topic.  Once the topic was deleted and created
anew, all that was written is gone, and changes alone would mislead whoever reads them: the sink
stops with an error.  Marks of Quipu 0.3 have no id, and get one with their next version.

A broker that is asked what it has while a request of the producer that is gone still lies unread in
it may take that request afterwards; then messages of that one version are there twice.
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

from quipu.model.errors import Kind
from quipu.pipeline.durable import replace_file
from quipu.pipeline.spark.following import Step
from quipu.pipeline.spark.relations import DIFF
from quipu.pipeline.spark.sending import NotWritten

SECONDS_MAX = 60.0
FLUSH_SECONDS = 5.0  # without any progress; then somebody is told, and it is tried again
QUEUE_SECONDS = 1.0  # how long to wait for the producer to make room
HEADER = "quipu.version"
NO_ID = "A" * 22  # of brokers that tell none, as librdkafka writes it

Pair = tuple[bytes | None, bytes | None]


class _Letter(NamedTuple):
    """A message that is to be sent."""

    key: bytes | None
    value: bytes | None
    partition: int


class _Mark(NamedTuple):
    """See above."""

    version: int | None
    ends: Mapping[int, int]
    topic_id: str | None


class KafkaTarget:
    """See above; `settings` are the client's, with `bootstrap.servers`."""

    def __init__(
        self, name: str, topic: str, *, key: tuple[str, ...], settings: Mapping[str, str],
        mark: Path,
    ) -> None:
        self._topic = topic
        self._key = key
        self._mark = mark
        self._name = name.encode()
        self._settings = {**settings, "log_level": "0"}
        self._producer = self._new_producer()
        self._failed: KafkaError | None = None
        self._begun: int | None = None  # the version that is being written
        self._rest: deque[_Letter] = deque()  # what the producer does not have of it yet
        mark.parent.mkdir(parents=True, exist_ok=True)
        if not mark.exists():
            self._remember(None, self._topic_now(None))

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        return self._marked().version

    def write(self, step: Step) -> None:
        """Write what the topic does not have of a version."""
        label = b"%s %d" % (self._name, step.version)
        mark = self._marked()
        if self._begun != step.version:
            self._topic_now(mark.topic_id)
            self._rest = deque(self._missing(step, label, mark.ends))
            self._begun = step.version
        while self._rest and self._failed is None:
            self._produce(self._rest[0], label)
            self._rest.popleft()
        waiting = len(self._producer)
        while (left := self._producer.flush(FLUSH_SECONDS)) and self._failed is None:
            if left >= waiting:
                raise self._late()
            waiting = left
        if self._failed is not None:
            raise NotWritten(f"topic {self._topic}: {self._begin_again().str()}")
        self._remember(step.version, self._topic_now(mark.topic_id))
        self._begun = None

    def close(self) -> None:
        """Let go of what was not yet sent; the next target finds what is missing."""
        self._producer.purge()

    def _new_producer(self) -> Producer:
        return Producer({"linger.ms": 5, "message.timeout.ms": 0, **self._settings,
                         "enable.idempotence": True})

    def _begin_again(self) -> KafkaError:
        """A producer that was refused a message is given up: the others may not have gone out."""
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
                          "not take them")

    def _missing(
        self, step: Step, label: bytes, ends: Mapping[int, int],
    ) -> Iterator[_Letter]:
        """The messages of a version that the topic does not have."""
        there = self._found(label, ends)
        for number, (key, value) in enumerate(self._messages(step)):
            partition = _partition(key, number, len(ends))
            if there[partition] > 0:
                there[partition] -= 1
            else:
                yield _Letter(key, value, partition)

    def _marked(self) -> _Mark:
        found = json.loads(self._mark.read_text())
        version = found["version"]
        return _Mark(
            None if version is None else int(version),
            {int(partition): int(end) for partition, end in found["ends"].items()},
            found.get("topic_id"))

    def _topic_now(self, known: str | None) -> TopicDescription:
        """The topic as it is; raise if it is another one than the one of a known id."""
        admin = AdminClient({**self._settings})  # kept until it has answered
        told: TopicDescription = admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=SECONDS_MAX)[self._topic].result()
        now = str(told.topic_id)
        if known not in (None, NO_ID, now) and now != NO_ID:
            raise NotWritten(
                f"topic {self._topic} was deleted and created anew (its id was {known}, and is "
                f"{now}); what was written is gone: DROP the sink and create it again, which "
                "writes the view as a whole", kind=Kind.INVALID)
        return told

    def _remember(self, version: int | None, told: TopicDescription) -> None:
        """The version is whole; the next one begins where the partitions end now."""
        consumer = self._consumer()
        try:
            ends = {number: consumer.get_watermark_offsets(
                TopicPartition(self._topic, number), timeout=SECONDS_MAX)[1]
                for number in sorted(each.id for each in told.partitions)}
        finally:
            consumer.close()
        mark = {"version": version, "ends": ends, "topic_id": str(told.topic_id)}
        replace_file(self._mark, json.dumps(mark).encode())

    def _found(self, label: bytes, ends: Mapping[int, int]) -> dict[int, int]:
        """How many messages of a version each partition has."""
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

    def _produce(self, letter: _Letter, label: bytes) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS
        while True:
            try:
                self._producer.produce(
                    self._topic, letter.value, letter.key, letter.partition,
                    headers=[(HEADER, label)], on_delivery=self._delivered)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise self._late() from None
                self._producer.poll(QUEUE_SECONDS)
            except KafkaException as error:  # it is too large, say
                self._failed = error.args[0]
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = self._failed or error

    def _messages(self, step: Step) -> list[Pair]:
        """The rows that came, in order; then a null value for each key that has lost its row."""
        came: list[Pair] = []
        went: set[bytes | None] = set()
        for batch in step.batches:
            rows = batch.drop_columns([DIFF])
            keys = _keys(rows, self._key)
            for key, row, diff in zip(keys, rows.to_pylist(), batch.column(DIFF).to_pylist(),
                                      strict=True):
                if diff > 0:
                    came += [(key, json_of(row))] * diff
                else:
                    went.add(key)
        came.sort(key=_by_bytes)
        if not self._key:
            return came
        gone: list[Pair] = [(key, None) for key in went - {key for key, _ in came}]
        return came + sorted(gone, key=_by_bytes)


def _by_bytes(pair: Pair) -> tuple[bytes, bytes]:
    return pair[0] or b"", pair[1] or b""


def _partition(key: bytes | None, number: int, count: int) -> int:
    """By key as librdkafka chooses, or in turns."""
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
    """A row as JSON: bytes in base 64, numerics as numbers, times as ISO 8601 has them."""
    return orjson.dumps(row, default=_plain, option=orjson.OPT_UTC_Z)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(f"{value:f}")
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    raise TypeError(type(value).__name__)
