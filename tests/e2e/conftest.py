"""The places where end-to-end tests happen, and every client connected to them.

A node alone, a chain of three, and a node on which every topic is diskless; one of each for all
tests of a worker.  When the tests are over the nodes must stop cleanly, and `quipu log show` must
find nothing wrong in what they left behind.
"""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.aiokafka_client import AiokafkaClient
from tests.e2e.confluent_client import ConfluentClient
from tests.e2e.contract import Client
from tests.e2e.kafka_python_client import KafkaPythonClient
from tests.e2e.kafkajs_client import KafkaJsClient
from tests.e2e.kcat_client import KcatClient
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode, environment

PARTITIONS = 2
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}
MAKE: dict[str, Callable[[str], Client]] = {
    client.name: client  # type: ignore[misc] classes that follow the protocol
    for client in (ConfluentClient, KafkaPythonClient, AiokafkaClient, KafkaJsClient, KcatClient)
}
ADMINS = [name for name in MAKE if name != KcatClient.name]
ON_CHAIN = pytest.mark.xdist_group("clients of a chain")  # one worker starts it, once
ALONE, CHAIN = pytest.param("alone"), pytest.param("chain", marks=ON_CHAIN)
DISKLESS = pytest.param("diskless")
LEAVE_MS = "1000"  # that the last node to stop waits for a controller that is gone


class Place:
    """Where clients connect to: the nodes that clients are told to try first."""

    def __init__(self, *nodes: RunningNode, is_diskless: bool = False) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(node.bootstrap for node in nodes)
        self.is_diskless = is_diskless

    def connect(self, name: str) -> Client:
        """A client by its name, which creates topics of the kind that this place is for."""
        client = MAKE[name](self.bootstrap)
        return on_diskless_topics(client, self.bootstrap) if self.is_diskless else client


def on_diskless_topics(client: Client, bootstrap: str) -> Client:
    """A client whose topics are all diskless; one without admin requests has another make them."""
    create = (client if client.is_admin else ConfluentClient(bootstrap)).create_topic

    def create_topic(topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        create(topic, partitions, {**configs, "diskless.enable": "true"})

    client.create_topic = create_topic  # type: ignore[method-assign]
    return client


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    directory = tmp_path_factory.mktemp("e2e") / "data"
    with RunningNode(directory, settings=SETTINGS) as running:
        yield running
        assert running.stop() == 0
    assert_sound(directory)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {**SETTINGS, "controlled.shutdown.timeout.ms": LEAVE_MS}
    with RunningCluster(tmp_path_factory.mktemp("chain"), settings=settings) as running:
        yield running
        running.stop()
    for each in running.nodes.values():
        assert_sound(each.directory)


def assert_sound(directory: Path) -> None:
    command = [sys.executable, "-m", "quipu", "log", "show", str(directory)]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout[-4000:] + shown.stderr


@pytest.fixture(scope="session")
def diskless_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that diskless topics can be created on."""
    settings = {**SETTINGS, "diskless.storage.system.enable": "true",
                "diskless.flush.interval.ms": "10"}
    directory = tmp_path_factory.mktemp("diskless") / "data"
    with RunningNode(directory, settings=settings) as running:
        yield running
        assert running.stop() == 0
    assert_sound(directory)
    assert not list(directory.glob("topic-*")), "a diskless topic has a log on the disk"


def _place(request: pytest.FixtureRequest) -> Place:
    if request.param == "alone":
        return Place(request.getfixturevalue("node"))
    if request.param == "diskless":
        return Place(request.getfixturevalue("diskless_node"), is_diskless=True)
    return Place(*request.getfixturevalue("cluster").nodes.values())


@pytest.fixture(scope="session", params=[ALONE, CHAIN, DISKLESS])
def place(request: pytest.FixtureRequest) -> Place:
    """A node alone, then a chain of three, then a node with diskless topics."""
    return _place(request)


@pytest.fixture(scope="session", params=[ALONE, DISKLESS])
def place_of_one(request: pytest.FixtureRequest) -> Place:
    """A node alone, then one with diskless topics."""
    return _place(request)


@pytest.fixture(params=list(MAKE))
def client(request: pytest.FixtureRequest, place: Place) -> Client:
    """Every client in turn."""
    return place.connect(request.param)


@pytest.fixture(params=list(MAKE))
def client_of_one(request: pytest.FixtureRequest, place_of_one: Place) -> Client:
    """Every client in turn, for stories in which it does not matter how many nodes there are."""
    return place_of_one.connect(request.param)


@pytest.fixture(params=ADMINS)
def admin(request: pytest.FixtureRequest, place: Place) -> Client:
    """Every client that has admin requests, in turn."""
    return place.connect(request.param)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
