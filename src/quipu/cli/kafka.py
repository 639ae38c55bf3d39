"""Talking to a broker through librdkafka: connect soon or say why not, and turn its errors into
messages for people.

librdkafka retries in the background for ever; a person at a terminal wants to know after a few
seconds.  So every command first opens a plain connection (a refused one is known at once), then
asks for the cluster's metadata within `METADATA_SECONDS_MAX`.
"""

import logging
import socket
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from quipu.cli.errors import CommandFailed
from quipu.cli.positions import Position, resolve
from quipu.model.nearest import nearest

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONNECT_SECONDS_MAX: Final = 3.0
METADATA_SECONDS_MAX: Final = 5.0
REQUEST_SECONDS_MAX: Final = 30.0

T = TypeVar("T")

Bootstrap = Annotated[
    str, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Address of a broker.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]


class Bounds(NamedTuple):
    """What a partition holds: [start, end) in offsets."""

    start: int
    end: int


def client_config(bootstrap: str) -> dict[str, Any]:
    """Settings that every client of the command line shares."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "quipu-cli",
        "socket.connection.setup.timeout.ms": 5000,
        "logger": _silent(),  # what matters is told by the command itself
    }


def connect(bootstrap: str) -> tuple[AdminClient, ClusterMetadata]:
    """A client of a cluster that answers, and its metadata."""
    check_reachable(bootstrap)
    admin = AdminClient(client_config(bootstrap))
    try:
        metadata = admin.list_topics(timeout=METADATA_SECONDS_MAX)
    except KafkaException as error:
        raise CommandFailed(
            f"{bootstrap} accepts connections but does not answer as a Kafka broker "
            f"({reason(error)}); check the address given with --bootstrap"
        ) from None
    return admin, metadata


def check_reachable(bootstrap: str) -> None:
    """Fail at once, with the reason, if no address of `bootstrap` accepts a connection."""
    problems = []
    for address in bootstrap.split(","):
        host, port = split_address(address.strip())
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX).close()
        except OSError as error:
            problems.append(f"{address.strip()} ({error.strerror or error})")
        else:
            return
    raise CommandFailed(
        f"no broker answers at {', '.join(problems)}; start one with `quipu start`, "
        "or give the address of a running one with --bootstrap HOST:PORT"
    )


def result(future: "Future[T]", doing: str) -> T:
    """What the broker answered; a refusal is told as `doing` and the broker's words."""
    try:
        return future.result(timeout=REQUEST_SECONDS_MAX)
    except KafkaException as error:
        raise CommandFailed(f"{doing}: {reason(error)}") from None
    except TimeoutError:
        raise CommandFailed(f"{doing}: no answer within {REQUEST_SECONDS_MAX:.0f} s") from None


def reason(error: Exception | KafkaError) -> str:
    """The broker's or librdkafka's own words, with the name of the error."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        return str(inner)
    return f"{inner.str()} [{inner.name()}]"


def check_topics(names: Iterable[str], metadata: ClusterMetadata) -> None:
    """Every name must be a topic; else say which one was probably meant."""
    for name in names:
        topic = metadata.topics.get(name)
        if topic is None:
            raise CommandFailed(unknown("topic", name, metadata.topics))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`there is no topic ordres; did you mean orders?`"""
    names = sorted(known)
    near = nearest(name, names)
    if near:
        hint = f"did you mean {near}?"
    elif what == "topic":
        hint = f"create it with `quipu topic create {name}`, or see `quipu topic list`"
    else:
        hint = f"see `quipu {what} list`"
    return f"there is no {what} {name}; {hint}"


def partitions_of(topic: str, metadata: ClusterMetadata) -> list[TopicPartition]:
    """Every partition of a topic that exists."""
    return [TopicPartition(topic, index) for index in sorted(metadata.topics[topic].partitions)]


def bounds(
    admin: AdminClient, partitions: Sequence[TopicPartition]
) -> dict[tuple[str, int], Bounds]:
    """First and next offset of each partition, as a consumer sees them."""
    starts = offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    for (topic, partition), start in starts.items():
        if start < 0 or ends[topic, partition] < 0:
            raise CommandFailed(f"the broker did not tell the offsets of {topic}-{partition}")
    # Records may be deleted between the two questions: the end is never before the start.
    return {key: Bounds(start, max(start, ends[key])) for key, start in starts.items()}


def offsets(
    admin: AdminClient, partitions: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    """Look up one kind of offset in many partitions; negative where there is none."""
    if not partitions:
        return {}
    plain = [TopicPartition(each.topic, each.partition) for each in partitions]
    futures = admin.list_offsets(dict.fromkeys(plain, spec), request_timeout=REQUEST_SECONDS_MAX)
    return {
        (each.topic, each.partition): result(future, f"offsets of {each.topic}-{each.partition}")
        .offset
        for each, future in futures.items()
    }  # fmt: skip


def find_offsets(
    admin: AdminClient, partitions: Sequence[TopicPartition], position: Position
) -> dict[tuple[str, int], int]:
    """The offset that `position` means in each partition."""
    limits = bounds(admin, partitions)
    timed: Mapping[tuple[str, int], int] = {}
    if position.timestamp_ms is not None:
        timed = offsets(admin, partitions, OffsetSpec.for_timestamp(position.timestamp_ms))
    return {
        key: resolve(position, start=start, end=end, timed=timed.get(key, -1))
        for key, (start, end) in limits.items()
    }


def assignments(words: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` given to `option`, as often as one likes."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise typer.BadParameter("write KEY=VALUE", param_hint=option)  # it may be a secret
        found[key] = value
    return found


def split_address(address: str) -> tuple[str, int]:
    """One HOST:PORT of --bootstrap."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"write HOST:PORT, not {address!r}", param_hint="--bootstrap")
    return host.strip("[]"), int(port)


def _silent() -> logging.Logger:
    logger = logging.getLogger("librdkafka")
    logger.disabled = True
    return logger
