"""What every client must be able to do, in words that fit all of them.

A client is an adapter over one library or program.  It keeps no state between calls, so that each
call shows a fresh connection.  Keys and values are text: that is all that kcat can be given.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tests.harness.processes import LineProcess

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_SECONDS_MAX = 30.0
LEAVE_SECONDS_MAX = 60.0  # KafkaJS knocks for long at a node that is gone
SESSION_TIMEOUT_MS = 2_000  # how long a killed member is waited for
HEARTBEAT_MS = 300
COMMIT_INTERVAL_MS = 100


class Message(NamedTuple):
    """One record, to be written or as it was read."""

    value: str
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition: int = 0
    offset: int = -1
    timestamp: int = -1

    @property
    def content(self) -> tuple[str, str | None, tuple[tuple[str, str], ...]]:
        """What was written, without where it went."""
        return (self.value, self.key, self.headers)


class Event(NamedTuple):
    """What a group member says: partitions it was given, or a record it read."""

    assigned: frozenset[int] | None = None
    record: Message | None = None


class Client(Protocol):
    """One library or program that speaks Kafka's protocol."""

    name: str
    is_admin: bool  # can it create topics and change configs

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def partition_count(self, topic: str) -> int: ...

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        """Write each message to its partition, in order; return when all are acknowledged."""

    def consume(self, topic: str, count: int) -> list[Message]:
        """Read `count` messages from the start, of all partitions; each partition in order."""

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        """Seek to an offset of partition 0, and read `count` messages from there."""

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        """The first offset of partition 0 at or after a time; None if there is none."""

    def configs(self, topic: str) -> dict[str, str]: ...

    def alter_config(self, topic: str, key: str, value: str) -> None: ...

    def member(self, group: str, topic: str) -> "Member":
        """Start a process that joins a group and reads what it is given."""


class Member:
    """A consumer in a group, as a process: it can be asked to stop, and it can be killed."""

    def __init__(
        self,
        command: Sequence[str],
        parse: Callable[[str], Event | None],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.records: list[Message] = []
        self._parse = parse
        self._process = LineProcess(command, {**os.environ, **(environment or {})})

    def update(self) -> None:
        """Take in what the process has said so far."""
        for line in self._process.take_lines():
            event = self._parse(line)
            if event is None:
                continue
            if event.assigned is not None:
                self.assigned = event.assigned
            if event.record is not None:
                self.records.append(event.record)

    def stop(self) -> None:
        """Let it commit and leave the group."""
        self._process.terminate(LEAVE_SECONDS_MAX)
        self.update()

    def kill(self) -> None:
        """SIGKILL: it tells nobody."""
        self._process.kill()
        self.update()

    def describe(self) -> str:
        """What it said last, for a failure."""
        return self._process.tail()


def wait_until(condition: Callable[[], bool], what: str, members: Sequence[Member] = ()) -> None:
    """Poll until `condition` holds; on failure show what the members said."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        for member in members:
            member.update()
        if condition():
            return
        if time.monotonic() > deadline:
            said = "\n---\n".join(member.describe() for member in members)
            raise AssertionError(f"not within {WAIT_SECONDS_MAX:.0f} s: {what}\n{said}")
        time.sleep(0.02)
