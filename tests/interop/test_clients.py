"""The stories of every stock client (tests/e2e/test_clients.py), on Kafka and on Quipu.

franz-go and KafkaJS tell them on both; the others on Kafka only, which shows that the stories are
right: `make test` has them on Quipu.
"""

import pytest

from tests.e2e import test_clients as stories
from tests.e2e.conftest import MAKE, PARTITIONS
from tests.e2e.contract import COMPRESSIONS, Client, Message, wait_until
from tests.interop.brokers import NAMES, Broker
from tests.interop.conftest import Running
from tests.interop.franz_client import FranzClient
from tests.interop.inherit import inherited
from tests.interop.software import folder_of

pytestmark = pytest.mark.interop
globals().update(inherited(stories, "client", but={
    "test_idempotent_producers_write_once",  # looks into our own log; Java producers do it here
}))
globals().update(inherited(stories, "client_of_one", but={
    "test_records_come_back_as_they_were_written",  # below: one codec is not taken by Kafka
}))
globals().update(inherited(stories, "admin"))

ON_BOTH = ("franz-go", "KafkaJS")
CLIENTS = [(name, broker) for broker in NAMES for name in (*ON_BOTH, *MAKE)
           if (name in ON_BOTH or broker == "kafka")]
CLIENTS = list(dict.fromkeys(CLIENTS))


def connect(name: str, broker: Broker) -> Client:
    if name == FranzClient.name:
        return FranzClient(folder_of("franz") / "franz", broker.bootstrap)
    return MAKE[name](broker.bootstrap)


@pytest.fixture(params=CLIENTS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def client(request: pytest.FixtureRequest, running: Running) -> Client:
    name, broker = request.param
    return connect(name, running(broker, 1))


@pytest.fixture
def client_of_one(client: Client) -> Client:
    return client


@pytest.fixture(params=[pair for pair in CLIENTS if pair[0] != "kcat"],
                ids=lambda pair: f"{pair[0]}-{pair[1]}")
def admin(request: pytest.FixtureRequest, running: Running) -> Client:
    name, broker = request.param
    return connect(name, running(broker, 1))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_as_they_were_written(
    client_of_one: Client, topic: str, compression: str, request: pytest.FixtureRequest
) -> None:
    """K1, K2, V19: also those of lz4js, which KafkaJS uses here: its blocks depend on each other.

    Kafka takes independent blocks only.
    """
    name, broker = request.node.callspec.params["client"]
    if (name, broker, compression) == ("KafkaJS", "kafka", "lz4"):
        with pytest.raises(AssertionError, match="The server experienced an unexpected error"):
            stories.test_records_come_back_as_they_were_written(client_of_one, topic, compression)
    else:
        stories.test_records_come_back_as_they_were_written(client_of_one, topic, compression)


def test_franz_go_on_three_nodes(cluster: Broker, topic: str) -> None:
    """K1, K3, K6: a group reads what an idempotent producer writes, and its lag is known."""
    client = FranzClient(folder_of("franz") / "franz", cluster.bootstrap)
    client.create_topic(topic, PARTITIONS, {})
    written = [Message(value=f"{number}", partition=number % PARTITIONS) for number in range(100)]
    client.produce(topic, written, compression="zstd", idempotent=True)
    member = client.member(f"group-of-{topic}", topic)
    try:
        wait_until(lambda: len(member.records) == len(written), "everything read", [member])
        member.stop()
    finally:
        member.kill()
    client.produce(topic, written[:30], compression="none", idempotent=True)

    assert client.lag(f"group-of-{topic}", topic) == {0: 15, 1: 15}
