"""Who sends the bytes that stock consumers read from a chain."""

import re
import time
import urllib.request

import pytest

from quipu.broker.cluster.listing import SETTLED_SECONDS
from quipu.broker.observing.http import PAGE_SECONDS_MAX
from tests.e2e.conftest import MAKE, ON_CHAIN, PARTITIONS
from tests.e2e.test_clients import assert_same, messages
from tests.harness.cluster import RunningCluster

pytestmark = ON_CHAIN

ATTEMPTS = 3
SERVED_BY_HEAD = "aiokafka"  # it ignores where it is sent unless it is given a rack
_FETCHED = re.compile(r"^quipu_fetched_bytes_total (\d+)", re.MULTILINE)


def fetched_bytes(cluster: RunningCluster) -> dict[str, int]:
    """What each node has sent to consumers, as its metrics tell."""
    time.sleep(PAGE_SECONDS_MAX)  # a page may be so old
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

    A tail whose lease has run out, as happens where a busy machine lets nodes wait for a second,
    sends its readers back to the head, and readers are not sent to one that came back a moment
    ago: such a try shows nothing, and there is another.
    """
    for attempt in range(ATTEMPTS):
        cluster.await_serving("a")
        served, size = _bytes_served(cluster, f"{topic}-{attempt}", name)
        head, *_, tail = cluster.states("a")
        server = head if name == SERVED_BY_HEAD else tail
        if served[server] <= size:
            time.sleep(SETTLED_SECONDS)  # clients may remember a node as down that is back
            continue
        if served == {**dict.fromkeys(served, 0), server: served[server]}:
            return
    raise AssertionError(f"{server} should have sent everything: {served}")


def _bytes_served(cluster: RunningCluster, topic: str, name: str) -> tuple[dict[str, int], int]:
    """What each node sends while a client reads a new topic, and the size of its values."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    client = MAKE[name](cluster.bootstrap)
    written = messages("by the tail")
    client.produce(topic, written, compression="none", idempotent=False)
    before = fetched_bytes(cluster)

    assert_same(client.consume(topic, len(written)), written)

    after = fetched_bytes(cluster)
    size = sum(len(message.value) for message in written)
    return {each: after[each] - before[each] for each in after}, size
