"""What each node of a chain of three gives to readers that ask it directly."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quipu.wire.record_batch import parse_header
from tests.harness.cluster import RunningCluster
from tests.harness.command import run_quipu
from tests.harness.raw import RawConnection

pytestmark = pytest.mark.xdist_group("reads")

PATIENT = {"broker.session.timeout.ms": "30000"}  # a cut is seen through, not repaired
BEFORE_REFERRALS = 10  # the last version of Fetch whose clients cannot be sent elsewhere
WITH_REFERRALS = 11


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    path = tmp_path_factory.mktemp("reads")
    with RunningCluster(path, settings=PATIENT, proxied=True) as running:
        yield running


def produce(cluster: RunningCluster, topic: str, *values: str, acks: str = "all") -> None:
    """Write values, and wait for what `acks` asks for."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value=value, partition=0)
        assert producer.flush(20) == 0


def fetch(cluster: RunningCluster, name: str, topic: str, *, version: int) -> PartitionData:
    """Partition 0 from its start, as one node gives it, without waiting."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1,
                           topics=[FetchTopic(topic=topic, partitions=[part])])
    with RawConnection("127.0.0.1", cluster[name].port) as raw:
        answer = raw.ask(request, version)
    assert isinstance(answer, FetchResponse)
    (found,) = answer.responses[0].partitions
    assert found.error_code == Code.NONE
    return found


def counted(part: PartitionData) -> int:
    """How many records were sent."""
    found, position = 0, 0
    while position < len(part.records or b""):
        header = parse_header(part.records, position)
        found, position = found + header.count, position + header.size
    return found


def dirty(cluster: RunningCluster, name: str, topic: str) -> list[str]:
    """All that a node has, as `quipu consume --dirty` prints it."""
    shown = run_quipu("consume", topic, "--dirty", "--exit", "--bootstrap",
                      cluster[name].bootstrap)
    assert shown.code == 0, shown.err
    return shown.out.splitlines()


def test_any_node_gives_what_it_knows_to_be_committed(cluster: RunningCluster) -> None:
    """V3: the head serves clients that cannot be redirected, the middle and the tail serve all."""
    cluster.create_topic("history")
    produce(cluster, "history", "one", "two", "three")
    sent_on = fetch(cluster, "a-0", "history", version=WITH_REFERRALS)
    assert (sent_on.preferred_read_replica, counted(sent_on)) == (cluster.node_id("a-2"), 0)
    assert counted(fetch(cluster, "a-0", "history", version=BEFORE_REFERRALS)) == 3
    for version in (BEFORE_REFERRALS, WITH_REFERRALS):
        assert counted(fetch(cluster, "a-2", "history", version=version)) == 3
        for _ in cluster.until("the middle has heard that all is committed"):
            if counted(fetch(cluster, "a-1", "history", version=version)) == 3:
                break


def test_what_is_not_committed_is_shown_only_to_those_who_ask_for_it(
    cluster: RunningCluster,
) -> None:
    """V3: the middle is cut off from the tail; it and the head have a record that is not committed,
    and return it to dirty readers only; after the cut all readers get it.
    """
    assert cluster.proxy is not None
    cluster.create_topic("dirty")
    produce(cluster, "dirty", "committed")
    cluster.proxy.cut(cluster.node_id("a-1"), cluster.node_id("a-2"))
    try:
        produce(cluster, "dirty", "in doubt", acks="1")
        for name in ("a-0", "a-1"):
            for _ in cluster.until(f"{name} has it"):
                if dirty(cluster, name, "dirty") == ["committed", "in doubt"]:
                    break
            clean = fetch(cluster, name, "dirty", version=BEFORE_REFERRALS)
            assert (clean.high_watermark, counted(clean)) == (1, 1)
        assert dirty(cluster, "a-2", "dirty") == ["committed"]
    finally:
        cluster.proxy.heal()
    for name in cluster.chains["a"]:
        for _ in cluster.until(f"{name} knows that it is committed"):
            clean = fetch(cluster, name, "dirty", version=BEFORE_REFERRALS)
            if (clean.high_watermark, counted(clean)) == (2, 2):
                break
        assert dirty(cluster, name, "dirty") == ["committed", "in doubt"]
