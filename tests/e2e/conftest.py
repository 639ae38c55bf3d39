"""One node for all end-to-end tests of a worker, and every client connected to it.

When the tests are over the node must stop cleanly, and `quipu log show` must find nothing wrong in
what they left behind.
"""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.aiokafka_client import AiokafkaClient
from tests.e2e.confluent_client import ConfluentClient
from tests.e2e.contract import Client
from tests.e2e.kafka_python_client import KafkaPythonClient
from tests.e2e.kafkajs_client import KafkaJsClient
from tests.e2e.kcat_client import KcatClient
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


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    directory = tmp_path_factory.mktemp("e2e") / "data"
    with RunningNode(directory, settings=SETTINGS) as running:
        yield running
        assert running.stop() == 0
    command = [sys.executable, "-m", "quipu", "log", "show", str(directory)]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout[-4000:] + shown.stderr


@pytest.fixture(params=list(MAKE))
def client(request: pytest.FixtureRequest, node: RunningNode) -> Client:
    """Every client in turn."""
    return MAKE[request.param](node.bootstrap)


@pytest.fixture(params=ADMINS)
def admin(request: pytest.FixtureRequest, node: RunningNode) -> Client:
    """Every client that has admin requests, in turn."""
    return MAKE[request.param](node.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
