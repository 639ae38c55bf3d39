"""Where partitions end, as stock clients of a cluster are told while its nodes are killed."""

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cluster.test_failures import assert_kept
from tests.cluster.traffic import Traffic, traffic
from tests.harness.cluster import RunningCluster

pytestmark = pytest.mark.xdist_group("cluster")

ROUNDS = 3


class Watch:
    """Asks again and again where partition 0 ends; remembers each answer that went back."""

    def __init__(self, cluster: RunningCluster, running: Traffic) -> None:
        self.answers = 0
        self.falls: list[tuple[int, int]] = []
        self._running = running
        self._stopping = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0,
            "topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.max.ms": 200})
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        partition, highest = TopicPartition("t", 0), 0
        while not self._stopping.is_set():
            followed = self._running.followed  # grows; what was read before the question counts
            read = [each.offset + 1 for each in followed[-200:] if each.partition == 0]
            least = max(highest, *read) if read else highest
            try:
                _, end = self._consumer.get_watermark_offsets(partition, timeout=2)
            except KafkaException:
                continue  # nobody can say; that is as it should be
            self.answers += 1
            if end < least:
                self.falls.append((least, end))
            highest = max(least, end)
            time.sleep(0.005)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._consumer.close()


@pytest.mark.timeout(300)
def test_ends_never_fall_while_nodes_are_killed(tmp_path: Path) -> None:
    """T5, V14: one node after the other, then all of them at once; a consumer that resets to the
    latest offset would leave out what lies between.
    """
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2", segment_bytes="65536")
        with traffic(cluster, "t") as running:
            watch = Watch(cluster, running)
            try:
                for place in range(ROUNDS):
                    running.await_progress()
                    victim = cluster[list(cluster.states("a"))[place]]
                    victim.kill()
                    running.await_progress()
                    victim.start()
                    cluster.await_serving("a")
                running.await_progress()
                cluster.kill()
                cluster.launch(cluster.chains["a"])
                cluster.await_serving("a")
                running.await_progress()
            finally:
                watch.stop()
        print(f"{watch.answers} answers, {running.load.acknowledged} acknowledged")
        assert watch.falls == []
        assert watch.answers > 100
        assert_kept(cluster, running, "t")
