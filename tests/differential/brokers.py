"""Kafka and Quipu side by side, of one node each, with the settings that a comparison needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.harness.node import RunningNode
from tests.interop.kafka_server import KafkaCluster

SETTINGS: Final = {
    # Nothing happens by time alone: no retention, no compaction, no delay of a rebalance.
    "log.retention.check.interval.ms": "86400000", "log.cleaner.enable": "false",
    "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4",
    # Kafka begins a segment where times are further apart than this, and its answers show that.
    "log.roll.ms": "3155760000000",
    "log.retention.ms": "-1", "num.partitions": "1", "default.replication.factor": "1",
}
KAFKA_SETTINGS: Final = {**SETTINGS, "log.initial.task.delay.ms": "86400000"}
QUIPU_SETTINGS: Final = {**SETTINGS, "node.id": "1"}

Address = tuple[str, int]


@contextmanager
def both_brokers(jars: Path, scratch: Path) -> Iterator[tuple[Address, Address]]:
    """The addresses of Kafka and of Quipu, while they run."""
    with (KafkaCluster(jars, scratch / "kafka", settings=KAFKA_SETTINGS) as kafka,
          RunningNode(scratch / "quipu", settings=QUIPU_SETTINGS) as quipu):
        yield ("127.0.0.1", kafka.ports[1]), (quipu.host, quipu.port)
