"""kcat: librdkafka from the command line; it has no admin requests, so topics are auto-created."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from tests.e2e.contract import (
    COMMIT_INTERVAL_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    WAIT_SECONDS_MAX,
    Event,
    Member,
    Message,
    wait_until,
)

_REBALANCED = re.compile(r"% Group \S+ rebalanced .*: (?P<what>assigned|revoked)(?P<list>.*)")
_PARTITION = re.compile(r"\[(\d+)\]")
_OFFSET = re.compile(r"offset (-?\d+)")


class KcatClient:
    """The adapter."""

    name = "kcat"
    is_admin = False

    def __init__(self, bootstrap: str) -> None:
        if shutil.which("kcat") is None and os.geteuid() != 0:
            pytest.skip("kcat is not installed, and only root may install it")
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Ask for a topic that is not there: the node creates it with its own defaults."""
        self._run("-L", "-t", topic, "-X", "allow.auto.create.topics=true")
        wait_until(lambda: self.partition_count(topic) == partitions,
                   f"{topic} has {partitions} partitions, as num.partitions says")

    def partition_count(self, topic: str) -> int:
        (found,) = json.loads(self._run("-L", "-J", "-t", topic))["topics"]
        return len(found["partitions"])

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        """One run for each stretch of messages that share partition and headers."""
        options = ["-X", f"enable.idempotence={str(idempotent).lower()}", "-z", compression]
        start = 0
        for index in range(1, len(messages) + 1):
            if index == len(messages) or not _share_options(messages[start], messages[index]):
                self._produce_alike(topic, messages[start:index], options)
                start = index

    def consume(self, topic: str, count: int) -> list[Message]:
        printed = self._run("-C", "-t", topic, "-o", "beginning", "-c", str(count), "-J", "-q")
        return [_message(json.loads(line)) for line in printed.splitlines()]

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        printed = self._run("-C", "-t", topic, "-p", "0", "-o", str(offset), "-c", str(count),
                            "-J", "-q")
        return [_message(json.loads(line)) for line in printed.splitlines()]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        found = _OFFSET.search(self._run("-Q", "-t", f"{topic}:0:{timestamp_ms}"))
        assert found is not None
        offset = int(found[1])
        return offset if offset >= 0 else None

    def configs(self, topic: str) -> dict[str, str]:
        raise AssertionError("kcat cannot describe configs")

    def alter_config(self, topic: str, key: str, value: str) -> None:
        raise AssertionError("kcat cannot alter configs")

    def member(self, group: str, topic: str) -> Member:
        settings = {
            "auto.offset.reset": "earliest", "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS, "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
        }
        options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        return Member(["kcat", "-b", self._bootstrap, *options, "-J", "-u", "-G", group, topic],
                      _event)

    def _produce_alike(
        self, topic: str, messages: Sequence[Message], options: Sequence[str]
    ) -> None:
        first = messages[0]
        headers = [word for name, value in first.headers for word in ("-H", f"{name}={value}")]
        keyed = ["-K", "|"] if first.key is not None else []
        lines = [message.value if message.key is None else f"{message.key}|{message.value}"
                 for message in messages]
        self._run("-P", "-t", topic, "-p", str(first.partition), *keyed, *headers, *options,
                  text="\n".join(lines) + "\n")

    def _run(self, *arguments: str, text: str = "") -> str:
        done = subprocess.run(["kcat", "-b", self._bootstrap, *arguments], input=text, check=False,
                              capture_output=True, text=True, timeout=WAIT_SECONDS_MAX)
        assert done.returncode == 0, f"kcat {arguments}: {done.stderr}"
        return done.stdout


def _share_options(one: Message, other: Message) -> bool:
    return (one.partition == other.partition and one.headers == other.headers
            and (one.key is None) == (other.key is None))


def _event(line: str) -> Event | None:
    if line.startswith("{"):
        return Event(record=_message(json.loads(line)))
    rebalanced = _REBALANCED.match(line)
    if rebalanced is None:
        return None
    if rebalanced["what"] == "revoked":
        return Event(assigned=frozenset())
    return Event(assigned=frozenset(map(int, _PARTITION.findall(rebalanced["list"]))))


def _message(said: Mapping[str, object]) -> Message:
    headers = said.get("headers") or []
    assert isinstance(headers, list)
    key = said["key"]
    partition, offset, timestamp = said["partition"], said["offset"], said["ts"]
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(timestamp, int)
    return Message(
        value=str(said["payload"]), key=None if key is None else str(key),
        headers=tuple(zip(headers[::2], headers[1::2], strict=True)),
        partition=partition, offset=offset, timestamp=timestamp,
    )
