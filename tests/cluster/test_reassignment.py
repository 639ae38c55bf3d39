"""Partitions that move to any nodes, nodes and chains that are taken out, and throttles."""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaAdminClient, TopicPartition

from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.command import run_quipu
from tests.harness.node import environment

pytestmark = pytest.mark.xdist_group("cluster-faults")

MOVES = 5
RATE = 1_000_000
SIZE = 6_000_000


def replicas_of(cluster: RunningCluster, topic: str) -> list[list[int]]:
    """The replicas of each partition, as clients get them."""
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=10)
    partitions = listed.topics[topic].partitions
    return [list(partitions[index].replicas) for index in sorted(partitions)]


def move(cluster: RunningCluster, lists: list[list[int]], topic: str = "t") -> None:
    """Ask for these lists of nodes; answered when the moves have begun."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    wanted = {TopicPartition(topic, index): nodes for index, nodes in enumerate(lists)}
    assert admin.alter_partition_reassignments(wanted) == dict.fromkeys(wanted)
    admin.close()


def await_lists(cluster: RunningCluster, lists: list[list[int]], topic: str = "t") -> None:
    for _ in cluster.until(f"{topic} is on {lists}"):
        if replicas_of(cluster, topic) == lists:
            return


@pytest.mark.timeout(240)
def test_partitions_move_to_any_nodes_under_load(tmp_path: Path) -> None:
    """K6, V14: to nodes of both chains, in any order, more of them or fewer; one is killed on the
    way and comes back; nothing is lost, duplicated or out of order.
    """
    dice = random.Random(7)
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=2, **{"min.insync.replicas": "1"})
        nodes = [cluster.node_id(name) for name in cluster.nodes]
        with traffic(cluster, "t") as running:
            running.await_progress()
            for number in range(MOVES):
                lists = [dice.sample(nodes, dice.randint(1, 4)) for _ in range(2)]
                if number == 3:
                    lists = [nodes[::-1], nodes]
                move(cluster, lists)
                if number == 3:
                    cluster["b-1"].kill()  # no voter
                    running.await_progress()
                    cluster["b-1"].start()
                await_lists(cluster, lists)
                running.await_progress()
        assert running.anomalies() == []


def removing(cluster: RunningCluster, *words: str) -> subprocess.Popen[bytes]:
    """`quipu chain remove ...` as a process that a test can kill."""
    return subprocess.Popen(
        [sys.executable, "-m", "quipu", "chain", "remove", *words, "--bootstrap",
         cluster.bootstrap], env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)


@pytest.mark.timeout(240)
def test_a_node_is_decommissioned_under_load(tmp_path: Path) -> None:
    """V16, K6: its partitions move to another node; the command and the controller are killed on
    the way, and the same command goes on; then it votes no more, and once it is stopped it is
    unregistered.  Nothing is lost.
    """
    with RunningCluster(tmp_path, nodes=3) as cluster:
        cluster.add("a-3").start()
        cluster.create_topic("t", partitions=2, **{"min.insync.replicas": "1"})
        gone, new = cluster.node_id("a-1"), cluster.node_id("a-3")
        words = ("a", "a-1", "--replace-by", "a-3")
        with traffic(cluster, "t") as running:
            running.await_progress()
            refused = run_quipu("chain", "remove", "a", "a-1", "--bootstrap", cluster.bootstrap)
            assert refused.code == 1
            assert "name the node that takes its place" in refused.err
            command = removing(cluster, *words)
            time.sleep(1.0)
            command.kill()
            command.wait()
            controller = cluster.controller()
            cluster[controller].kill()
            cluster[controller].start()  # a-1 may vote no more: then two are left, and both needed
            running.await_progress()
            done = run_quipu("chain", "remove", *words, "--bootstrap", cluster.bootstrap)
            assert done.code == 0, done.err + cluster.logs()
            assert "stop it" in done.err
            running.await_progress()
            for nodes in replicas_of(cluster, "t"):
                assert gone not in nodes
                assert new in nodes
            cluster["a-1"].stop()
            for _ in cluster.until("a-1 is unregistered"):
                done = run_quipu("chain", "remove", *words, "--bootstrap", cluster.bootstrap)
                if "a-1 is removed" in done.err:
                    break
            running.await_progress()
        assert running.anomalies() == []
        assert sorted(each["name"] for each in cluster.chain("a")["members"]) == ["a-0", "a-2"]
        quorum = map(json.loads, cluster.quipu("quorum", "list", "--json").splitlines())
        assert gone not in {each["id"] for each in quorum if each["role"] != "observer"}
        again = run_quipu("chain", "remove", *words, "--bootstrap", cluster.bootstrap)
        assert (again.code, "nothing to remove" in again.err) == (0, True)


@pytest.mark.timeout(240)
def test_a_chain_is_drained_and_removed_under_load(tmp_path: Path) -> None:
    """V7, K6: its topics and groups move to the other chain, with progress; its nodes are in no
    chain then, and can be removed.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.create_topic("u", partitions=3)
        on_b = [cluster.node_id(name) for name in cluster.chains["b"]]
        move(cluster, [on_b, on_b[::-1]])
        await_lists(cluster, [on_b, on_b[::-1]])
        refused = run_quipu("chain", "remove", "b", "--bootstrap", cluster.bootstrap)
        assert refused.code == 1
        assert "draining" in refused.err
        with traffic(cluster, "t") as running:
            running.await_progress()
            done = run_quipu("chain", "remove", "b", "--drain", "--bootstrap", cluster.bootstrap)
            assert done.code == 0, done.err + cluster.logs()
            assert "chain b is removed" in done.err
            assert "left" in done.err
            running.await_progress()
            for name in ("b-0", "b-1"):
                cluster[name].stop()
            for name in ("b-0", "b-1"):
                for _ in cluster.until(f"{name} is unregistered"):
                    done = run_quipu("chain", "remove", "b", name, "--bootstrap",
                                     cluster["a-0"].bootstrap)
                    if f"{name} is removed" in done.err:
                        break
            running.await_progress()
        assert running.anomalies() == []
        listed = map(json.loads, cluster.quipu("chain", "list", "--json").splitlines())
        assert [chain["name"] for chain in listed] == ["a"]


@pytest.mark.timeout(180)
def test_a_node_is_replaced_under_its_name(tmp_path: Path) -> None:
    """V16: it is started again with an empty directory, and no other command is needed: it gets
    every record, and serves; also as head of what it is the preferred one of.
    """
    with RunningCluster(tmp_path, nodes=3) as cluster:
        cluster.create_topic("t", partitions=2, **{"min.insync.replicas": "1"})
        with traffic(cluster, "t") as running:
            running.await_progress()
            cluster["a-2"].kill()
            shutil.rmtree(cluster["a-2"].directory)
            running.await_progress()
            cluster["a-2"].start()
            cluster.await_serving("a")
            for _ in cluster.until("a-2 is in sync"):
                if all("a-2" in cluster.in_sync("t", index) for index in range(2)):
                    break
            running.await_progress()
        assert running.anomalies() == []


@pytest.mark.timeout(240)
def test_a_throttle_holds_and_traffic_in_sync_does_not_mind(tmp_path: Path) -> None:
    """K5, K6: six megabytes at one megabyte per second take six seconds, within a fifth; a write
    to the members in sync takes milliseconds meanwhile.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=1, **{"min.insync.replicas": "1"})
        ids = {name: cluster.node_id(name) for name in cluster.nodes}
        here = [ids["a-0"], ids["a-1"]]
        move(cluster, [here])
        await_lists(cluster, [here])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all",
                             "linger.ms": 0, "compression.type": "none"})
        value = random.Random(1).randbytes(10_000)
        for _ in range(SIZE // len(value)):
            producer.produce("t", value, partition=0)
        assert producer.flush(60) == 0
        throttle(cluster, rate=RATE)
        begun = time.monotonic()
        move(cluster, [[*here, ids["b-0"]]])
        took: list[float] = []
        while "b-0" not in cluster.in_sync("t", 0):
            sent = time.monotonic()
            producer.produce("t", b"small", partition=0)
            assert producer.flush(30) == 0
            took.append(time.monotonic() - sent)
            assert time.monotonic() - begun < 60, cluster.logs()
        seconds = time.monotonic() - begun
        assert seconds == pytest.approx(SIZE / RATE, rel=0.2)
        took.sort()
        assert took[len(took) // 2] < 0.1
        throttle(cluster, rate=None)
        print(f"{SIZE} bytes in {seconds:.2f} s; writes: median {took[len(took) // 2] * 1e3:.1f} "
              f"ms, longest {took[-1] * 1e3:.1f} ms of {len(took)}")


def throttle(cluster: RunningCluster, rate: int | None) -> None:
    """Set the throttles of all nodes and of the topic, or delete them."""
    operation = AlterConfigOpType.SET if rate is not None else AlterConfigOpType.DELETE
    resources = [
        ConfigResource(ConfigResource.Type.BROKER, str(cluster.node_id(name)), incremental_configs=[
            ConfigEntry(f"{role}.replication.throttled.rate", str(rate or 0),
                        incremental_operation=operation) for role in ("leader", "follower")])
        for name in cluster.nodes]
    resources.append(ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[
        ConfigEntry(f"{role}.replication.throttled.replicas", "*",
                    incremental_operation=operation) for role in ("leader", "follower")]))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for resource in resources:
        for future in admin.incremental_alter_configs([resource], request_timeout=20).values():
            future.result(30)
