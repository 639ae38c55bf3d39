"""Sequences of producers whose batches go to any node of a cluster, on diskless topics."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from quipu.model.errors import Code
from quipu.wire.frame import encode_request
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.harness.cluster import RunningCluster
from tests.harness.diskless_site import DisklessSite
from tests.harness.here import batch_of, produce
from tests.harness.progress import wait_for
from tests.harness.raw import RawConnection
from tests.harness.s3_server import S3Server
from tests.harness.writers import Writer, anomalies, await_progress, read_topic, running

SEQUENCE_MAX = (1 << 31) - 1
PRODUCE_VERSION = 9


@pytest.fixture(scope="module")
def site(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DisklessSite]:
    with DisklessSite(tmp_path_factory.mktemp("sequences"), s3_server) as running:
        yield running


@pytest.fixture
def cluster(site: DisklessSite) -> RunningCluster:
    return site.cluster


def put(
    cluster: RunningCluster, name: str, topic: str, *values: bytes, producer: int, sequence: int,
    epoch: int = 0,
) -> tuple[int, int]:
    """One batch through a node; its error and its base offset."""
    node = cluster[name]
    batch = batch_of(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    with RawConnection(node.host, node.port, timeout=60) as raw:
        response: Any = raw.ask(produce(topic, batch, acks=-1), PRODUCE_VERSION)
    part = response.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def end_of(cluster: RunningCluster, name: str, topic: str) -> int:
    """The high watermark, as a node has it."""
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
    with RawConnection(cluster[name].host, cluster[name].port, timeout=60) as raw:
        response: Any = raw.ask(request, 5)
    return int(response.topics[0].partitions[0].offset)


def values_of(cluster: RunningCluster, topic: str) -> list[str]:
    """All values in their order; offsets are dense."""
    reads = read_topic(cluster.bootstrap, topic, 1)
    assert [read.offset for read in reads] == list(range(len(reads)))
    return [read.value for read in reads]


def test_stock_clients_can_be_tied_to_a_node(site: DisklessSite, cluster: RunningCluster) -> None:
    """D1: so that several of them write to one partition through different nodes."""
    site.create_topic("tied")
    for name in cluster.nodes:
        address = site.pinned(name)
        admin = AdminClient({"bootstrap.servers": address})
        brokers = admin.list_topics(timeout=60).brokers.values()
        assert {f"{broker.host}:{broker.port}" for broker in brokers} == {address}
        assert len(brokers) == len(cluster.nodes)
    writers = [Writer(name, site.pinned(name), "tied", [0], random.Random(place))
               for place, name in enumerate(cluster.nodes)]
    with running(writers, cluster.logs):
        await_progress(writers, cluster.logs)
    assert anomalies("tied", writers, [read_topic(site.bootstrap, "tied", 1)]) == []


def test_sequences_wrap_around(site: DisklessSite, cluster: RunningCluster) -> None:
    """D3, K2: after 2^31 - 1 comes 0, also within a batch and on another node."""
    site.create_topic("wrapped")
    none = Code.NONE
    assert put(cluster, "a-0", "wrapped", b"a", b"b", producer=71,
               sequence=SEQUENCE_MAX - 2) == (none, 0)
    assert put(cluster, "a-1", "wrapped", b"c", b"d", producer=71,
               sequence=SEQUENCE_MAX) == (none, 2)
    assert put(cluster, "a-2", "wrapped", b"c", b"d", producer=71,
               sequence=SEQUENCE_MAX) == (none, 2), "a repetition has its first offset"
    assert put(cluster, "a-0", "wrapped", b"?", producer=71,
               sequence=0)[0] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER, "0 is used up"
    assert put(cluster, "a-2", "wrapped", b"e", producer=71, sequence=1) == (none, 4)
    assert put(cluster, "a-0", "wrapped", b"a", b"b", producer=71,
               sequence=SEQUENCE_MAX - 2) == (none, 0)
    assert values_of(cluster, "wrapped") == ["a", "b", "c", "d", "e"]


def test_a_new_epoch_fences_the_old_one_on_all_nodes(
    site: DisklessSite, cluster: RunningCluster
) -> None:
    """D3: sequences begin again with the epoch; a producer of the old one is refused anywhere."""
    site.create_topic("bumped")
    assert put(cluster, "a-0", "bumped", b"a", producer=72, sequence=0) == (Code.NONE, 0)
    assert put(cluster, "a-1", "bumped", b"b", producer=72, sequence=1) == (Code.NONE, 1)
    assert put(cluster, "a-2", "bumped", b"?", producer=72, epoch=1,
               sequence=2)[0] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(cluster, "a-2", "bumped", b"c", producer=72, epoch=1, sequence=0) == (Code.NONE, 2)
    for name in cluster.nodes:
        for sequence in (1, 2):
            assert put(cluster, name, "bumped", b"?", producer=72,
                       sequence=sequence)[0] == Code.INVALID_PRODUCER_EPOCH
    assert put(cluster, "a-0", "bumped", b"d", producer=72, epoch=1, sequence=1) == (Code.NONE, 3)
    assert values_of(cluster, "bumped") == ["a", "b", "c", "d"]


def test_a_batch_whose_answer_was_lost_is_written_once(
    site: DisklessSite, cluster: RunningCluster
) -> None:
    """D3, D33: repeated on another node, at once or when it is there; the first offset is told."""
    site.create_topic("repeated")
    count = 12
    names = list(cluster.nodes)
    for sequence in range(count):
        node, other = (cluster[names[(sequence + place) % 3]] for place in (0, 1))
        request = produce("repeated", batch_of(
            b"%d" % sequence, producer_id=73, producer_epoch=0, base_sequence=sequence), acks=-1)
        with RawConnection(node.host, node.port) as raw:
            raw.send(encode_request(request, PRODUCE_VERSION, correlation_id=1))
            if sequence % 2:  # the first one is committed before the repetition comes
                wait_for(lambda wanted=sequence + 1, at=other:  # type: ignore[misc]
                         end_of(cluster, at.directory.name, "repeated") == wanted)
        assert put(cluster, other.directory.name, "repeated", b"%d" % sequence, producer=73,
                   sequence=sequence) == (Code.NONE, sequence)
    assert values_of(cluster, "repeated") == [str(sequence) for sequence in range(count)]


def test_one_producer_on_two_nodes_writes_each_sequence_once(
    site: DisklessSite, cluster: RunningCluster
) -> None:
    """D3, D33: two nodes race with the same sequences; both are told the same offsets."""
    site.create_topic("raced")
    count = 40
    told: dict[str, list[tuple[int, int]]] = {}

    def write(name: str) -> None:
        told[name] = [put(cluster, name, "raced", b"%d by %s" % (sequence, name.encode()),
                          producer=74, sequence=sequence) for sequence in range(count)]

    in_threads([lambda: write("a-0"), lambda: write("a-1")])

    assert told["a-0"] == told["a-1"] == [(Code.NONE, sequence) for sequence in range(count)]
    found = values_of(cluster, "raced")
    assert [value.split()[0] for value in found] == [str(sequence) for sequence in range(count)]


def test_a_zombie_writes_nothing_after_its_successor(
    site: DisklessSite, cluster: RunningCluster
) -> None:
    """D3, D33: from the first batch of a new epoch on, through any node."""
    site.create_topic("fenced")
    errors: list[int] = []
    fenced = threading.Event()

    def zombie() -> None:
        sequence = 0
        while True:
            is_late = fenced.is_set()
            error, _ = put(cluster, "a-0", "fenced", b"old", producer=75, sequence=sequence)
            errors.append(error)
            if is_late or error != Code.NONE:
                return
            sequence += 1

    def successor() -> None:
        wait_for(lambda: len(errors) > 5)
        for sequence in range(20):
            error, _ = put(cluster, "a-1", "fenced", b"new", producer=75, epoch=1,
                           sequence=sequence)
            assert error == Code.NONE
            fenced.set()

    in_threads([zombie, successor])

    assert errors[-1] == Code.INVALID_PRODUCER_EPOCH
    assert set(errors[:-1]) == {Code.NONE}
    assert values_of(cluster, "fenced") == ["old"] * (len(errors) - 1) + ["new"] * 20


def in_threads(calls: list[Callable[[], None]]) -> None:
    """Run some calls at the same time; the first failure is raised."""
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failures:
        raise error
