"""`quipu consume`: writes the records of a topic out, as lines or as JSON lines.

Without --group nothing is stored on the broker: partitions are read from --from to --to.
With --group the command joins the group, and commits offsets after it has written the records out,
never before.

Partitions without a leader are left out, and read as soon as they have one; if the command ends
before that, it fails.  While it waits for a leader or a coordinator, it says so (waiting.py).
"""

import base64
import json
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, BinaryIO, Final

import typer
from confluent_kafka import (
    OFFSET_STORED,
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
    offline_text,
    partitions_of,
)
from quipu.cli.dirty import DirtyReader
from quipu.cli.errors import CommandFailed
from quipu.cli.output import note
from quipu.cli.positions import HELP, Position, parse_position
from quipu.cli.waiting import WaitReporter, why_not_read
from quipu.client.admin.topics import describe_topics
from quipu.client.cluster import Cluster
from quipu.model.ids import TopicPartition as Key

BATCH_COUNT_MAX: Final = 1000  # records taken from librdkafka and written out at a time
FIND_SECONDS: Final = 2.0  # between two looks for leaders of offline partitions
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
        check_topics([topic], there := describe_topics(cluster))
        parts, find = partitions_of(there[topic], partition), PartitionFinder(cluster, first, last)
        consumer = Consumer(_consumer_config(bootstrap, group))
        waits = WaitReporter(lambda: why_not_read(bootstrap, topic, partition, group))
        reader = Reader(consumer, write, sys.stdout.buffer, number, waits)
        try:
            if group is None:
                reader.assign(parts, find)
            else:
                reader.subscribe(cluster, topic, first, exits=not follow)
            reader.run(commits=group is not None)
        except KafkaException as error:
            raise CommandFailed(f"cannot consume {topic}: {librdkafka.reason(error)}") from None
        finally:
            consumer.close()


class PartitionFinder:
    """Finds where to begin and to stop in the partitions that have a leader."""

    def __init__(self, cluster: Cluster, first: Position | None, last: Position | None) -> None:
        self._cluster = cluster
        self._first, self._last = first or Position(after_start=0), last
        self.has_ends = last is not None

    def bounds(self, parts: list[Key]) -> tuple[dict[Key, int], dict[Key, int]]:
        """The first offset of each partition, and the end of each if there is a last position."""
        starts = find_offsets(self._cluster, parts, self._first)
        if self._last is None:
            return starts, {}
        ends = find_offsets(self._cluster, starts, self._last)
        return {key: starts[key] for key in ends}, ends

    def led(self, parts: list[Key]) -> list[Key]:
        """Those of `parts` that have a leader now."""
        self._cluster.refresh({part.topic for part in parts})
        return [part for part in parts if self._cluster.leader(part).node_id >= 0]


class Reader:
    """Takes records from librdkafka and writes them out until there is nothing left to do."""

    def __init__(
        self, consumer: Consumer, write: Write, out: BinaryIO, count_max: int | None,
        waits: WaitReporter | None = None,
    ) -> None:
        self._consumer = consumer
        self._waits = waits or WaitReporter(lambda: None)
        self.offline: list[Key] = []  # partitions to read that have had no leader so far
        self._finder: PartitionFinder | None = None  # None: a group assigns partitions
        self._find_next = 0.0  # when to look for leaders of the offline ones again
        self._write = write
        self._out = out
        self._left = count_max
        self._ends: dict[Key, int] = {}  # where to stop in each partition; empty: nowhere
        self._open: set[Key] = set()  # partitions that are not at their end yet
        self._assigned = False  # a member of a group waits for its partitions
        self._exits = False  # whether to stop at the ends of all partitions

    def assign(self, wanted: list[Key], finder: PartitionFinder) -> None:
        """Read given partitions, each up to its end if it has one."""
        self._finder, self._assigned, self._exits = finder, True, finder.has_ends
        self._add(wanted, wanted)
        if self.offline:
            note(offline_text(self.offline))

    def _add(self, wanted: list[Key], led: list[Key]) -> None:
        """Read `led` ones of `wanted`, besides the partitions that are read already."""
        assert self._finder is not None
        starts, ends = self._finder.bounds(led)
        self.offline = [key for key in wanted if key not in starts]
        self._ends |= ends
        new = {key for key, offset in starts.items() if offset < ends.get(key, offset + 1)}
        self._open |= new
        if new:
            self._consumer.incremental_assign(
                [TopicPartition(*key, starts[key]) for key in sorted(new)])

    def _look_for_leaders(self) -> None:
        """Read partitions that were offline, once they have a leader."""
        if self._finder is None or not self.offline or time.monotonic() < self._find_next:
            return
        if led := self._finder.led(self.offline):
            self._add(self.offline, led)
        self._find_next = time.monotonic() + FIND_SECONDS

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
                consumer.assign([  # one that is offline continues at its committed offset
                    TopicPartition(*key, offsets.get(key, OFFSET_STORED))
                    for key in sorted(map(_key, parts))])

        def on_revoke(_: Consumer, parts: list[TopicPartition]) -> None:
            self._assigned = False
            self._open -= {_key(part) for part in parts}

        self._consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)

    def run(self, *, commits: bool) -> None:
        """Read until the count or every end is reached; for ever if there is neither."""
        while self._left != 0 and not (self._exits and self._assigned and not self._open):
            size = min(self._left or BATCH_COUNT_MAX, BATCH_COUNT_MAX)
            messages = self._consumer.consume(size, POLL_SECONDS)
            if messages:
                self._waits.progressed()
            else:
                self._waits.waited()
            self._look_for_leaders()
            taken: list[Message] = []
            try:
                taken += (message for message in messages if self._take(message))
            finally:  # also write and commit the records that came before an error
                self._out.write(b"".join(map(self._write, taken)))
                self._out.flush()
                if commits and taken:
                    self._commit(taken)
        if self.offline and self._left != 0:
            raise CommandFailed(f"not all was read: {offline_text(self.offline)}")

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
