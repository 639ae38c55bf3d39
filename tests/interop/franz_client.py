"""franz-go: a client in Go, of its own making throughout; see franz/main.go."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.contract import (
    COMMIT_INTERVAL_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    Member,
    Message,
)
from tests.e2e.member import parse_event

SECONDS_MAX = 90.0


class FranzClient:
    """The adapter: each call is one run of the program, with its arguments as JSON."""

    name = "franz-go"
    is_admin = True

    def __init__(self, program: Path, bootstrap: str) -> None:
        self._words = [str(program), bootstrap]

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._run("createTopic", topic=topic, partitions=partitions, configs=dict(configs))

    def partition_count(self, topic: str) -> int:
        return int(self._run("partitionCount", topic=topic))

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        said = [{"value": message.value, "key": message.key, "partition": message.partition,
                 "headers": message.headers} for message in messages]
        self._run("produce", topic=topic, messages=said, compression=compression,
                  idempotent=idempotent)

    def consume(self, topic: str, count: int) -> list[Message]:
        return self._read("consume", topic=topic, count=count)

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        return self._read("readFrom", topic=topic, count=count, offset=offset)

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        found = self._run("offsetForTime", topic=topic, timestamp=timestamp_ms)
        # kadm answers the end of the log where there is no such record
        return None if found["offset"] == found["end"] else int(found["offset"])

    def configs(self, topic: str) -> dict[str, str]:
        return dict(self._run("configs", topic=topic))

    def alter_config(self, topic: str, key: str, value: str) -> None:
        self._run("alterConfig", topic=topic, key=key, value=value)

    def lag(self, group: str, topic: str) -> dict[int, int]:
        """What a group has not read yet, by partition."""
        found = self._run("lag", group=group, topic=topic)
        return {int(partition): lag for partition, lag in found.items()}

    def member(self, group: str, topic: str) -> Member:
        options = {"group": group, "topic": topic, "sessionTimeout": SESSION_TIMEOUT_MS,
                   "heartbeatInterval": HEARTBEAT_MS, "autoCommitInterval": COMMIT_INTERVAL_MS}
        return Member([*self._words, "member", json.dumps(options)], parse_event)

    def _read(self, command: str, **options: object) -> list[Message]:
        return [Message(**{**each, "headers": tuple(map(tuple, each["headers"]))})
                for each in self._run(command, **options)]

    def _run(self, command: str, **options: object) -> Any:
        done = subprocess.run([*self._words, command, json.dumps(options)], check=False,
                              capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])
