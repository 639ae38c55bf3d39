"""The real thing and Quipu side by side: a story is told on both, in the same words.

    kafka     Apache Kafka 4.2, whose passing is the proof that the story is right
    quipu     the same story, the same assertions

Both have the same settings, where they differ from Kafka's defaults: group members are not waited
for, and sessions may be short.  Clusters of three have replication factor 3, racks r1 to r3.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode
from tests.interop.kafka_server import KafkaCluster
from tests.interop.kafka_tools import KafkaTools

NAMES = ("kafka", "quipu")
SETTINGS = {
    "num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}
RACKS = ("r1", "r2", "r3")


class Broker(NamedTuple):
    """One broker, or a cluster of three."""

    name: str  # of `NAMES`
    bootstrap: str
    node_ids: tuple[int, ...]
    tools: KafkaTools
    quipu: RunningNode | None = None  # the first node, if it is one of ours
    kafka: KafkaCluster | None = None

    @property
    def factor(self) -> int:
        """The replication factor of topics, at most."""
        return len(self.node_ids)

    @property
    def is_quipu(self) -> bool:
        return self.name == "quipu"


@contextlib.contextmanager
def one(name: str, jars: Path, scratch: Path) -> Iterator[Broker]:
    """A broker of one node."""
    if name == "quipu":
        with RunningNode(scratch / "data", settings=SETTINGS) as node:
            yield Broker(name, node.bootstrap, (1,), KafkaTools(jars, node.bootstrap), quipu=node)
    else:
        with KafkaCluster(jars, scratch, settings=SETTINGS) as kafka:
            yield Broker(name, kafka.bootstrap, (1,), KafkaTools(jars, kafka.bootstrap),
                         kafka=kafka)


@contextlib.contextmanager
def three(name: str, jars: Path, scratch: Path) -> Iterator[Broker]:
    """A cluster of three nodes."""
    if name == "quipu":
        with RunningCluster(scratch, settings=SETTINGS, racks=RACKS) as cluster:
            yield Broker(name, cluster.bootstrap, (1, 2, 3),
                         KafkaTools(jars, cluster.bootstrap), quipu=cluster["a-0"])
    else:
        settings = {**SETTINGS, "default.replication.factor": "3", "min.insync.replicas": "2"}
        with KafkaCluster(jars, scratch, nodes=3, settings=settings, racks=RACKS) as kafka:
            yield Broker(name, kafka.bootstrap, (1, 2, 3), KafkaTools(jars, kafka.bootstrap),
                         kafka=kafka)
