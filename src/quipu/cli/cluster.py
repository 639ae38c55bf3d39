"""Connects to the cluster at --bootstrap; checks names of topics and finds offsets in it.

Commands about topics, groups, chains and the quorum use `quipu.client`; only produce and consume
use librdkafka (librdkafka.py).  Every command connects first, so that it can report within a few
seconds that no broker responds.  It tries all addresses of --bootstrap, or of QUIPU_BOOTSTRAP.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import typer

from quipu.cli.errors import CommandFailed
from quipu.cli.positions import Position, resolve
from quipu.client.admin.routing import unreachable
from quipu.client.admin.topics import TopicDescription
from quipu.client.cluster import EARLIEST, LATEST, Cluster
from quipu.client.errors import ConnectionFailed, NotKafka, ResponseTooLate
from quipu.client.settings import client_settings
from quipu.model.ids import TopicPartition
from quipu.model.nearest import nearest
from quipu.model.settings_types import Address

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CLIENT_ID: Final = "quipu-cli"
CONNECT_SECONDS_MAX: Final = 3.0
NEGOTIATE_SECONDS_MAX: Final = 8.0  # to connect, and to ask which requests are served
RESPONSE_SECONDS_MAX: Final = 35.0  # longer than a node's own time-out of a request
CALL_SECONDS_MAX: Final = 30.0  # after which a transient failure is not retried
NAMES_MAX: Final = 10  # partitions that a message names

Bootstrap = Annotated[
    str, typer.Option("--bootstrap", "-b", metavar="HOST:PORT,...", envvar="QUIPU_BOOTSTRAP",
                      help="Addresses of brokers, tried in turn.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")]


class Bounds(NamedTuple):
    """The offsets [start, end) of a partition's records."""

    start: int
    end: int


def connect(bootstrap: str, *, call_seconds: float = CALL_SECONDS_MAX) -> Cluster:
    """A client of the cluster at --bootstrap; raises `CommandFailed` if no broker responds.

    A call that fails for a reason that may pass is repeated for `call_seconds`.
    """
    given = addresses(bootstrap)
    cluster = Cluster(client_settings({
        "bootstrap.servers": ",".join(map(str, given)),
        "client.id": CLIENT_ID,
        "socket.connection.setup.timeout.ms": str(int(CONNECT_SECONDS_MAX * 1000)),
        "request.timeout.ms": str(int(RESPONSE_SECONDS_MAX * 1000)),
        "default.api.timeout.ms": str(int(call_seconds * 1000)),
    }))
    problems: list[ConnectionFailed] = []
    for address in given:
        try:
            cluster.connection_at(address, deadline=time.monotonic() + NEGOTIATE_SECONDS_MAX)
        except ConnectionFailed as error:
            problems.append(error)
        else:
            return cluster
    if all(isinstance(problem, NotKafka | ResponseTooLate) for problem in problems):
        raise CommandFailed(
            f"{_places(problems)} accepts connections but does not respond as a Kafka broker; "
            "check the address given with --bootstrap")
    raise CommandFailed(
        f"{unreachable(problems)}; start one with `quipu start`, or give the addresses of running "
        "ones with --bootstrap HOST:PORT,HOST:PORT or QUIPU_BOOTSTRAP")


def addresses(bootstrap: str) -> list[Address]:
    """The addresses of --bootstrap, each once; empty places between commas are passed over."""
    words = [word.strip() for word in bootstrap.split(",") if word.strip()]
    return list(dict.fromkeys(map(_address, words or [bootstrap])))


def _places(problems: Iterable[ConnectionFailed]) -> str:
    return ", ".join(f"{problem.at} ({problem.why})" for problem in problems)


def check_topics(names: Iterable[str], known: Collection[str]) -> None:
    """Raise `CommandFailed` for a name that is no topic, with the nearest one that is."""
    for name in names:
        if name not in known:
            raise CommandFailed(unknown("topic", name, known))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name: `there is no topic ordres; did you mean orders?`"""
    near = nearest(name, sorted(known))
    if near:
        hint = f"did you mean {near}?"
    elif what == "topic":
        hint = f"create it with `quipu topic create {name}`, or see `quipu topic list`"
    else:
        hint = f"see `quipu {what} list`"
    return f"there is no {what} {name}; {hint}"


def partitions_of(topic: TopicDescription, wanted: Sequence[int] = ()) -> list[TopicPartition]:
    """The wanted partitions of a topic, or all of them; raises if one does not exist."""
    every = [each.partition for each in topic.partitions]
    for index in wanted:
        if index not in every:
            raise no_partition(topic, str(index))
    return [TopicPartition(topic.name, index) for index in sorted(set(wanted)) or every]


def no_partition(topic: TopicDescription, word: str) -> CommandFailed:
    """The error for a partition that a topic does not have."""
    return CommandFailed(
        f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}, and no {word}")


def bounds(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Bounds]:
    """First and next offset of each partition, as a consumer sees them; offline ones are left out.

    A partition is offline if it has no leader for longer than an election takes.
    """
    starts = cluster.offsets_where_led(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.offsets_where_led(dict.fromkeys(starts, LATEST))
    for partition in ends:
        if starts[partition].offset < 0 or ends[partition].offset < 0:
            raise CommandFailed(f"the broker did not report the offsets of {partition}")
    # Records may be deleted between the two requests: the end is never before the start.
    return {each: Bounds(starts[each].offset, max(starts[each].offset, end.offset))
            for each, end in ends.items()}


def offline_text(partitions: Collection[TopicPartition]) -> str:
    """What to tell of partitions that no node leads."""
    names = [str(each) for each in sorted(partitions)]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    verb, whose = ("is", "it has") if len(names) == 1 else ("are", "they have")
    return (f"{', '.join(names[:NAMES_MAX])}{more} {verb} offline: {whose} no leader; "
            "see `quipu chain describe`")


def find_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """The offset that `position` means in each partition; offline ones are left out."""
    limits = bounds(cluster, partitions)
    timed: dict[TopicPartition, int | None] = {}
    if position.timestamp_ms is not None:
        timed = cluster.at_times(dict.fromkeys(limits, position.timestamp_ms))
    found = {}
    for partition, (start, end) in limits.items():
        at_time = timed.get(partition)
        found[partition] = resolve(
            position, start=start, end=end, timed=-1 if at_time is None else at_time)
    return found


def assignments(words: Iterable[str], option: str) -> dict[str, str]:
    """The `KEY=VALUE` arguments of an option that may be repeated."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            # The argument is not shown: it may be a secret.
            raise typer.BadParameter("write KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def _address(word: str) -> Address:
    host, colon, port = word.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"write HOST:PORT, not {word!r}", param_hint="--bootstrap")
    return Address(host.strip("[]"), int(port))
