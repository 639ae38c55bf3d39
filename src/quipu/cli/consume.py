"""`quipu consume`: writes the records of a topic out, as lines or as JSON lines.

Without --group nothing is stored on the broker: partitions are read from --from to --to.
With --group the command joins the group, and commits offsets after it has written the records out,
never before.
"""

import base64
import json
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, BinaryIO, Final

import typer
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from quipu.cli import librdkafka
from quipu.cli.application import PLAIN
from quipu.cli.cluster import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    check_topics,
    connect,
    find_offsets,
    partitions_of,
)
from quipu.cli.dirty import DirtyReader
from quipu.cli.errors import CommandFailed
from quipu.cli.positions import HELP, Position, parse_position
from quipu.client.admin.topics import describe_topics
from quipu.client.cluster import Cluster
from quipu.model.ids import TopicPartition as Key

BATCH_COUNT_MAX: Final = 1000  # records taken from librdkafka and written out at a time
POLL_SECONDS: Final = 0.2  # how soon an interrupt is noticed
QUEUE_SIZE_MAX_KIB: Final = 16 << 10  # fetched ahead
_TIMESTAMP_NAMES: Final = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}
_IGNORED: Final = frozenset({  # librdkafka recovers from these by itself
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,  # noqa: SLF001
})  # fmt: skip

app = typer.Typer(**PLAIN)
Write = Callable[[Message], bytes]


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")],
    *,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="POSITION", help=f"First record: {HELP}. [beginning]"),
    ] = None,
    stop: Annotated[
        str | None, typer.Option("--to", metavar="POSITION", help="Stop before this position.")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--exit", help="At the end: wait for more records, or exit.")
    ] = True,
    group: Annotated[
        str | None, typer.Option(help="Consume as a member of this group and commit offsets.")
    ] = None,
    partition: Annotated[
        list[int], typer.Option(min=0, help="Read only this partition; may be repeated.")
    ] = [],  # noqa: B006 typer copies it
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Write KEY, this text, VALUE.")
    ] = None,
    dirty: Annotated[
        bool,
        typer.Option(
            "--dirty", help="Read the node at --bootstrap: all records, committed or not."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Annotated[bool, typer.Option("--json", help="Whole records as JSON lines.")] = False,
) -> None:
    """Write the records of a topic to standard output."""
    _check_group(group, assigned=bool(partition) or stop is not None, dirty=dirty)
    now_ms = int(time.time() * 1000)
    first = _position(start, "--from", now_ms)
    last = _position(stop, "--to", now_ms)
    if last is None and not follow:
        last = Position(before_end=0)
    write = json_line if as_json else value_line(key_separator)
    with connect(bootstrap) as cluster:
        if dirty:
            DirtyReader(cluster.any_connection(), topic, partition).run(first, last, write, number)
            return
        there = describe_topics(cluster)
        check_topics([topic], there)
        consumer = Consumer(_consumer_config(bootstrap, group))
        reader = Reader(consumer, write, sys.stdout.buffer, number)
        try:
            if group is not None:
                reader.subscribe(cluster, topic, first, exits=not follow)
            else:
                parts = partitions_of(there[topic], partition)
                reader.assign(*_bounds(cluster, parts, first, last))
            reader.run(commits=group is not None)
        except KafkaException as error:
            raise CommandFailed(f"cannot consume {topic}: {librdkafka.reason(error)}") from None
        finally:
            consumer.close()


class Reader:
    """Takes records from librdkafka and writes them out until there is nothing left to do."""

    def __init__(
        self, consumer: Consumer, write: Write, out: BinaryIO, count_max: int | None
    ) -> None:
        self._consumer = consumer
        self._write = write
        self._out = out
        self._left = count_max
        self._ends: dict[Key, int] = {}  # where to stop in each partition; empty: nowhere
        self._open: set[Key] = set()  # partitions that are not at their end yet
        self._assigned = False  # a member of a group waits for its partitions
        self._exits = False  # whether to stop at the ends of all partitions

    def assign(self, starts: dict[Key, int], ends: dict[Key, int]) -> None:
        """Read given partitions, each up to its end if it has one."""
        self._ends = ends
        self._assigned = True
        self._exits = bool(ends)
        self._open = {key for key, offset in starts.items() if offset < ends.get(key, offset + 1)}
        parts = [TopicPartition(*key, offset) for key, offset in sorted(starts.items())]
        self._consumer.assign([part for part in parts if _key(part) in self._open])

    def subscribe(
        self, cluster: Cluster, topic: str, first: Position | None, *, exits: bool
    ) -> None:
        """Join a group; read from `first`, or without it from the committed offsets."""
        self._exits = exits

        def on_assign(consumer: Consumer, parts: list[TopicPartition]) -> None:
            self._assigned = True
            self._open |= {_key(part) for part in parts}
            if first is not None:
                offsets = find_offsets(cluster, [_key(part) for part in parts], first)
                consumer.assign([TopicPartition(*key, offsets[key]) for key in sorted(offsets)])

        def on_revoke(_: Consumer, parts: list[TopicPartition]) -> None:
            self._assigned = False
            self._open -= {_key(part) for part in parts}

        self._consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)

    def run(self, *, commits: bool) -> None:
        """Read until the count or every end is reached; for ever if there is neither."""
        while self._left != 0 and not (self._exits and self._assigned and not self._open):
            size = min(self._left or BATCH_COUNT_MAX, BATCH_COUNT_MAX)
            messages = self._consumer.consume(size, POLL_SECONDS)
            taken: list[Message] = []
            try:
                taken += (message for message in messages if self._take(message))
            finally:  # also write and commit the records that came before an error
                self._out.write(b"".join(map(self._write, taken)))
                self._out.flush()
                if commits and taken:
                    self._commit(taken)

    def _take(self, message: Message) -> bool:
        """Is a message a record to write?  Also notes the partitions that are at their end."""
        key = Key(str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is not None:
            self._note(error, key)
            return False
        offset = message.offset()
        assert offset is not None
        end = self._ends.get(key)
        if end is not None and offset + 1 >= end:
            self._open.discard(key)
        if end is not None and offset >= end:
            return False
        if self._left is not None:
            self._left -= 1
        return True

    def _note(self, error: KafkaError, key: Key) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 librdkafka's own codes are named so
            if self._exits:
                self._open.discard(key)
        elif code not in _IGNORED:
            raise KafkaException(error)

    def _commit(self, messages: list[Message]) -> None:
        ends: dict[Key, int] = {}
        for message in messages:
            key = Key(str(message.topic()), int(message.partition() or 0))
            ends[key] = int(message.offset() or 0) + 1
        parts = [TopicPartition(*key, offset) for key, offset in sorted(ends.items())]
        self._consumer.commit(offsets=parts, asynchronous=False)


def json_line(message: Message) -> bytes:
    """A whole record; bytes that are not UTF-8 go into `..._base64` instead."""
    kind, timestamp = message.timestamp()
    row: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind in _TIMESTAMP_NAMES else None,
        "timestamp_type": _TIMESTAMP_NAMES.get(kind),
        **_text("key", message.key()),
        **_text("value", message.value()),
        "headers": [
            {"name": name, **_text("value", _bytes(value))} for name, value in _pairs(message)
        ],
    }
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def value_line(key_separator: str | None) -> Write:
    """Values as they are, one per line; the key before them if there is a separator."""
    if key_separator is None:
        return lambda message: (message.value() or b"") + b"\n"
    separator = key_separator.encode()
    return lambda message: (message.key() or b"") + separator + (message.value() or b"") + b"\n"


def _consumer_config(bootstrap: str, group: str | None) -> dict[str, Any]:
    return {
        **librdkafka.client_config(bootstrap),
        "group.id": group if group is not None else "quipu-consume",  # required even if unused
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "check.crcs": True,  # off by default in librdkafka: a damaged record must be reported
        "queued.max.messages.kbytes": QUEUE_SIZE_MAX_KIB,
        "fetch.wait.max.ms": 100,
    }


def _check_group(group: str | None, *, assigned: bool, dirty: bool) -> None:
    if group is not None and assigned:
        raise typer.BadParameter("a group has its partitions assigned; leave out --partition, --to")
    if group is not None and dirty:
        raise typer.BadParameter("a group reads committed records; leave out --dirty or --group")


def _bounds(
    cluster: Cluster, parts: list[Key], first: Position | None, last: Position | None
) -> tuple[dict[Key, int], dict[Key, int]]:
    """The first offset of each partition, and the end of each if `last` is given."""
    starts = find_offsets(cluster, parts, first or Position(after_start=0))
    return starts, find_offsets(cluster, parts, last) if last is not None else {}


def _position(text: str | None, option: str, now_ms: int) -> Position | None:
    if text is None:
        return None
    try:
        return parse_position(text, now_ms=now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _key(part: TopicPartition) -> Key:
    return Key(part.topic, part.partition)


def _pairs(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(data).decode()}
