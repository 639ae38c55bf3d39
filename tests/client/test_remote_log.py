"""What a client believes of a leader's answer about its remote segments."""

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused, NotServed
from quipu.client.ranges import Range
from quipu.client.remote_log import SEGMENTS_MAX, describe_remote_log
from quipu.client.settings import client_settings
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribedRemotePartition,
    DescribedRemoteSegment,
    DescribedRemoteTopic,
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
)
from tests.client.fake_kafka import TOPIC_ID, FakeKafka
from tests.pipeline.spark.broker import Broker

KEY = DescribeRemoteSegmentsRequest.KEY
WANTED = Range("t", 0, 10, 100)
NAME = TopicPartition("t", 0)
SEGMENT_ID = UUID(int=9)


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as found:
        found.serve_log("t", [], end=0)
        yield found


def cluster_of(bootstrap: str) -> Cluster:
    return Cluster(client_settings({
        "bootstrap.servers": bootstrap, "default.api.timeout.ms": "20000",
        "retry.backoff.ms": "10"}))


def segment(first: int, last: int, **fields: object) -> DescribedRemoteSegment:
    return DescribedRemoteSegment(  # type: ignore[arg-type]
        start_offset=first, end_offset=last, segment_id=SEGMENT_ID, custom_metadata=b"m", **fields)


def told(*segments: DescribedRemoteSegment, **fields: object) -> DescribeRemoteSegmentsResponse:
    part = DescribedRemotePartition(  # type: ignore[arg-type]
        log_start_offset=0, local_start_offset=90, segments=list(segments), **fields)
    return DescribeRemoteSegmentsResponse(storage_url="file:///x", topics=[
        DescribedRemoteTopic(name="t", topic_id=TOPIC_ID, partitions=[part])])


def test_segments_without_a_gap(fake: FakeKafka) -> None:
    """I17: client.L1: also if one begins before the end of the one before it."""
    fake.answers[KEY] = lambda request, version: told(
        segment(0, 20), segment(15, 30), segment(31, 89), is_complete=False)
    with cluster_of(fake.bootstrap) as cluster:
        part = describe_remote_log(cluster, [WANTED])[NAME]
    assert [(each.first, each.end) for each in part.segments] == [(0, 21), (15, 31), (31, 90)]
    assert (part.topic_id, part.log_start, part.local_start, part.next_offset) == (
        TOPIC_ID, 0, 90, 90)


@pytest.mark.parametrize("answer", [
    lambda: told(segment(11, 20)),  # it does not hold the first offset
    lambda: told(segment(0, 9)),
    lambda: told(segment(10, 20), segment(22, 30)),  # a gap
    lambda: told(segment(10, 20), segment(5, 20)),  # nothing new
    lambda: told(segment(10, 99), segment(100, 120)),  # more than was asked for
    lambda: told(segment(-5, 20)),
    lambda: told(segment(10, 2**63 - 1)),
    lambda: told(segment(10, 20, size=-1)),
    lambda: told(*(segment(10, 10 + each) for each in range(SEGMENTS_MAX + 1))),
    lambda: told(DescribedRemoteSegment(
        start_offset=10, end_offset=20, custom_metadata=bytes(1000))),
    lambda: DescribeRemoteSegmentsResponse(storage_url="x" * 5000),
])
def test_wrong_answers_are_refused(
    fake: FakeKafka, answer: Callable[[], DescribeRemoteSegmentsResponse]
) -> None:
    """I17: client.L2: nothing of them is used."""
    fake.answers[KEY] = lambda request, version: answer()
    with cluster_of(fake.bootstrap) as cluster, pytest.raises(MalformedBytes):
        describe_remote_log(cluster, [WANTED])


@pytest.mark.parametrize("code", [Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT])
def test_leaders_are_asked_again(fake: FakeKafka, code: Code) -> None:
    """I17: until the time is over."""
    answers = [told(error_code=code), told(segment(10, 20))]
    last = told(error_code=code)
    fake.answers[KEY] = lambda request, version: answers.pop(0) if answers else last
    with cluster_of(fake.bootstrap) as cluster:
        assert describe_remote_log(cluster, [WANTED])[NAME].segments
        with pytest.raises(BrokerRefused):
            describe_remote_log(cluster, [WANTED], seconds=0.1)


def test_an_answer_that_leaves_a_partition_out(fake: FakeKafka) -> None:
    """I17: is no answer."""
    fake.answers[KEY] = lambda request, version: DescribeRemoteSegmentsResponse()
    with cluster_of(fake.bootstrap) as cluster, pytest.raises(QuipuError):
        describe_remote_log(cluster, [WANTED], seconds=0.05)


def test_kafka_is_not_asked(fake: FakeKafka) -> None:
    """I17, I18: a broker that does not serve the request is known by ApiVersions."""
    with cluster_of(fake.bootstrap) as cluster, pytest.raises(NotServed):
        describe_remote_log(cluster, [WANTED])
    assert all(request.KEY != KEY for request, _ in fake.asked)


def test_a_node_without_a_tier(broker: Broker) -> None:
    """I17: says that there are no segments, and that all offsets are local."""
    topic = broker.topic()
    with cluster_of(broker.bootstrap) as cluster:
        part = describe_remote_log(cluster, [Range(topic, 0, 0, 10)])[TopicPartition(topic, 0)]
    assert (part.segments, part.local_start, part.store_url) == ((), 0, None)
