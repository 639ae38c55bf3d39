"""Whom an admin request is sent to, for how long, and what is raised when nobody responds."""

import time
from collections.abc import Iterator

import pytest

from quipu.client.admin.chains import create_chain, describe_chains
from quipu.client.admin.quorum import add_voter, describe_quorum
from quipu.client.admin.routing import ask_any
from quipu.client.admin.topics import create_topic, delete_topic
from quipu.client.cluster import Cluster
from quipu.client.errors import BrokerRefused, ClientError, ConnectionFailed, NotServed
from quipu.client.settings import client_settings
from quipu.model.errors import Code
from quipu.wire.messages.k03_metadata import MetadataResponse, MetadataResponseBroker
from quipu.wire.messages.k19_create_topics import CreatableTopicResult, CreateTopicsResponse
from quipu.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsResponse
from quipu.wire.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterResponse
from quipu.wire.messages.k10000_describe_chains import DescribeChainsResponse, DescribedChain
from quipu.wire.messages.k10001_create_chain import CreateChainResponse
from tests.client.fake_kafka import FakeKafka


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as running:
        running.answers[3] = lambda _request, _version: MetadataResponse()
        yield running


def client(*fakes: FakeKafka, seconds: float = 5.0) -> Cluster:
    return Cluster(client_settings({
        "bootstrap.servers": ",".join(each.bootstrap for each in fakes),
        "default.api.timeout.ms": str(int(seconds * 1000)), "request.timeout.ms": "2000",
        "retry.backoff.ms": "10"}))


def made(code: Code = Code.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(
        name="t", error_code=code, error_message="in words", num_partitions=3)])


def test_a_refusal_has_the_brokers_code_and_words(fake: FakeKafka) -> None:
    """client.R1: what will not pass is raised at once, and asked once."""
    fake.answers[19] = lambda _request, _version: made(Code.INVALID_PARTITIONS)
    words = r"^cannot create topic t: in words \[INVALID_PARTITIONS\]$"
    with client(fake) as cluster, pytest.raises(BrokerRefused, match=words) as raised:
        create_topic(cluster, "t")
    assert raised.value.code is Code.INVALID_PARTITIONS
    assert [request.KEY for request, _ in fake.asked].count(19) == 1


def test_what_passes_by_itself_is_asked_again(fake: FakeKafka) -> None:
    """client.R1: a cluster without a controller has one soon."""
    responses = iter([made(Code.NOT_CONTROLLER), made(Code.REQUEST_TIMED_OUT), made()])
    fake.answers[19] = lambda _request, _version: next(responses)
    with client(fake) as cluster:
        assert create_topic(cluster, "t").partition_count == 3


def test_the_last_response_counts_when_the_time_is_over(fake: FakeKafka) -> None:
    fake.answers[19] = lambda _request, _version: made(Code.NOT_CONTROLLER)
    begun = time.monotonic()
    with client(fake, seconds=0.2) as cluster, pytest.raises(BrokerRefused, match="NOT_CONTROLLER"):
        create_topic(cluster, "t")
    assert time.monotonic() - begun < 10


def test_done_by_an_earlier_attempt_is_done(fake: FakeKafka) -> None:
    """client.R2: after a time-out "it exists", or "it does not", says that it had worked."""
    topic = iter([made(Code.REQUEST_TIMED_OUT), made(Code.TOPIC_ALREADY_EXISTS)])
    fake.answers[19] = lambda _request, _version: next(topic)
    gone = iter([Code.REQUEST_TIMED_OUT, Code.UNKNOWN_TOPIC_OR_PARTITION])
    fake.answers[20] = lambda _request, _version: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="t", error_code=next(gone))])
    chain = iter([Code.REQUEST_TIMED_OUT, Code.DUPLICATE_RESOURCE])
    fake.answers[10_001] = lambda _request, _version: CreateChainResponse(error_code=next(chain))
    fake.answers[10_000] = lambda _request, _version: DescribeChainsResponse(
        chains=[DescribedChain(name="a", epoch=4)])
    voter = iter([Code.REQUEST_TIMED_OUT, 126])
    fake.answers[80] = lambda _request, _version: AddRaftVoterResponse(error_code=next(voter))
    with client(fake) as cluster:
        create_topic(cluster, "t")
        delete_topic(cluster, "t")
        assert create_chain(cluster, "a", []).epoch == 4
        add_voter(cluster, 7)


def test_a_connection_that_died_is_made_anew(fake: FakeKafka) -> None:
    """client.R2: whatever was under way may have been done."""
    fake.answers[55] = lambda _request, _version: DescribeQuorumResponse()
    request = DescribeQuorumRequest(topics=[])
    with client(fake) as cluster:
        assert not ask_any(cluster, request, DescribeQuorumResponse).may_repeat
        fake.hang_up()
        assert ask_any(cluster, request, DescribeQuorumResponse).may_repeat
    assert fake.accepted == 2


def test_nodes_that_another_names_are_asked(fake: FakeKafka) -> None:
    """V5: any node will do, also one that --bootstrap does not name."""
    with FakeKafka() as confused:
        confused.answers[19] = lambda _request, _version: made(Code.NOT_CONTROLLER)
        confused.answers[3] = lambda _request, _version: MetadataResponse(brokers=[
            MetadataResponseBroker(node_id=1, host="localhost", port=fake.port)])
        fake.answers[19] = lambda _request, _version: made()
        with client(confused) as cluster:
            assert create_topic(cluster, "t").partition_count == 3


def test_nobody_is_there() -> None:
    """Every address is named with its reason, at once and not when the time is over."""
    with FakeKafka() as gone, FakeKafka() as other:
        cluster = client(gone, other, seconds=60)
    begun = time.monotonic()
    with cluster, pytest.raises(ConnectionFailed, match=(
            r"^no broker responds at localhost:\d+ \(Connection refused\), localhost:\d+ \(Conn")):
        describe_chains(cluster)
    assert time.monotonic() - begun < 10


def test_a_broker_that_is_no_quipu(fake: FakeKafka) -> None:
    fake.versions = {key: each for key, each in fake.versions.items() if key < 10_000}
    with client(fake) as cluster, pytest.raises(NotServed, match="another Kafka broker, or an old"):
        describe_chains(cluster)


def test_a_quorum_without_a_leader(fake: FakeKafka) -> None:
    fake.answers[55] = lambda _request, _version: DescribeQuorumResponse(
        error_code=Code.UNKNOWN_SERVER_ERROR)
    with client(fake) as cluster, pytest.raises(ClientError, match="half of the voters or more"):
        describe_quorum(cluster)
