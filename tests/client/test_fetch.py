"""Reading ranges: from a node, from another broker, and through every kind of trouble."""

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused, DataLost, TopicRecreated
from quipu.client.fetch import FetchedBatches, fetch, whole_batches
from quipu.client.ranges import Range
from quipu.model.errors import Code, MalformedBytes
from quipu.wire.messages.k01_fetch import FetchRequest, FetchResponse
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header
from quipu.wire.schema import Response
from tests.client.fake_kafka import FakeKafka, fetched
from tests.client.test_cluster import cluster_at
from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker


def batch(*values: bytes, base: int = 0) -> bytes:
    return bytes(encode_batch([Record(None, value) for value in values], base_offset=base))


LOG = [batch(b"a", b"b", base=0), batch(b"c", base=2), batch(b"d", b"e", base=3)]


def read(chunks: Iterator[FetchedBatches]) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Offsets and values by partition, of what lies in the ranges."""
    found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for chunk in chunks:
        topic, partition, first, end, _ = chunk.range
        rows = found.setdefault((topic, partition), [])
        position = 0
        while position < len(chunk.records):
            header = parse_header(chunk.records, position)
            whole = chunk.records[position : position + header.size]
            rows += [(record.offset, record.value or b"")
                     for record in decode_records(whole, size_max=1 << 20)
                     if first <= record.offset < end]
            position += header.size
        assert rows == sorted(set(rows))
    return found


def values(chunks: Iterator[FetchedBatches]) -> list[bytes]:
    """Of the only partition."""
    found = read(chunks)
    return [value for rows in found.values() for _, value in rows]


def test_ranges_of_a_node(broker: Broker) -> None:
    """I18, client.F1: many partitions at once, small responses, ends within batches."""
    topic = broker.topic(partitions=3)
    expected: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for partition in range(3):
        for _ in range(4):
            broker.send(topic, *(f":{number}" for number in range(50)), partition=partition)
        expected[topic, partition] = [(number, b"%d" % (number % 50)) for number in range(5, 180)]
    with cluster_at(broker.bootstrap, max_partition_fetch_bytes="500",
                    fetch_max_bytes="1000") as cluster:
        ranges = [Range(topic, partition, 5, 180) for partition in range(3)]
        assert read(fetch(cluster, ranges)) == expected
        assert read(fetch(cluster, [Range(topic, 0, 7, 7)])) == {}
        some = fetch(cluster, ranges)
        next(some)
        some.close()  # with a request under way
        assert read(fetch(cluster, ranges)) == expected


def test_ranges_of_another_broker(mock: tuple[Producer, str]) -> None:
    """I18: librdkafka's mock cluster, two brokers, versions older than ours."""
    producer, bootstrap = mock
    for number in range(100):
        producer.produce("other", b"%d" % number, partition=number % 4)
    producer.flush(10)
    with cluster_at(bootstrap) as cluster:
        ends = cluster.latest(cluster.partitions(["other"]))
        found = read(fetch(cluster, [Range(*part, 0, end) for part, end in ends.items()]))
    assert {key: [int(value) for _, value in rows] for key, rows in found.items()} == {
        ("other", partition): list(range(partition, 100, 4)) for partition in range(4)}


def test_a_broker_that_restarts_is_waited_for(broker: Broker, node: RunningNode) -> None:
    topic = broker.topic()
    broker.send(topic, *(f":{number}" for number in range(100)))
    with cluster_at(broker.bootstrap, max_partition_fetch_bytes="300") as cluster:
        chunks = fetch(cluster, [Range(topic, 0, 0, 110)])
        got = [next(chunks)]
        node.kill()
        node.start()
        broker.send(topic, *(f":{number}" for number in range(100, 110)))
        got += chunks
    assert values(iter(got)) == [b"%d" % number for number in range(110)]


def test_only_the_range_is_handed_out() -> None:
    """client.F2: whole batches, and none after the end."""
    with FakeKafka() as fake, cluster_at(fake.bootstrap) as cluster:
        fake.serve_log("t", LOG, end=5)
        (chunk,) = fetch(cluster, [Range("t", 0, 1, 3)])
        assert (chunk.first, chunk.next_offset, chunk.high_watermark) == (1, 3, 5)
        assert bytes(chunk.records) == LOG[0] + LOG[1]


def test_a_range_whose_end_was_compacted_away() -> None:
    with FakeKafka() as fake, cluster_at(fake.bootstrap) as cluster:
        fake.serve_log("t", [batch(b"z", base=10)], end=11)
        assert list(fetch(cluster, [Range("t", 0, 0, 8)])) == []
        assert values(fetch(cluster, [Range("t", 0, 0, 11)])) == [b"z"]


def test_trouble_that_passes() -> None:
    """client.F4: leaders move, a broker hangs up, or leaves the partition out."""
    troubles: list[Any] = [
        partial(fetched, topic="t", start=0, end=5, error_code=code)
        for code in (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH, Code.REQUEST_TIMED_OUT)]
    troubles += [lambda _request: None, lambda _request: FetchResponse(),
                 lambda _request: FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND),
                 lambda request: fetched(request, "t", b"", start=0, end=0, high_watermark=0),
                 lambda request: fetched(request, "t", LOG[0][:20], start=0, end=5)]
    left = iter(troubles)

    def answer(request: FetchRequest, _version: int) -> Response | None:
        trouble = next(left, None)
        if trouble is None:
            return fetched(request, "t", b"".join(LOG), start=0, end=5)
        return trouble(request)

    with FakeKafka() as fake, cluster_at(fake.bootstrap) as cluster:
        fake.serve_log("t", LOG, end=5)
        fake.answers[1] = answer
        assert values(fetch(cluster, [Range("t", 0, 0, 5)])) == [b"a", b"b", b"c", b"d", b"e"]
        sizes = [request.topics[0].partitions[0].partition_max_bytes
                 for request, _ in fake.asked if isinstance(request, FetchRequest)]
        assert sizes[-1] == 2 * sizes[0]  # the batch was larger than what was asked for


def test_a_reader_that_takes_its_time(broker: Broker) -> None:
    """Time counts while somebody waits for a broker, not while brokers wait for him."""
    topic = broker.topic()
    for _ in range(6):
        broker.send(topic, *([":" + "x" * 1000] * 300))
    with cluster_at(broker.bootstrap, max_partition_fetch_bytes="1000000",
                    request_timeout_ms="900", fetch_max_wait_ms="50",
                    default_api_timeout_ms="900") as cluster:
        rows = 0
        for chunk in fetch(cluster, [Range(topic, 0, 0, 1800)]):
            time.sleep(0 if rows else 1.2)
            rows += chunk.next_offset - chunk.first
        assert rows == 1800


def test_trouble_that_does_not_pass() -> None:
    with FakeKafka() as fake, cluster_at(fake.bootstrap, default_api_timeout_ms="200") as cluster:
        fake.serve_log("t", LOG, end=5)
        fake.answers[1] = lambda request, _version: fetched(
            request, "t", b"", start=0, end=5, error_code=Code.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerRefused, match="reading t-0: the broker responds with TOPIC_AUTH"):
            list(fetch(cluster, [Range("t", 0, 0, 5)]))
        fake.answers[1] = lambda request, _version: fetched(
            request, "t", b"", start=0, end=5, error_code=Code.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(BrokerRefused, match="NOT_LEADER_OR_FOLLOWER"):
            list(fetch(cluster, [Range("t", 0, 0, 5)]))
        fake.answers[1] = lambda request, _version: fetched(
            request, "t", LOG[0], start=0, end=5)
        with pytest.raises(MalformedBytes, match="asked for offset 3, the broker sends"):
            list(fetch(cluster, [Range("t", 0, 3, 5)]))


def test_a_replica_to_read_from() -> None:
    """The leader names a replica; when that one fails, the leader is asked again."""
    with FakeKafka() as leader, FakeKafka() as replica, cluster_at(leader.bootstrap) as cluster:
        metadata = leader.metadata("t")
        metadata.brokers.append(replica.metadata("t").brokers[0])
        metadata.brokers[1].node_id = 1
        leader.serve_log("t", LOG, end=5)
        leader.answers[3] = lambda _request, _version: metadata
        at_leader = iter([{"preferred_read_replica": 1, "records": b""}, {"records": LOG[2]}])
        leader.answers[1] = lambda request, _version: fetched(
            request, "t", start=0, end=5, **next(at_leader))
        at_replica = iter([{"records": LOG[0] + LOG[1]},
                           {"records": b"", "error_code": Code.OFFSET_OUT_OF_RANGE}])
        replica.answers[18] = leader.answers[18]
        replica.answers[1] = lambda request, _version: fetched(
            request, "t", start=0, end=5, **next(at_replica))
        assert values(fetch(cluster, [Range("t", 0, 0, 5)])) == [b"a", b"b", b"c", b"d", b"e"]
        assert (next(at_leader, None), next(at_replica, None)) == (None, None)


def losses(cluster: Cluster, *ranges: Range) -> tuple[list[bytes], list[str]]:
    """What is read and what is lost where losing is allowed; else the first loss is an error."""
    lost: list[DataLost] = []
    got = values(fetch(cluster, ranges, on_loss=lost.append))
    with pytest.raises(DataLost) as raised:
        list(fetch(cluster, ranges))
    assert str(raised.value) == str(lost[0])
    return got, [str(each) for each in lost]


def test_data_that_is_gone() -> None:
    """I14, client.F3: aged out, cut off, deleted; an error, or taken note of."""
    with FakeKafka() as fake, cluster_at(fake.bootstrap, default_api_timeout_ms="100") as cluster:
        fake.serve_log("t", LOG[1:], start=2, end=5)
        assert losses(cluster, Range("t", 0, 0, 5)) == ([b"c", b"d", b"e"], [
            "t-0: offsets 0 to 2 (exclusive) are gone: the log begins at 2"])
        assert losses(cluster, Range("t", 0, 0, 2)) == ([], [
            "t-0: offsets 0 to 2 (exclusive) are gone: the log begins at 2"])
        got, (lost,) = losses(cluster, Range("t", 0, 7, 9))
        assert (got, "t-0: offsets 7 to 9 (exclusive) are gone: the log was truncated" in lost) == (
            [], True)
        got, (lost,) = losses(cluster, Range("t", 0, 3, 9))
        assert (got, "the log ends at 5" in lost) == ([b"d", b"e"], True)


def test_a_topic_that_is_made_anew() -> None:
    """Before it is read, it is the one that is meant; while it is read, it is another one."""
    with FakeKafka() as fake, cluster_at(fake.bootstrap, retry_backoff_ms="1") as cluster:
        fake.serve_log("t", LOG, end=5)
        ids = [UUID(int=1)]  # the last one is that of now
        fake.answers[3] = lambda _request, _version: fake.metadata("t", topic_id=ids[-1])

        def answer(request: FetchRequest, _version: int) -> Response:
            if request.topics[0].topic_id != ids[-1]:
                return fetched(request, "t", start=0, end=5, error_code=Code.UNKNOWN_TOPIC_ID)
            ids.append(UUID(int=3))
            return fetched(request, "t", LOG[0], start=0, end=5)

        fake.answers[1] = answer
        cluster.partitions(["t"])
        ids.append(UUID(int=2))
        chunks = fetch(cluster, [Range("t", 0, 0, 5)])
        assert bytes(next(chunks).records) == LOG[0]
        with pytest.raises(DataLost, match="the topic was deleted and created anew"):
            next(chunks)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_range_of_one_topic_is_not_read_from_another_of_its_name(
    broker: Broker, *, is_known: bool
) -> None:
    """I13, I15, client.F5: though the new one has these offsets too, however old metadata is."""
    topic, kept = broker.topic(), broker.topic()
    broker.send(topic, *(f":{number}" for number in range(5)))
    broker.send(kept, ":x")
    with cluster_at(broker.bootstrap, retry_backoff_ms="1") as cluster:
        cluster.partitions([topic, kept])
        old = cluster.topic_ids([topic])[topic]
        bound = Range(topic, 0, 0, 5, old)
        assert values(fetch(cluster, [bound])) == [b"0", b"1", b"2", b"3", b"4"]
        broker.delete(topic)
        broker.topic(name=topic)
        broker.send(topic, *(f":new{number}" for number in range(9)))
        if is_known:
            cluster.refresh([topic])
        got, (lost,) = losses(cluster, bound, Range(kept, 0, 0, 1))
        assert got == [b"x"]
        assert f"created anew (its id was {old}, and is" in lost
        with pytest.raises(TopicRecreated) as raised:
            values(fetch(cluster, [bound]))
        assert isinstance(pickle.loads(pickle.dumps(raised.value)), TopicRecreated)
        new = cluster.topic_ids([topic])[topic]
        assert len(values(fetch(cluster, [Range(topic, 0, 0, 9, new)]))) == 9


def test_a_range_may_know_a_topic_that_the_metadata_does_not_know_yet(broker: Broker) -> None:
    """I13: then the metadata is asked for anew; nothing is lost."""
    topic = broker.topic()
    with cluster_at(broker.bootstrap, retry_backoff_ms="1") as cluster:
        cluster.partitions([topic])
        broker.delete(topic)
        broker.topic(name=topic)
        broker.send(topic, ":x")
        with cluster_at(broker.bootstrap) as other:
            new = other.topic_ids([topic])[topic]
        assert values(fetch(cluster, [Range(topic, 0, 0, 1, new)])) == [b"x"]


def test_a_topic_that_is_deleted(broker: Broker) -> None:
    topic, kept = broker.topic(), broker.topic()
    broker.send(kept, ":x")
    with cluster_at(broker.bootstrap, default_api_timeout_ms="300") as cluster:
        cluster.partitions([topic, kept])
        broker.delete(topic)
        got, (lost,) = losses(cluster, Range(topic, 0, 0, 5), Range(kept, 0, 0, 1))
        assert (got, lost.endswith("the topic was deleted")) == ([b"x"], True)
        got, (lost,) = losses(cluster, Range(topic, 0, 0, 5), Range(kept, 0, 0, 1))
        assert (got, lost.endswith("the topic was deleted")) == ([b"x"], True)


def test_old_brokers_know_topics_by_name_alone() -> None:
    versions = {18: (0, 2), 1: (4, 11), 2: (1, 5), 3: (0, 8)}
    with FakeKafka(versions=versions) as fake, cluster_at(fake.bootstrap) as cluster:
        fake.serve_log("t", LOG, end=5)
        assert values(fetch(cluster, [Range("t", 0, 0, 5)])) == [b"a", b"b", b"c", b"d", b"e"]
        assert [version for request, version in fake.asked
                if isinstance(request, FetchRequest)] == [11]


def test_a_busy_partition_does_not_starve_another(broker: Broker) -> None:
    """Answers that are full of one partition leave another out: that is no trouble."""
    topic = broker.topic(partitions=2)
    for partition, count in ((0, 300), (1, 20)):
        for _ in range(count // 20):
            broker.send(topic, *([":" + "x" * 100] * 20), partition=partition)
    with cluster_at(broker.bootstrap, fetch_max_bytes="3000") as tight:
        tight.partitions([topic])  # in its own time, however busy the machine is
        tight.settings = replace(tight.settings, default_api_timeout_ms=1)
        found = read(fetch(tight, [Range(topic, 0, 0, 300), Range(topic, 1, 0, 20)]))
    assert {key[1]: len(rows) for key, rows in found.items()} == {0: 300, 1: 20}


@settings(max_examples=100)
@given(st.lists(st.integers(1, 5), max_size=5), st.integers(0, 20), st.integers(0, 400))
def test_whole_batches(counts: list[int], end: int, cut: int) -> None:
    """Those that are whole and begin before the end, whatever follows."""
    log, offset, expected, size = b"", 0, -1, 0
    ends = []
    for count in counts:
        log += batch(*[b"v" * count] * count, base=offset)
        ends.append((len(log), offset, offset + count))
        offset += count
    log = log[: len(log) - min(cut, len(log))]
    for stop, first, next_offset in ends:
        if stop <= len(log) and first < end:
            size, expected = stop, next_offset
    assert whole_batches(memoryview(log), end) == (size, expected)


def test_what_is_no_batch() -> None:
    for bad in (b"\xff" * 100, LOG[0][:16] + b"\x01" + LOG[0][17:], bytes(61)):
        with pytest.raises(MalformedBytes, match="no record batch of version 2"):
            whole_batches(memoryview(bad), 100)
