"""Six nodes in three racks, with stock clients at work: a rack is lost, moved from, and comes back.

PostgreSQL orders the diskless topics, and a shared directory stores them.
"""

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from quipu.controller.resources import ResourceType
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.postgres import PostgresServer
from tests.harness.progress import wait_for
from tests.harness.raw import RawConnection
from tests.kill.load import PARTITIONS

pytestmark = pytest.mark.xdist_group("racks")

RACKS = ("r1", "r2", "r3")
THRESHOLD_MS = 4000
AUTO_RECONCILE = "diskless.managed.rf.auto.reconcile"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    path = tmp_path_factory.mktemp("racks")
    server = PostgresServer()
    try:
        with RunningCluster(path, nodes=6, racks=RACKS, settings={
                "diskless.storage.system.enable": "true",
                "diskless.storage.url": (path / "objects").as_uri(),
                "diskless.control.plane.url": server.url, "diskless.flush.interval.ms": "20",
                "diskless.managed.rf.rack.unavailable.threshold.ms": str(THRESHOLD_MS),
                }) as running:
            yield running
    finally:
        server.stop()


def nodes_of(cluster: RunningCluster, rack: str) -> list[str]:
    return [name for number, name in enumerate(cluster.nodes)
            if RACKS[number % len(RACKS)] == rack]


def rack_by_id(cluster: RunningCluster) -> dict[int, str]:
    return {cluster.node_id(name): rack for rack in RACKS for name in nodes_of(cluster, rack)}


def replicas(cluster: RunningCluster, topic: str) -> list[list[int]]:
    """The replicas of each partition, as a stock client without a zone is shown them."""
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=20)
    partitions = listed.topics[topic].partitions
    assert all(each.isrs == each.replicas for each in partitions.values())  # D20
    return [partitions[index].replicas for index in range(len(partitions))]


def metrics(cluster: RunningCluster, name: str) -> dict[str, float]:
    """The series of a metric, by their labels, from the node that is the controller."""
    address = cluster[cluster.controller()].http
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as response:
        text = response.read().decode()
    return {labels or "": float(value) for labels, value in re.findall(
        rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)}


def racks_shown(cluster: RunningCluster) -> dict[str, str]:
    """The state of each rack, as `quipu placement racks` shows it."""
    shown = json.loads(cluster.quipu("placement", "racks", "--json"))
    return {each["rack"]: each["rack_state"] for each in shown["racks"]}


def described(cluster: RunningCluster, topic: str) -> list[dict[str, Any]]:
    """The partitions of a topic, as `quipu placement show` shows them."""
    shown = cluster.quipu("placement", "show", topic, "--json")
    return [json.loads(line) for line in shown.splitlines()]


def all_agree(
    cluster: RunningCluster, topic: str, *, state: str, racks: set[str], coverage: int
) -> bool:
    """Whether metrics, command line and Metadata show rack r3 in `state`, and a replica of each
    partition in each of `racks`.
    """
    number = {"HEALTHY": 0, "DEGRADED": 1, "UNAVAILABLE": 2}[state]
    known = rack_by_id(cluster)
    return (
        metrics(cluster, "kafka_controller_diskless_rack_state").get('rack="r3"') == number
        and racks_shown(cluster)["r3"] == state
        and all(len(each) == len(racks) and {known[node] for node in each} == racks
                for each in replicas(cluster, topic))
        and all(set(each["assigned_racks"]) == racks and each["rack_coverage"] == coverage
                for each in described(cluster, topic))
        and metrics(cluster, "kafka_controller_diskless_effective_rf").get(
            f'topic="{topic}"') == (2 if state == "UNAVAILABLE" else 3))


def test_a_rack_is_lost_and_comes_back(cluster: RunningCluster) -> None:
    """D10, D12, D13, D26, D28, D33: DEGRADED, then UNAVAILABLE with an effective RF of 2, then
    HEALTHY with 3; clients go on all the while, and nothing is lost or doubled.
    """
    cluster.create_topic("lost", partitions=PARTITIONS, diskless_enable="true")
    wait_for(lambda: all_agree(cluster, "lost", state="HEALTHY", racks=set(RACKS), coverage=100))
    with traffic(cluster, "lost") as load:
        load.await_progress()
        for name in nodes_of(cluster, "r3"):
            cluster[name].kill()
        wait_for(lambda: racks_shown(cluster)["r3"] == "DEGRADED")
        load.await_progress()
        wait_for(lambda: all_agree(
            cluster, "lost", state="UNAVAILABLE", racks={"r1", "r2"}, coverage=100))
        load.await_progress()
        before = replicas(cluster, "lost")
        cluster.launch(nodes_of(cluster, "r3"))
        wait_for(lambda: all_agree(
            cluster, "lost", state="HEALTHY", racks=set(RACKS), coverage=100))
        assert [set(old) < set(new) for old, new in zip(
            before, replicas(cluster, "lost"), strict=True)] == [True] * PARTITIONS  # D19
        load.await_progress()
    assert load.anomalies() == []


def produce_counts(cluster: RunningCluster) -> Counter[str]:
    """How many Produce requests each rack's brokers have had."""
    found: Counter[str] = Counter()
    for rack in RACKS:
        for name in nodes_of(cluster, rack):
            if not cluster[name].runs:
                continue
            with urllib.request.urlopen(f"{cluster[name].http}/metrics", timeout=10) as response:
                text = response.read().decode()
            for count in re.findall(
                    r'^\w+_count{api="Produce".*} (\d+)$', text, re.MULTILINE | re.IGNORECASE):
                found[rack] += int(count)
    return found


def produce_in(cluster: RunningCluster, rack: str, topic: str, count: int = 60) -> None:
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "client.id": f"shop,diskless_az={rack}",
        "linger.ms": 0, "topic.metadata.refresh.interval.ms": 500})
    errors: list[object] = []
    for number in range(count):
        producer.produce(topic, b"x", partition=number % PARTITIONS, on_delivery=lambda error, _:
                         errors.append(error) if error is not None else None)
        producer.poll(0.002)
    wait_for(lambda: producer.flush(0.5) == 0, progress=lambda: len(producer))
    assert errors == []


def consume_in(cluster: RunningCluster, rack: str, topic: str, count: int) -> None:
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "client.id": f"diskless_az={rack}",
        "group.id": f"in-{rack}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = 0

    def more() -> bool:
        nonlocal found
        found += sum(message.error() is None for message in consumer.consume(500, 0.5))
        return found >= count

    try:
        wait_for(more, progress=lambda: found)
    finally:
        consumer.close()


def test_a_client_talks_to_its_own_zone(cluster: RunningCluster) -> None:
    """D22, D23, D25: as long as a replica there is up; else it talks to another zone."""
    cluster.create_topic("zones", partitions=PARTITIONS, diskless_enable="true")
    for rack in RACKS:
        before = produce_counts(cluster)
        produce_in(cluster, rack, "zones")
        assert set(produce_counts(cluster) - before) == {rack}
    consume_in(cluster, "r2", "zones", 3 * 60)
    for name in nodes_of(cluster, "r3"):
        cluster[name].kill()
    wait_for(lambda: racks_shown(cluster)["r3"] != "HEALTHY")
    before = produce_counts(cluster)
    produce_in(cluster, "r3", "zones")
    assert sum((produce_counts(cluster) - before).values()) > 0
    consume_in(cluster, "r3", "zones", 4 * 60)
    cluster.launch(nodes_of(cluster, "r3"))
    wait_for(lambda: racks_shown(cluster)["r3"] == "HEALTHY")


def test_an_operator_moves_a_replica(cluster: RunningCluster) -> None:
    """D16, D18: accepted at once, drift 1; kept while it is only observed, then repaired."""
    cluster.create_topic("moved", partitions=PARTITIONS, diskless_enable="true")
    wait_for(lambda: all_agree(cluster, "moved", state="HEALTHY", racks=set(RACKS), coverage=100))
    set_auto(cluster, on=False)
    known, (first, *_) = rack_by_id(cluster), replicas(cluster, "moved")
    twice = next(node for node in known if known[node] == known[first[0]] and node != first[0])
    wanted = [first[0], twice, first[1]]  # two in one rack, none in another
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        done = admin.alter_partition_reassignments({KafkaTopicPartition("moved", 0): wanted})
        assert list(done.values()) == [None]
        assert replicas(cluster, "moved")[0] == wanted

        def drift() -> float | None:
            return metrics(cluster, "kafka_controller_diskless_placement_drift").get(
                'topic="moved",partition="0"')

        wait_for(lambda: drift() == 1)
        shown = described(cluster, "moved")[0]
        assert (shown["placement_state"], shown["replicas"]) == ("frozen", wanted)
        assert len(cluster.quipu("placement", "drift", "--json").splitlines()) == 1
        set_auto(cluster, on=True)
        wait_for(lambda: drift() == 0)
        repaired = replicas(cluster, "moved")[0]
        assert sorted(known[node] for node in repaired) == sorted(RACKS)
        assert {first[0], first[1]} <= set(repaired)  # what was right stays
        assert described(cluster, "moved")[0]["placement_state"] == "steady"
    finally:
        admin.close()


def set_auto(cluster: RunningCluster, *, on: bool) -> None:
    """Let the controller reconcile, or only observe: for all brokers, which has no name."""
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name="", configs=[AlterableConfig(
            name=AUTO_RECONCILE, config_operation=0, value=str(on).lower())])])
    node = cluster["a-0"]
    with RawConnection(node.host, node.port) as raw:
        answer: Any = raw.ask(request, 1)
    assert [each.error_code for each in answer.responses] == [0]
