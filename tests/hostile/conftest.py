"""One node for the attacks of a worker, with a small budget for requests that arrive in part."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.node import RunningNode
from tests.hostile.bystander import TOPIC, anonymous_size

__all__ = ["MIB", "anonymous_size", "assert_unharmed", "node", "unharmed"]

MIB = 1024 * 1024
PARTIAL_SIZE_MAX = 64 * MIB  # queued.max.request.bytes
REQUEST_SIZE_MAX = 100 * MIB  # socket.request.max.bytes
ANONYMOUS_MAX = PARTIAL_SIZE_MAX + 128 * MIB  # the stated bound: the budget, and the program itself


def assert_unharmed(node: RunningNode, pid: int) -> None:
    """The same process goes on, and its memory is within the bound."""
    assert node.pid == pid
    assert node.runs, node.log_text()[-4000:]
    size = anonymous_size(node)
    assert size < ANONYMOUS_MAX, f"{size / MIB:.0f} MiB"


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    settings = {
        "queued.max.request.bytes": str(PARTIAL_SIZE_MAX),
        "socket.request.max.bytes": str(REQUEST_SIZE_MAX),
        "group.initial.rebalance.delay.ms": "0",
        "max.connections.per.ip": "9000",  # attackers and bystanders share an address here
        "max.connection.creation.rate": "1000000",
    }
    directory = tmp_path_factory.mktemp("hostile") / "data"
    with RunningNode(directory, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(30)
        yield running
        assert running.stop() == 0


@pytest.fixture
def unharmed(node: RunningNode) -> Iterator[RunningNode]:
    """The node; after the test it must be as well as before."""
    pid = node.pid
    yield node
    assert_unharmed(node, pid)
