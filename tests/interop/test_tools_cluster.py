"""Kafka's command line tools on three nodes, on Kafka and on Quipu."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.progress import wait_for
from tests.interop.brokers import Broker

pytestmark = pytest.mark.interop

RECORDS = 200
REASSIGN = "kafka-reassign-partitions"


def replicas(cluster: Broker, topic: str) -> list[tuple[int, list[int], set[int]]]:
    """The leader, the replicas in their order and those in sync, of each partition."""
    shown = cluster.tools.run("kafka-topics", "--describe", "--topic", topic)
    found = re.findall(r"Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", shown)
    return [(int(leader), [int(each) for each in those.split(",")],
             {int(each) for each in others.split(",")}) for leader, those, others in found]


def fill(cluster: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, f"{number}" * 20, partition=number % 2)
    assert producer.flush(60) == 0


def read(cluster: Broker, topic: str) -> list[bytes]:
    """Everything that a topic has, of partition 0 and then of partition 1."""
    found = []
    for partition in range(2):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused",
                             "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(30)) is not None and not message.error():
            found.append(message.value())
        consumer.close()
    return found


def written() -> list[bytes]:
    order = [*range(0, RECORDS, 2), *range(1, RECORDS, 2)]
    return [(f"{number}" * 20).encode() for number in order]


def plan_of(path: Path, topic: str, lists: dict[int, list[int]]) -> str:
    path.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": topic, "partition": partition, "replicas": those}
        for partition, those in lists.items()]}))
    return str(path)


def test_topics_with_three_replicas(cluster: Broker, topic: str) -> None:
    """K1, K5, K6: replication factor 3 by number and by default; all are in sync, on three racks;
    four are refused.
    """
    run, attempt = cluster.tools.run, cluster.tools.attempt
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2",
        "--replication-factor", "3")
    run("kafka-topics", "--create", "--topic", f"{topic}-default")
    for name in (topic, f"{topic}-default"):
        for leader, those, in_sync in replicas(cluster, name):
            assert (leader, sorted(those), in_sync) == (those[0], [1, 2, 3], {1, 2, 3})
    shown = run("kafka-topics", "--describe", "--topic", topic, "--under-replicated-partitions")
    assert shown == ""
    refused = attempt("kafka-topics", "--create", "--topic", f"{topic}-4",
                      "--replication-factor", "4")
    assert (refused.code, "InvalidReplicationFactorException" in refused.err) == (1, True), refused


def test_log_dirs_and_quorum_of_three(cluster: Broker, topic: str) -> None:
    """K1, K6: every node says what it has of a topic; three voters, one of them leads."""
    run = cluster.tools.run
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2",
        "--replication-factor", "3")
    fill(cluster, topic)

    def sizes() -> dict[int, list[tuple[str, int]]]:
        shown = run("kafka-log-dirs", "--describe", "--topic-list", topic)
        return {each["broker"]: sorted((part["partition"], part["size"]) for where
                                       in each["logDirs"] for part in where["partitions"])
                for each in json.loads(shown.splitlines()[-1])["brokers"]}

    def are_equal() -> bool:
        found = sizes()
        full = [part for part, size in found[1] if size > 2000]
        return (sorted(found) == [1, 2, 3] and found[1] == found[2] == found[3]
                and full == [f"{topic}-0", f"{topic}-1"])

    wait_for(are_equal, what=sizes)
    shown = run("kafka-metadata-quorum", "describe", "--status")
    voters = re.search(r"CurrentVoters:\s+(.*)", shown)
    assert voters is not None, shown
    assert sorted(each["id"] for each in json.loads(voters[1])) == [1, 2, 3]
    shown = run("kafka-metadata-quorum", "describe", "--replication")
    assert sorted(line.split()[-1] for line in shown.splitlines()[1:]) == [
        "Follower", "Follower", "Leader"]
    shown = cluster.tools.program("kafka-cluster", "list-endpoints", "--bootstrap-server",
                                  cluster.bootstrap).out
    assert [line.split()[3] for line in sorted(shown.splitlines()[1:])] == ["r1", "r2", "r3"]


def reorder(cluster: Broker, topic: str, path: Path) -> list[int]:
    """Reassign partition 0 to the same nodes in another order, and wait until that is verified."""
    run = cluster.tools.run
    wanted = [3, 1, 2] if replicas(cluster, topic)[0][1] != [3, 1, 2] else [2, 3, 1]
    plan = plan_of(path, topic, {0: wanted})
    done = run(REASSIGN, "--reassignment-json-file", plan, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in done, done
    wait_for(lambda: "is completed" in run(REASSIGN, "--reassignment-json-file", plan, "--verify"))
    assert "No partition reassignments found" in run(REASSIGN, "--list")
    assert replicas(cluster, topic)[0][1] == wanted
    return wanted


def test_a_new_order_and_a_preferred_election(
    cluster: Broker, topic: str, tmp_path: Path
) -> None:
    """K1, K6: the replicas are put into another order; the first of them is elected; everything
    that was written is still read.
    """
    run = cluster.tools.run
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2",
        "--replication-factor", "3")
    fill(cluster, topic)
    wanted = reorder(cluster, topic, tmp_path / "plan.json")
    run("kafka-leader-election", "--election-type", "preferred", "--topic", topic,
        "--partition", "0")
    wait_for(lambda: replicas(cluster, topic)[0][0] == wanted[0])
    assert read(cluster, topic) == written()


def test_reassignment_generated_executed_throttled_and_verified(
    cluster: Broker, topic: str, tmp_path: Path
) -> None:
    """K1, K6: a topic on one node is moved to where the tool proposes, and to three nodes, with a
    throttle, which --verify removes; what was written is read; a finished one is not cancelled.
    """
    run = cluster.tools.run
    run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1,1")
    fill(cluster, topic)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    shown = run(REASSIGN, "--topics-to-move-json-file", str(topics), "--broker-list", "2,3",
                "--generate")
    current, proposed = re.findall(r"^\{.*\}$", shown, re.MULTILINE)
    assert [each["replicas"] for each in json.loads(current)["partitions"]] == [[1], [1]]
    moves = {each["partition"]: each["replicas"] for each in json.loads(proposed)["partitions"]}
    assert sorted(moves.values()) == [[2], [3]]

    for lists in (moves, {0: [1, 2, 3], 1: [2, 3, 1]}):
        plan = plan_of(tmp_path / "plan.json", topic, lists)
        move(cluster, topic, plan, lists)
        assert read(cluster, topic) == written()
    done = run(REASSIGN, "--reassignment-json-file", plan, "--cancel")
    assert "None of the specified partition moves are active" in done, done


def move(cluster: Broker, topic: str, plan: str, lists: dict[int, list[int]]) -> None:
    """Move a topic with a throttle, until that is verified and the throttle is gone."""
    run = cluster.tools.run
    done = run(REASSIGN, "--reassignment-json-file", plan, "--execute", "--throttle", "10000000")
    assert "The inter-broker throttle limit was set to 10000000 B/s" in done, done
    wait_for(lambda: run(REASSIGN, "--reassignment-json-file", plan, "--verify").count(
        "is completed") == 2, pause=0.2)
    assert [each[1] for each in replicas(cluster, topic)] == list(lists.values())
    wait_for(lambda: all(in_sync == set(those) and leader in in_sync
                         for leader, those, in_sync in replicas(cluster, topic)))
    wait_for(lambda: "throttled" not in run("kafka-configs", "--describe", "--topic", topic)
             + run("kafka-configs", "--describe", "--broker", "1"))
