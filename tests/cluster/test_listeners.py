"""Several listeners per node: a client gets the addresses of the listener it connected to."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode
from tests.harness.ports import hold_port

MAP = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"}
SECONDS_MAX = 60.0


def two_listeners(node: RunningNode) -> tuple[str, str]:
    """Have `node`, which has not started, listen twice; gives both addresses."""
    addresses = tuple(f"{node.host}:{hold_port(node)}" for _ in range(2))
    node.arguments += ["--listen", f"PLAINTEXT://{addresses[0]},outside://{addresses[1]}"]
    return addresses[0], addresses[1]


def told(bootstrap: str) -> set[str]:
    """The addresses of all brokers, as a stock client gets them."""
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
    return {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


def round_trip(bootstrap: str, topic: str, values: list[str]) -> None:
    """Produce and read back with a group, through the brokers that the client gets."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g-{bootstrap}",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[str] = set()
    deadline = time.monotonic() + SECONDS_MAX
    while not seen >= set(values) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.add(message.value().decode())
    consumer.close()
    assert seen >= set(values)


def test_a_node_with_two_listeners_tells_each_client_the_one_it_came_by(tmp_path: Path) -> None:
    """The first listener is the one that the node says it is ready at."""
    node = RunningNode(tmp_path / "data", settings=MAP)
    inside, outside = two_listeners(node)
    with node:
        assert node.bootstrap == inside
        assert (told(inside), told(outside)) == ({inside}, {outside})
        for bootstrap in (inside, outside):
            round_trip(bootstrap, "t", [f"{bootstrap}-{number}" for number in range(10)])
        node.stop()
        node.start()
        assert told(outside) == {outside}, "after a restart"


def test_what_is_advertised_of_a_listener_is_told_to_its_clients_alone(tmp_path: Path) -> None:
    """Port 0 stands for the port that the listener got."""
    node = RunningNode(tmp_path / "data", settings={
        **MAP, "advertised.listeners": "OUTSIDE://localhost:0"})
    inside, outside = two_listeners(node)
    with node:
        port = outside.rpartition(":")[2]
        assert (told(inside), told(outside)) == ({inside}, {f"localhost:{port}"})


@pytest.mark.timeout(180)
def test_in_a_cluster_every_node_is_told_by_the_listener_that_was_asked(tmp_path: Path) -> None:
    """Leaders and coordinators on other nodes are reached by the same listener."""
    cluster = RunningCluster(tmp_path, nodes=3, settings=MAP)
    addresses = [two_listeners(node) for node in cluster.nodes.values()]
    with cluster:
        cluster.create_topic("t", partitions=6)
        inside, outside = ({pair[index] for pair in addresses} for index in (0, 1))
        for wanted in (inside, outside):
            for bootstrap in sorted(wanted):
                assert told(bootstrap) == wanted
            bootstrap = min(wanted)
            round_trip(bootstrap, "t", [f"{bootstrap}-{number}" for number in range(20)])
