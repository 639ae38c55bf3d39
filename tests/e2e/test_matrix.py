"""What one client writes, every other one reads: five writers, five compressions, five readers."""

import pytest

from tests.e2e.conftest import MAKE, PARTITIONS
from tests.e2e.contract import COMPRESSIONS, Message
from tests.e2e.evidence import batches
from tests.harness.node import RunningNode

pytestmark = pytest.mark.xdist_group("matrix")  # what is written once is read five times


@pytest.fixture(scope="session")
def written(node: RunningNode) -> tuple[str, list[Message]]:
    """One topic in which each client has written a record with each compression."""
    topic = "matrix"
    MAKE["confluent-kafka"](node.bootstrap).create_topic(topic, PARTITIONS, {})
    messages = []
    for name, make in MAKE.items():
        client = make(node.bootstrap)
        for compression in COMPRESSIONS:
            message = Message(value=f"{name} {compression} " + "knot " * 40, key=name,
                              headers=(("from", name), ("by", compression)))
            client.produce(topic, [message], compression=compression, idempotent=False)
            messages.append(message)
    return topic, messages


@pytest.mark.parametrize("reader", list(MAKE))
def test_every_reader_understands_every_writer(
    node: RunningNode, written: tuple[str, list[Message]], reader: str
) -> None:
    """K1, K2: all clients agree on the bytes, whoever wrote them and however compressed."""
    topic, messages = written

    found = MAKE[reader](node.bootstrap).consume(topic, len(messages))

    assert [each.content for each in found] == [each.content for each in messages]
    assert [each.offset for each in found] == list(range(len(messages)))


def test_batches_stay_as_their_writers_compressed_them(
    node: RunningNode, written: tuple[str, list[Message]]
) -> None:
    """K2, T1: a batch is stored and sent with the compression that its producer chose."""
    topic, messages = written

    found = [batch.compression for batch in batches(node, topic)]

    assert found == [index % len(COMPRESSIONS) for index in range(len(messages))]
