"""A cluster whose nodes are upgraded one by one to the version with Kafka's records of groups."""

import contextlib
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.harness.cluster import RunningCluster
from tests.harness.earlier import earlier_version
from tests.harness.progress import wait_for

pytestmark = pytest.mark.xdist_group("mixed_offsets")

# In the history of this repository: the last commit that keeps groups as commands.
LAST_COMMANDS = "tests: a real Apache Kafka 4.2 of one node or several in make interop"
GROUPS = [f"g{number}" for number in range(8)]  # in all partitions of the topic


class Committed:
    """Commits offsets that only grow, and knows which were acknowledged."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self.acknowledged = dict.fromkeys(GROUPS, -1)
        self._next = 0

    def commit(self) -> None:
        """Commit the next offset for each group; those that are not served now are passed over."""
        self._next += 1
        for group in GROUPS:
            consumer = Consumer({
                "bootstrap.servers": self._cluster.bootstrap, "group.id": group, "log_level": 0,
                "socket.timeout.ms": 3000})
            with contextlib.suppress(KafkaException):
                (done,) = consumer.commit(
                    offsets=[TopicPartition("t", 0, self._next)], asynchronous=False)
                if done.error is None:
                    self.acknowledged[group] = self._next
            consumer.close()

    def check(self, *, complete: bool) -> None:
        """No group is told an offset below the one that it committed last."""
        found = {group: self._asked(group) for group in GROUPS}
        assert not complete or None not in found.values(), found
        for group, offset in found.items():
            assert offset is None or offset >= self.acknowledged[group], (group, found)

    def _asked(self, group: str) -> int | None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        (future,) = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=5).values()
        try:
            offsets = future.result().topic_partitions
        except KafkaException:
            return None  # it is not served now
        return offsets[0].offset if offsets else -1


@pytest.mark.timeout(300)
def test_offsets_outlive_an_upgrade_node_by_node(tmp_path: Path) -> None:
    """K3, T7: whoever leads, no group is told less than it has committed: a node of the earlier
    version that leads after a new one serves nothing rather than an old state.
    """
    source = earlier_version(tmp_path / "earlier", LAST_COMMANDS)
    cluster = RunningCluster(tmp_path / "mixed", nodes=3)
    for node in cluster.nodes.values():
        node.environment = {"PYTHONPATH": str(source)}
    with cluster:
        cluster.create_topic("t", partitions=1)
        load = Committed(cluster)
        wait_for(lambda: load.commit() or -1 not in load.acknowledged.values())
        for name in ("a-0", "a-1", "a-2"):
            assert cluster[name].stop() == 0
            load.commit()
            load.check(complete=False)
            cluster[name].environment = {}
            cluster[name].start()
            cluster.await_serving("a")
            load.commit()
            load.check(complete=False)
            cluster[name].kill()  # who has written records goes, and an old node may lead
            load.commit()
            load.check(complete=False)
            cluster[name].start()
            cluster.await_serving("a")
        before = dict(load.acknowledged)
        wait_for(lambda: load.commit() or all(
            load.acknowledged[group] > before[group] for group in GROUPS))
        load.check(complete=True)
