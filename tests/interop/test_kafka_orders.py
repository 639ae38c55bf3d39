"""Kafka's own command line tools on topics with replicas and orders of their own."""

import re
from pathlib import Path

import pytest

from tests.harness.cluster import RunningCluster
from tests.interop.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop

PARTITION = re.compile(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)")


def described(tools: KafkaTools, topic: str) -> list[tuple[str, ...]]:
    """Leader, replicas and ISR of each partition, as `kafka-topics --describe` prints them."""
    shown = tools.run("kafka-topics", "--describe", "--topic", topic)
    return [found.groups()[1:] for found in PARTITION.finditer(shown)]


@pytest.mark.timeout(300)
def test_kafka_topics_gets_the_replicas_that_it_asks_for(
    kafka_jars: Path, tmp_path: Path
) -> None:
    """K1, K5, K6: --replica-assignment at creation and for more partitions, --replication-factor
    below the chain's length, and a preferred election that has nothing to do.
    """
    with RunningCluster(tmp_path, nodes=3) as cluster:
        tools = KafkaTools(kafka_jars, cluster.bootstrap)
        tools.run("kafka-topics", "--create", "--topic", "hand", "--replica-assignment", "3:1,2:3")
        tools.run("kafka-topics", "--alter", "--topic", "hand", "--partitions", "3",
                  "--replica-assignment", "3:1,2:3,1:2")
        tools.run("kafka-topics", "--create", "--topic", "two", "--partitions", "3",
                  "--replication-factor", "2")

        assert described(tools, "hand") == [
            ("3", "3,1", "3,1"), ("2", "2,3", "2,3"), ("1", "1,2", "1,2")]
        found = described(tools, "two")
        assert sorted(leader for leader, _, _ in found) == ["1", "2", "3"]
        assert all(replicas == isr and len(replicas.split(",")) == 2
                   for _, replicas, isr in found)
        tools.run("kafka-leader-election", "--election-type", "preferred",
                  "--all-topic-partitions")
