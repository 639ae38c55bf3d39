"""A consumer group member as a process of its own, for the Python clients.

    python -m tests.e2e.member CLIENT BOOTSTRAP GROUP TOPIC

It prints a line per event, {"assigned": [0, 1]} or {"record": {...}}, commits as it goes, and on
SIGTERM commits, leaves the group and ends.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.contract import (
    COMMIT_INTERVAL_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    Event,
    Member,
    Message,
)

REPOSITORY = Path(__file__).resolve().parents[2]


def python_member(client: str, bootstrap: str, group: str, topic: str) -> Member:
    """Start this file as a process."""
    command = [sys.executable, "-m", "tests.e2e.member", client, bootstrap, group, topic]
    return Member(command, parse_event, environment={"PYTHONPATH": str(REPOSITORY)})


def parse_event(line: str) -> Event | None:
    """Read a line that a member printed; anything else is a remark of its library."""
    if line.startswith('{"assigned"'):
        return Event(assigned=frozenset(json.loads(line)["assigned"]))
    if line.startswith('{"record"'):
        return Event(record=Message(**json.loads(line)["record"]))
    return None


def say_assigned(partitions: list[int]) -> None:
    print(json.dumps({"assigned": sorted(partitions)}), flush=True)


def say_record(value: bytes, partition: int, offset: int) -> None:
    record = {"value": value.decode(), "partition": partition, "offset": offset}
    print(json.dumps({"record": record}), flush=True)


class Stop(BaseException):
    """SIGTERM, as an exception in the main thread."""


def _raise_stop(*_: object) -> None:
    raise Stop


def run_confluent(bootstrap: str, group: str, topic: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
    })
    consumer.subscribe(
        [topic],
        on_assign=lambda _, given: say_assigned([each.partition for each in given]),
        on_revoke=lambda *_: say_assigned([]),
    )
    try:
        while True:
            record = consumer.poll(0.1)
            if record is not None and record.error() is None:
                say_record(record.value(), record.partition(), record.offset())
    except Stop:
        consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc] of an untyped library
        def on_partitions_assigned(self, assigned: Any) -> None:
            say_assigned([each.partition for each in assigned])

        def on_partitions_revoked(self, revoked: Any) -> None:
            say_assigned([])

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS, heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=COMMIT_INTERVAL_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    try:
        while True:
            for records in consumer.poll(timeout_ms=100).values():
                for record in records:
                    say_record(record.value, record.partition, record.offset)
    except Stop:
        consumer.close()


def run_aiokafka(bootstrap: str, group: str, topic: str) -> None:
    asyncio.run(_run_aiokafka(bootstrap, group, topic))


async def _run_aiokafka(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc] of an untyped library
        async def on_partitions_assigned(self, assigned: Any) -> None:
            say_assigned([each.partition for each in assigned])

        async def on_partitions_revoked(self, revoked: Any) -> None:
            say_assigned([])

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS, heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=COMMIT_INTERVAL_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not stopped.is_set():
        for records in (await consumer.getmany(timeout_ms=100)).values():
            for record in records:
                say_record(record.value, record.partition, record.offset)
    await consumer.stop()


RUN: dict[str, Callable[[str, str, str], None]] = {
    "confluent": run_confluent,
    "kafka_python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _raise_stop)
    RUN[sys.argv[1]](*sys.argv[2:5])
