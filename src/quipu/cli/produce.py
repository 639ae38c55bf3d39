"""`quipu produce`: sends each line of the input as a record.

Input is read line by line, and no faster than the broker takes it: memory is bounded by
`QUEUE_SIZE_MAX_KIB` and one line.  A record counts only when the broker has acknowledged it.  While
none is acknowledged, the command says what it waits for (waiting.py).

Records without a key go to partitions that have a leader.  A key decides the partition: its records
wait for a leader for DELIVERY_SECONDS_MAX, and fail after that.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from quipu.cli import librdkafka
from quipu.cli.application import PLAIN
from quipu.cli.cluster import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    assignments,
    check_topics,
    connect,
    offline_text,
    partitions_of,
)
from quipu.cli.errors import CommandFailed
from quipu.cli.output import count, note, print_json, printable
from quipu.cli.waiting import WaitReporter, Why, watching, why_not_written
from quipu.client.admin.topics import TopicDescription, describe_topics
from quipu.model.ids import TopicPartition

LINE_SIZE_MAX: Final = 64 << 20
QUEUE_SIZE_MAX_KIB: Final = 64 << 10
DELIVERY_SECONDS_MAX: Final = 30
INTERRUPTED_SECONDS_MAX: Final = 3
FAILURES_SHOWN_MAX: Final = 5
PROGRESS_SECONDS: Final = 0.2
STICKY_COUNT: Final = 1000  # records without a key that go to one partition in turn

app = typer.Typer(**PLAIN)


class Acks(StrEnum):
    """The replicas that must have a record before it counts as delivered."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class CompressionOption(StrEnum):
    """The values of --compression."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Delivery:
    """Counts delivered records, and failed ones by their reasons."""

    def __init__(self) -> None:
        self.delivered_count = 0
        self.delivered_size = 0
        self.failed_count = 0
        self.failures: dict[str, int] = {}  # by reason
        self.offsets: dict[int, tuple[int, int]] = {}  # by partition: first and last
        self.late: set[int] = set()  # partitions that have not acknowledged records in time
        self._lock = threading.Lock()  # the thread that waits calls it too

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Count one record: librdkafka calls this for its delivery report."""
        with self._lock:
            self._count(error, message)

    def _count(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed_count += 1
            if error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001 librdkafka's name
                self.late.add(-1 if (late := message.partition()) is None else late)
            why = librdkafka.reason(error)
            if why in self.failures or len(self.failures) < FAILURES_SHOWN_MAX:
                self.failures[why] = self.failures.get(why, 0) + 1
            return
        self.delivered_count += 1
        self.delivered_size += len(message)
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None or offset < 0:  # acks=0: the offset is unknown
            return
        first, last = self.offsets.get(partition, (offset, offset))
        self.offsets[partition] = (min(first, offset), max(last, offset))


class OnlinePartitions:
    """Chooses partitions for records without a key, where some partitions have no leader."""

    def __init__(self, topic: TopicDescription | None) -> None:
        parts = () if topic is None else topic.partitions
        self.offline = [each.partition for each in parts if each.leader is None]
        self._online = [each.partition for each in parts if each.leader is not None]
        self._chosen = 0

    def choose(self, key: bytes | None) -> dict[str, int]:
        """The partition of a record, as an option of librdkafka; none if it is to choose."""
        if key is not None or not self.offline or not self._online:
            return {}
        self._chosen += 1  # many records to each in turn, so that they make large batches
        return {"partition": self._online[self._chosen // STICKY_COUNT % len(self._online)]}


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")],
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read this file instead of standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", help="Text between key and value in each line."),
    ] = None,
    header: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE", help="Header of every record; may be repeated."),
    ] = [],  # noqa: B006 typer copies it
    partition: Annotated[
        int | None, typer.Option(min=0, help="Send to this partition. [by key, else any]")
    ] = None,
    acks: Annotated[
        Acks, typer.Option(help="Replicas that acknowledge a record: none, the leader, or all.")
    ] = Acks.ALL,
    compression: Annotated[
        CompressionOption, typer.Option(help="How batches are compressed.")
    ] = CompressionOption.NONE,
    idempotent: Annotated[
        bool,
        typer.Option("--idempotent", help="Store records in order and once, also after retries."),
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it does not exist.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send lines of standard input, or of a file, as records."""
    if key_separator == "":
        raise typer.BadParameter("must not be empty", param_hint="--key-separator")
    if idempotent and acks is not Acks.ALL:
        raise typer.BadParameter("needs --acks all", param_hint="--idempotent")
    headers = [(name, value.encode()) for name, value in _headers(header)]
    wanted = [] if partition is None else [partition]
    online = _online_partitions(bootstrap, topic, wanted, create=create)
    config = {
        "acks": acks.value,
        "compression.type": compression.value,
        "enable.idempotence": idempotent,
    }
    options: dict[str, Any] = {"headers": headers} if headers else {}
    if partition is not None:
        options["partition"] = partition
    with _open(file) as source:
        delivery = send(
            Producer({**_producer_config(bootstrap), **config}),
            topic,
            ((_split(line, number, key_separator)) for number, line in _lines(source)),
            options,
            choose=online.choose,
            why=lambda: why_not_written(bootstrap, topic, wanted),
        )
    _summarise(topic, delivery, as_json=as_json, why_late=lambda: why_not_written(
        bootstrap, topic, [each for each in delivery.late if each >= 0]))


def _online_partitions(
    bootstrap: str, topic: str, wanted: list[int], *, create: bool
) -> OnlinePartitions:
    """The partitions of the topic, which must exist unless it is to be created."""
    with connect(bootstrap) as cluster:
        there = describe_topics(cluster)
    if not create:
        check_topics([topic], there)
        partitions_of(there[topic], wanted)
    online = OnlinePartitions(None if wanted else there.get(topic))
    if online.offline:
        note(f"{offline_text([TopicPartition(topic, each) for each in online.offline])}; "
             "records without a key go to the others")
    return online


def send(
    producer: Producer,
    topic: str,
    records: Iterator[tuple[bytes | None, bytes]],
    options: dict[str, Any],
    *,
    choose: Callable[[bytes | None], dict[str, int]] = lambda _: {},
    why: Why = lambda: None,
) -> Delivery:
    """Produce `records` and wait until each is acknowledged or has failed.

    Bad input ends the run; the records read before it are still delivered, and reported.  While
    none is acknowledged, `why` says what is wrong.
    """
    delivery = Delivery()
    waits, counted = WaitReporter(why), 0

    def look() -> None:
        nonlocal counted
        producer.poll(0)
        now = delivery.delivered_count + delivery.failed_count
        if now != counted or not len(producer):
            counted = now
            waits.progressed()
        else:
            waits.waited()

    with watching(look):
        _send(producer, topic, records, delivery, lambda key: {**options, **choose(key)})
    return delivery


def _send(
    producer: Producer, topic: str, records: Iterator[tuple[bytes | None, bytes]],
    delivery: Delivery, options: Callable[[bytes | None], dict[str, Any]],
) -> None:
    show_progress = _progress(delivery)
    try:
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivery, **options(key))
                    break
                except BufferError:  # the queue is full: let the broker catch up
                    producer.poll(0.1)
                    show_progress()
            producer.poll(0)
            show_progress()
    except KafkaException as error:  # librdkafka refused the record itself
        delivery.failed_count += 1
        delivery.failures[librdkafka.reason(error)] = 1
    except KeyboardInterrupt:
        producer.flush(INTERRUPTED_SECONDS_MAX)  # deliver the lines before the interrupt
        raise
    except CommandFailed as error:
        producer.flush(DELIVERY_SECONDS_MAX)
        raise CommandFailed(
            f"{error}; {count(delivery.delivered_count, 'record')} before it delivered"
        ) from None
    while producer.flush(PROGRESS_SECONDS) > 0:
        show_progress()
    show_progress(last=True)


def _producer_config(bootstrap: str) -> dict[str, Any]:
    return {
        **librdkafka.client_config(bootstrap),
        "linger.ms": 5,
        "delivery.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
        "message.max.bytes": LINE_SIZE_MAX,  # the broker decides how large a record may be
        "queue.buffering.max.kbytes": QUEUE_SIZE_MAX_KIB,
        "partitioner": "murmur2_random",  # the partition of a key is that of a Java producer
    }


def _headers(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        yield from assignments([word], "--header").items()


def _open(file: Path | None) -> BinaryIO:
    if file is None:
        if sys.__stdin__ is None:  # closed by the process that started the command
            raise CommandFailed("standard input is closed; give lines to it, or --file FILE")
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None


def _lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers and without their ends; never more than one in memory."""
    number = 0
    while line := source.readline(LINE_SIZE_MAX + 2):
        number += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > LINE_SIZE_MAX:
            raise CommandFailed(f"line {number} is longer than {LINE_SIZE_MAX} bytes")
        yield number, line


def _split(line: bytes, number: int, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        start = printable(line[:40].decode(errors="replace"))
        raise CommandFailed(f"line {number} has no key separator {separator!r}: {start!r}")
    return key, value


def _progress(delivery: Delivery) -> Callable[..., None]:
    """A function that shows the count in one line of a terminal; elsewhere it does nothing."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        return lambda **_: None
    begun = time.monotonic()
    shown = begun

    def show(*, last: bool = False) -> None:
        nonlocal shown
        now = time.monotonic()
        if last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - shown >= PROGRESS_SECONDS:
            shown = now
            rate = delivery.delivered_count / (now - begun)
            text = f"\r{delivery.delivered_count:,} records, {rate:,.0f}/s\x1b[K"
            print(text, end="", file=sys.stderr, flush=True)

    return show


def _summarise(
    topic: str, delivery: Delivery, *, as_json: bool, why_late: Callable[[], str]
) -> None:
    parts = [
        {"partition": partition, "first_offset": first, "last_offset": last}
        for partition, (first, last) in sorted(delivery.offsets.items())
    ]
    if as_json:
        print_json({
            "topic": topic, "records": delivery.delivered_count, "bytes": delivery.delivered_size,
            "failed": delivery.failed_count, "partitions": parts,
        })  # fmt: skip
    else:
        places = ", ".join(
            f"{topic}-{part['partition']} at {part['first_offset']}..{part['last_offset']}"
            for part in parts[:8]
        )
        more = f" and {len(parts) - 8} more" if len(parts) > 8 else ""
        sent = f"{count(delivery.delivered_count, 'record')}, {delivery.delivered_size:,} bytes"
        note(f"produced {sent}{': ' if places else ''}{places}{more}")
    if delivery.failed_count:
        reasons = "; ".join(f"{why} ({times} x)" for why, times in delivery.failures.items())
        why = f"; {why_late()}" if delivery.late else ""
        raise CommandFailed(
            f"{count(delivery.failed_count, 'record')} not delivered: {reasons}{why}")
