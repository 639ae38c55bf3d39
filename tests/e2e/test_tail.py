"""Who sends the bytes that stock consumers read from a chain."""

import re
import urllib.request

import pytest

from tests.e2e.conftest import MAKE, ON_CHAIN, PARTITIONS
from tests.e2e.test_clients import assert_same, messages
from tests.harness.cluster import RunningCluster

pytestmark = ON_CHAIN

SERVED_BY_HEAD = "aiokafka"  # it ignores where it is sent unless it is given a rack
_FETCHED = re.compile(r"^quipu_fetched_bytes_total (\d+)", re.MULTILINE)


def fetched_bytes(cluster: RunningCluster) -> dict[str, int]:
    """What each node has sent to consumers, as its metrics tell."""
    found = {}
    for name, node in cluster.nodes.items():
        with urllib.request.urlopen(f"{node.http}/metrics") as answer:
            counted = _FETCHED.search(answer.read().decode())
        assert counted is not None
        found[name] = int(counted[1])
    return found


@pytest.mark.parametrize("name", list(MAKE))
def test_consumers_are_served_by_the_tail(
    cluster: RunningCluster, topic: str, name: str
) -> None:
    """V3: every byte comes from the last node of the chain; a client that does not go there when
    it is told to gets what is committed from the head.
    """
    cluster.await_serving("a")
    cluster.create_topic(topic, partitions=PARTITIONS)
    client = MAKE[name](cluster.bootstrap)
    written = messages("by the tail")
    client.produce(topic, written, compression="none", idempotent=False)
    head, *_, tail = cluster.states("a")
    before = fetched_bytes(cluster)

    assert_same(client.consume(topic, len(written)), written)

    after = fetched_bytes(cluster)
    size = sum(len(message.value) for message in written)
    server = head if name == SERVED_BY_HEAD else tail
    assert after[server] - before[server] > size
    assert {each: after[each] - before[each] for each in after if each != server} == dict.fromkeys(
        set(after) - {server}, 0)
