"""Kafka's own tools move partitions: the same story on Quipu and on Apache Kafka, three nodes each.

They are started as few times as the story allows: each start of a JVM takes a second or two.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.harness.cluster import RunningCluster
from tests.harness.progress import wait_for
from tests.interop.kafka_server import KafkaCluster
from tests.interop.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop

RATE = 300_000
SIZE = 3_000_000


@pytest.fixture(scope="module", params=["quipu", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("reassign")
    if request.param == "quipu":
        with RunningCluster(scratch, nodes=3) as cluster:
            yield cluster.bootstrap
    else:
        with KafkaCluster(kafka_jars, scratch, nodes=3) as kafka:
            yield kafka.bootstrap


@pytest.fixture(scope="module")
def tools(kafka_jars: Path, bootstrap: str) -> KafkaTools:
    return KafkaTools(kafka_jars, bootstrap)


def replicas_of(bootstrap: str) -> list[list[int]]:
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=20)
    partitions = listed.topics["t"].partitions
    return [list(partitions[index].replicas) for index in sorted(partitions)]


def written(path: Path, lists: dict[int, list[int]]) -> str:
    """A plan that moves partitions of t to these lists."""
    path.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "t", "partition": index, "replicas": nodes} for index, nodes in lists.items()]}))
    return str(path)


def execute(tools: KafkaTools, plan: str, *words: str) -> str:
    return tools.run("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute",
                     *words)


def verified(tools: KafkaTools, plan: str) -> str:
    """What `--verify` prints once it finds the plan carried out."""
    shown: list[str] = []

    def is_complete() -> bool:
        shown.append(tools.run("kafka-reassign-partitions", "--reassignment-json-file", plan,
                               "--verify"))
        return "is still in progress" not in shown[-1]

    wait_for(is_complete, pause=0.5)
    return shown[-1]


def configs(tools: KafkaTools, kind: str, name: str) -> dict[str, str]:
    """The settings that were set, as kafka-configs describes them."""
    shown = tools.run("kafka-configs", "--describe", "--entity-type", kind, "--entity-name", name)
    return {key: value for key, value in re.findall(
        r"^  (\S+?)=(\S*) sensitive=false", shown, re.MULTILINE) if "throttled" in key}


def produced(bootstrap: str) -> list[bytes]:
    values = [b"%06d-" % number + b"x" * 9993 for number in range(SIZE // 10_000)]
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce("t", value, partition=1)
    assert producer.flush(60) == 0
    return values


def consumed(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g",
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 1, 0)])
    found: list[bytes] = []
    wait_for(lambda: found.extend(
        message.value() for message in consumer.consume(500, 0.5) if not message.error())
        or len(found) >= count, pause=0)
    consumer.close()
    return found


@pytest.mark.timeout(400)
def test_the_tools_move_partitions(bootstrap: str, tools: KafkaTools, tmp_path: Path) -> None:
    """K1, K5, K6: a topic is created with assignments of its own; a proposed plan is carried out
    and verified; nodes are taken off and added, with a throttle, listed, called off and verified;
    leaders are elected; and every record is still there.
    """
    tools.run("kafka-topics", "--create", "--topic", "t", "--replica-assignment", "1:2:3,2:3:1")
    assert replicas_of(bootstrap) == [[1, 2, 3], [2, 3, 1]]

    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    shown = tools.run("kafka-reassign-partitions", "--topics-to-move-json-file", str(topics),
                      "--broker-list", "3,1,2", "--generate")
    plan = tmp_path / "proposed.json"
    plan.write_text(shown.splitlines()[-1] or shown.splitlines()[-2])
    proposed: dict[str, Any] = json.loads(plan.read_text())
    wanted = [each["replicas"] for each in sorted(
        proposed["partitions"], key=lambda each: each["partition"])]
    assert "Successfully started partition reassignments for t-0,t-1" in execute(tools, str(plan))
    assert "Reassignment of partition t-0 is completed." in verified(tools, str(plan))
    assert replicas_of(bootstrap) == wanted

    values = produced(bootstrap)
    less = written(tmp_path / "less.json", {0: [3, 1], 1: [2]})
    execute(tools, less)
    assert "Reassignment of partition t-1 is completed." in verified(tools, less)
    assert replicas_of(bootstrap) == [[3, 1], [2]]

    more = written(tmp_path / "more.json", {1: [3, 2]})
    execute(tools, more, "--throttle", str(RATE))
    listed = tools.run("kafka-reassign-partitions", "--list")
    assert re.search(r"t-1: replicas: 3,2\. adding: 3\.", listed), listed
    assert configs(tools, "topics", "t") == {
        "leader.replication.throttled.replicas": "1:2",
        "follower.replication.throttled.replicas": "1:3"}
    rates = {"leader.replication.throttled.rate": str(RATE),
             "follower.replication.throttled.rate": str(RATE)}
    assert configs(tools, "brokers", "3").items() >= rates.items()
    cancelled = tools.run("kafka-reassign-partitions", "--reassignment-json-file", more, "--cancel")
    assert "Successfully cancelled partition reassignment for: t-1" in cancelled
    assert "No partition reassignments found" in tools.run("kafka-reassign-partitions", "--list")
    assert replicas_of(bootstrap)[1] == [2]
    assert configs(tools, "topics", "t") == {}
    assert configs(tools, "brokers", "3").keys().isdisjoint(rates)

    execute(tools, more)
    done = verified(tools, more)
    assert "Reassignment of partition t-1 is completed." in done
    assert replicas_of(bootstrap)[1] == [3, 2]
    elected = tools.run("kafka-leader-election", "--election-type", "preferred", "--topic", "t",
                        "--partition", "1")
    assert "t-1" in elected
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_for(lambda: admin.list_topics("t", timeout=20).topics["t"].partitions[1].leader == 3)
    assert consumed(bootstrap, len(values)) == values


BAD_PLANS = {
    "a node twice": {0: [1, 1]},
    "an unknown node": {0: [1, 99]},
    "no node": {0: []},
    "an unknown partition": {7: [1]},
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("why", BAD_PLANS)
def test_a_bad_plan_is_refused(
    bootstrap: str, tools: KafkaTools, tmp_path: Path, why: str
) -> None:
    """K6: by both, and the partition stays where it is."""
    before = replicas_of(bootstrap)
    with pytest.raises(AssertionError):
        execute(tools, written(tmp_path / "bad.json", BAD_PLANS[why]))
    assert replicas_of(bootstrap) == before
