"""One partition in trouble: its node goes on serving all others, in its chain, and mends it."""

import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition

from tests.cluster.test_chains import replicas_of
from tests.cluster.test_failures import assert_kept
from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode
from tests.hostile.test_names import mention, produce, values

PROGRAM = Path(__file__).parents[1] / "harness" / "faulty.py"

pytestmark = pytest.mark.xdist_group("cluster")


def http(node: RunningNode, path: str) -> str:
    with urllib.request.urlopen(node.http + path, timeout=5) as answer:
        return str(answer.read().decode())


def await_in_sync(
    cluster: RunningCluster, topic: str, partition: int, names: list[str]
) -> None:
    for _ in cluster.until(f"{names} are in sync for {topic}-{partition}"):
        if cluster.in_sync(topic, partition) == sorted(names):
            return


@pytest.mark.timeout(240)
def test_a_log_that_fails_takes_its_node_off_that_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V10, V13, V21: head, then middle; writes to it go on with the others, the other partitions
    keep all three nodes, and when the disk works again it joins by itself.
    """
    monkeypatch.setenv("FAULTY_LOGS", "t-1.")
    cluster = RunningCluster(tmp_path)
    for name, node in cluster.nodes.items():
        node.program = [str(PROGRAM)]
        node.environment = {"FAULTY_WHILE": str(tmp_path / f"{name}.fails")}
    with cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        everybody = sorted(cluster.nodes)
        with traffic(cluster, "t") as running:
            for place in (0, 1):
                running.await_progress()
                victim = list(cluster.states("a"))[place]
                fails = tmp_path / f"{victim}.fails"
                fails.touch()
                others = [name for name in everybody if name != victim]
                await_in_sync(cluster, "t", 1, others)
                running.await_progress(count=300)
                assert cluster.in_sync("t", 0) == everybody
                assert set(cluster.states("a").values()) == {"serving"}
                metrics = http(cluster[victim], "/metrics")
                assert 'quipu_partition_failed{topic="t",partition="1"} 1' in metrics
                assert "quipu_stepped_back 0" in metrics
                assert "quipu_ready 1" in metrics
                for _ in cluster.until("health names the partition", 10):
                    if "t-1" in http(cluster[victim], "/health/ready"):
                        break
                assert "t-1" in cluster[victim].log_text()
                fails.unlink()
                await_in_sync(cluster, "t", 1, everybody)
                assert "quipu_partitions_failed 0" in http(cluster[victim], "/metrics")
            running.await_progress()
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["flipped", "gone", "blocked"])
def test_a_node_starts_with_a_log_that_cannot_be_opened(tmp_path: Path, how: str) -> None:
    """V13, V16: it serves all others, and copies that one from another node; if it cannot, that
    partition alone is without it, after another restart too.
    """
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        everybody = sorted(cluster.nodes)
        with traffic(cluster, "t") as running:
            running.await_progress(count=300)
            victim = list(cluster.states("a"))[1]
            node = cluster[victim]
            node.stop()
            (directory,) = node.directory.glob("t-1.*")
            if how == "flipped":
                (segment,) = directory.glob("*.log")
                data = bytearray(segment.read_bytes())
                data[len(data) // 3] ^= 0x10
                segment.write_bytes(data)
                for index in directory.glob("*.index"):
                    index.unlink()
            else:
                for file in directory.iterdir():
                    file.unlink()
                if how == "blocked":
                    directory.rmdir()
                    directory.write_bytes(b"a file in its place")
            if how == "blocked":
                for _ in range(2):
                    node.start()
                    cluster.await_serving("a")
                    await_in_sync(cluster, "t", 1, [name for name in everybody if name != victim])
                    await_in_sync(cluster, "t", 0, everybody)
                    running.await_progress(count=100)
                    node.stop()
                directory.unlink()
            node.start()
            cluster.await_serving("a")
            await_in_sync(cluster, "t", 1, everybody)
            running.await_progress(count=100)
        assert_kept(cluster, running, "t")


@pytest.mark.timeout(240)
def test_a_topic_moves_away_and_back_and_away(tmp_path: Path) -> None:
    """V13, K6: nothing of it is missed where it was before, under load and after restarts; every
    other topic of these nodes is served all the time.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.create_topic("other")
        of_chain = {name: [cluster.node_id(node) for node in members]
                    for name, members in cluster.chains.items()}
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        with traffic(cluster, "t") as running:
            for number in range(4):
                running.await_progress()
                here = sorted(replicas_of(cluster, "t"))
                there = next(nodes for nodes in of_chain.values() if nodes != here)
                admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
                admin.alter_partition_reassignments(dict.fromkeys(partitions, there))
                for _ in cluster.until("the topic has moved"):
                    if not admin.list_partition_reassignments() and (
                            sorted(replicas_of(cluster, "t")) == there):
                        break
                admin.close()
                time.sleep(0.5)  # for the old nodes to remove what they had
                if number == 2:
                    for node in cluster.nodes.values():
                        node.kill()
                        node.start()
                    for chain in cluster.chains:
                        cluster.await_serving(chain)
                produce(cluster["a-0"], ["other"], b"%d" % number)
            running.await_progress()
        assert running.anomalies() == []
        assert len(values(cluster["a-0"], "other")) == 4
        for chain in cluster.chains:
            cluster.await_serving(chain)
        for node in cluster.nodes.values():
            assert "are gone" not in node.log_text()
            assert "quipu_partitions_failed 0" in http(node, "/metrics")


@pytest.mark.timeout(240)
def test_no_name_of_a_topic_stops_a_cluster(tmp_path: Path) -> None:
    """K8, V13: created by one request, deleted, created again, after restarts of all nodes."""
    names = [".x", "..x", "-", "x.deleted", "n" * 231, "m" * 249]
    with RunningCluster(tmp_path) as cluster:
        cluster.create_topic("t", partitions=2, min_insync_replicas="2")
        with traffic(cluster, "t") as running:
            for value in (b"old", b"new"):
                for _ in cluster.until("they are there"):
                    if not any(mention(cluster["a-1"], names).values()):
                        break
                produce(cluster["a-0"], names, value)
                if value == b"old":
                    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
                    for future in admin.delete_topics(names).values():
                        future.result(30)
            running.await_progress()
        for round_number in range(2):
            if round_number:
                cluster.kill()
            else:
                cluster.stop()
            cluster.launch(cluster.nodes)
            cluster.await_serving("a")
            assert {name: values(cluster["a-2"], name) for name in names} == {
                name: [b"new"] for name in names}
        assert_kept(cluster, running, "t")
