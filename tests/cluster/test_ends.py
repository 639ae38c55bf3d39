"""The ends of partitions that stock clients of a cluster get while its nodes are killed."""

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from quipu.model.errors import Code
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.cluster.test_failures import assert_kept
from tests.cluster.test_reads import PATIENT, WITH_REFERRALS, counted, fetch, produce
from tests.cluster.traffic import Traffic, traffic
from tests.harness.cluster import RunningCluster
from tests.harness.raw import RawConnection

pytestmark = pytest.mark.xdist_group("cluster-faults")

ROUNDS = 3


class Watch:
    """Requests the end of partition 0 repeatedly; records each response that went back."""

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


def latest(cluster: RunningCluster, name: str, topic: str) -> tuple[int, int]:
    """Error code and offset of a node's response for the end of partition 0."""
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])])
    with RawConnection("127.0.0.1", cluster[name].port) as raw:
        answer = raw.ask(request, 7)
    assert isinstance(answer, ListOffsetsResponse)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.offset


@pytest.mark.timeout(120)
def test_the_head_does_not_tell_an_end_below_what_the_tail_has_given(tmp_path: Path) -> None:
    """T5: the head hears no acknowledgements, the tail gives the record; the head cannot say."""
    with RunningCluster(tmp_path, settings=PATIENT, proxied=True) as cluster:
        assert cluster.proxy is not None
        cluster.create_topic("t")
        produce(cluster, "t", "one")
        assert latest(cluster, "a-0", "t") == (Code.NONE, 1)
        cluster.proxy.cut(cluster.node_id("a-1"), cluster.node_id("a-0"))
        try:
            produce(cluster, "t", "two", acks="1")
            for _ in cluster.until("the tail gives it"):
                if counted(fetch(cluster, "a-2", "t", version=WITH_REFERRALS)) == 2:
                    break
            assert latest(cluster, "a-0", "t") == (Code.OFFSET_NOT_AVAILABLE, -1)
        finally:
            cluster.proxy.heal()
        for _ in cluster.until("the head can say it"):
            code, end = latest(cluster, "a-0", "t")
            assert (code, end) in ((Code.OFFSET_NOT_AVAILABLE, -1), (Code.NONE, 2))
            if code == Code.NONE:
                break


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
