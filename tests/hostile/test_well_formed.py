"""Small, well-formed requests that ask for much: duplicates, many elements, everything there is.

Each attack is repeated while a bystander is served; afterwards the node's memory is within bounds,
and it starts again from what is on its disk.
"""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from quipu.broker import handlers
from quipu.model.settings import BrokerSettings
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages import REQUESTS
from quipu.wire.messages.k00_produce import ProduceRequest
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from quipu.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from quipu.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from quipu.wire.schema import Request, Response
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander, undisturbed
from tests.hostile.conftest import MIB, anonymous_size
from tests.hostile.scrape import await_metric
from tests.hostile.well_formed import (
    EachAnother,
    Extremes,
    Path,
    Values,
    array_paths,
    request_of,
)

pytestmark = pytest.mark.xdist_group("hostile-well-formed")  # one node for all

ELEMENTS_MAX = BrokerSettings().max_request_elements
RESPONSE_SIZE_MAX = 4 * MIB  # max.response.bytes
ANONYMOUS_MAX = 160 * MIB
WIDE = "wide"  # a topic of many partitions
PARTITIONS = 5_000
GROUP = "committed"  # a group that has committed an offset for each of them
ANSWER_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a topic of many partitions, and a group that has read all of them."""
    settings = {"max.response.bytes": str(RESPONSE_SIZE_MAX), "max.partitions": "6000",
                "queued.max.response.bytes": str(16 * MIB)}
    with RunningNode(tmp_path_factory.mktemp("well_formed") / "data", settings=settings) as node:
        made = ask(node, CreateTopicsRequest(timeout=60_000, topics=[
            CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1),
            CreatableTopic(name=WIDE, num_partitions=PARTITIONS, replication_factor=-1)]), 7)
        assert isinstance(made, CreateTopicsResponse)
        assert [topic.error_code for topic in made.topics] == [0, 0]
        ask(node, FindCoordinatorRequest(key=GROUP), 3)
        commit(node, GROUP, PARTITIONS)
        yield node
        assert node.stop() == 0


@pytest.fixture
def attacked(wide: RunningNode) -> Iterator[RunningNode]:
    """The node; after the test its memory is bounded, and it starts again and has all it had."""
    yield wide
    size = anonymous_size(wide)
    assert size < ANONYMOUS_MAX, f"{size / MIB:.0f} MiB"
    wide.restart()
    committed = ask(wide, OffsetFetchRequest(group_id=GROUP, topics=None), 7)
    assert isinstance(committed, OffsetFetchResponse)
    (topic,) = committed.topics
    assert [part.committed_offset for part in topic.partitions] == list(range(PARTITIONS))


def ask(node: RunningNode, request: Request, version: int) -> Response:
    with RawConnection(node.host, node.port, timeout=ANSWER_SECONDS_MAX) as connection:
        return connection.ask(request, version)


def commit(node: RunningNode, group: str, partitions: int) -> None:
    """Commit offset n for partition n of the wide topic."""
    half = ELEMENTS_MAX // 2
    for first in range(0, partitions, half):
        answer = ask(node, OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, retention_time=-1,
            topics=[OffsetCommitRequestTopic(name=WIDE, partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=index,
                                             committed_metadata="")
                for index in range(first, min(first + half, partitions))])]), 8)
        assert isinstance(answer, OffsetCommitResponse)
        assert {part.error_code for part in answer.topics[0].partitions} == {0}


def attack(node: RunningNode, request: Request, version: int) -> tuple[Response, int]:
    """Repeat a request while a bystander is served; return the last response, and its size."""
    frame = encode_request(request, version, correlation_id=7)
    with RawConnection(node.host, node.port, timeout=ANSWER_SECONDS_MAX) as connection:
        answers: list[bytes] = [b""]

        def once() -> None:
            connection.send(frame)
            answers[0] = connection.receive_frame()

        told = undisturbed(node, once, anonymous_max=ANONYMOUS_MAX)
    name = type(request).__name__
    print(f"{name} v{version}: {len(frame)} bytes, answer {len(answers[0])}; {told}")
    assert len(answers[0]) <= RESPONSE_SIZE_MAX + 1000
    return decode_response(memoryview(answers[0]), request.KEY, version)[1], len(answers[0])


# -- the same, again and again


def test_one_group_a_thousand_times(attacked: RunningNode) -> None:
    """K8: OffsetFetch of everything, for one group named 1,500 times: 8 KB were 767 MiB."""
    request = OffsetFetchRequest(groups=[
        OffsetFetchRequestGroup(group_id=GROUP, topics=None) for _ in range(1_500)])
    answer, size = attack(attacked, request, 8)
    assert isinstance(answer, OffsetFetchResponse)
    (group,) = answer.groups
    assert len(group.topics[0].partitions) == PARTITIONS
    assert size < 40 * PARTITIONS


def test_one_partition_s_producers_thousands_of_times(attacked: RunningNode) -> None:
    """K8: DescribeProducers of one partition."""
    request = DescribeProducersRequest(topics=[
        TopicRequest(name=WIDE, partition_indexes=[0] * (ELEMENTS_MAX - 1))])
    answer, _ = attack(attacked, request, 0)
    assert isinstance(answer, DescribeProducersResponse)
    assert len(answer.topics[0].partitions) == 1


def test_one_topic_s_settings_thousands_of_times(attacked: RunningNode) -> None:
    """K8: DescribeConfigs with synonyms and documentation."""
    request = DescribeConfigsRequest(
        include_synonyms=True, include_documentation=True, resources=[
            DescribeConfigsResource(resource_type=2, resource_name=WIDE, configuration_keys=None)
            for _ in range(ELEMENTS_MAX)])
    answer, size = attack(attacked, request, 4)
    assert isinstance(answer, DescribeConfigsResponse)
    assert len(answer.results) == 1
    assert size < 20_000


def test_one_group_described_thousands_of_times(attacked: RunningNode) -> None:
    """K8: DescribeGroups."""
    answer, _ = attack(attacked, DescribeGroupsRequest(groups=[GROUP] * ELEMENTS_MAX), 5)
    assert isinstance(answer, DescribeGroupsResponse)
    assert len(answer.groups) == 1


def test_one_topic_created_thousands_of_times(attacked: RunningNode) -> None:
    """K8: CreateTopics refuses a name that comes twice, once."""
    request = CreateTopicsRequest(timeout=10_000, topics=[
        CreatableTopic(name="twice", num_partitions=1, replication_factor=-1)
        for _ in range(ELEMENTS_MAX)])
    answer, _ = attack(attacked, request, 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("twice", 42)]


# -- as many different ones as may be


def test_coordinators_of_many_groups(attacked: RunningNode) -> None:
    """K8: FindCoordinator for ten thousand keys."""
    keys = [f"group-{number}" for number in range(ELEMENTS_MAX)]
    answer, _ = attack(attacked, FindCoordinatorRequest(coordinator_keys=keys), 6)
    assert isinstance(answer, FindCoordinatorResponse)
    assert [each.key for each in answer.coordinators] == keys


def test_many_topics_that_would_clash(attacked: RunningNode) -> None:
    """K8: CreateTopics compares names in linear time, and is decided in steps."""
    request = CreateTopicsRequest(timeout=10_000, validate_only=True, topics=[
        CreatableTopic(name=f"clash.{number}", num_partitions=1, replication_factor=-1)
        for number in range(ELEMENTS_MAX)])
    answer, _ = attack(attacked, request, 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert len(answer.topics) == ELEMENTS_MAX


def test_all_topics_again_and_again(attacked: RunningNode) -> None:
    """K8: Metadata of a topic with thousands of partitions."""
    _, size = attack(attacked, MetadataRequest(topics=None), 12)
    assert size < 60 * PARTITIONS


def test_too_much_is_refused(attacked: RunningNode) -> None:
    """K8: a request whose response would be too large gets an error that says what to do."""
    resources = [DescribeConfigsResource(resource_type=4, resource_name=name,
                                         configuration_keys=None) for name in ("", "1")]
    small = ask(attacked, DescribeConfigsRequest(resources=resources), 4)
    assert isinstance(small, DescribeConfigsResponse)
    assert {result.error_code for result in small.results} == {0}
    groups = [f"large-{number}" for number in range(60)]
    for group in groups:
        commit(attacked, group, PARTITIONS)
    answer, _ = attack(attacked, OffsetFetchRequest(groups=[
        OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]), 8)
    assert isinstance(answer, OffsetFetchResponse)
    assert {(group.error_code, len(group.topics)) for group in answer.groups} == {(42, 0)}
    deleted = ask(attacked, DeleteGroupsRequest(groups_names=groups), 2)  # what they hold is much
    assert isinstance(deleted, DeleteGroupsResponse)
    assert {result.error_code for result in deleted.results} == {0}


def test_elements_are_counted(attacked: RunningNode) -> None:
    """K8: one element more than allowed: an error where there is a place for one, or the end."""
    with RawConnection(attacked.host, attacked.port) as connection:
        connection.send(encode_request(
            DescribeGroupsRequest(groups=[GROUP] * (ELEMENTS_MAX + 1)), 5, correlation_id=1))
        assert connection.is_closed_by_peer()
    answer = ask(attacked, request_of(OffsetFetchRequest, 7, ("topics",), ELEMENTS_MAX + 1), 7)
    assert isinstance(answer, OffsetFetchResponse)
    assert (answer.error_code, answer.topics) == (42, [])
    assert "max.request.elements" in attacked.log_text()


def test_answers_that_nobody_takes(attacked: RunningNode) -> None:
    """K8: broker.serving.Q3; fifty peers ask for everything and read nothing: memory is bounded,
    others are served.
    """
    frame = encode_request(MetadataRequest(topics=None), 12, correlation_id=1)
    with contextlib.ExitStack() as opened, Bystander(attacked) as bystander:
        for _ in range(50):
            peer = opened.enter_context(RawConnection(attacked.host, attacked.port))
            peer.send(frame * 20)
        ask(attacked, MetadataRequest(topics=None), 12)
        assert anonymous_size(attacked) < ANONYMOUS_MAX
    bystander.verdict()


def test_partitions_are_counted(attacked: RunningNode) -> None:
    """K5, K8: at most max.partitions for all clients; the error names the setting."""
    answer = ask(attacked, CreateTopicsRequest(timeout=10_000, topics=[
        CreatableTopic(name="more", num_partitions=1_000, replication_factor=-1)]), 7)
    assert isinstance(answer, CreateTopicsResponse)
    (topic,) = answer.topics
    assert (topic.error_code, "max.partitions" in (topic.error_message or "")) == (44, True)
    refusals = 'quipu_limit_refusals_total{limit="max.partitions"}'
    await_metric(attacked, refusals, lambda count: count == 1)
    more = ask(attacked, CreatePartitionsRequest(timeout=10_000, topics=[
        CreatePartitionsTopic(name=WIDE, count=PARTITIONS + 2_000, assignments=None)]), 3)
    assert isinstance(more, CreatePartitionsResponse)
    assert [topic.error_code for topic in more.results] == [44]
    await_metric(attacked, refusals, lambda count: count == 2)


# -- every API


def every_array() -> list[tuple[int, Path]]:
    return [(key, path) for key in sorted(handlers.SUPPORTED)
            for path in array_paths(REQUESTS[key], REQUESTS[key].VERSIONS[-1])]


@pytest.mark.parametrize("make", [Values, EachAnother, Extremes], ids=["same", "each", "extremes"])
def test_every_array_of_every_api(attacked: RunningNode, make: Callable[[], Values]) -> None:
    """K8: as many elements as are allowed, equal or not, are served or refused, within limits."""
    for key, path in every_array():
        request = REQUESTS[key]
        version = request.VERSIONS[-1]
        count = ELEMENTS_MAX - len(path) + 1 if make is not Extremes else 200
        made = request_of(request, version, path, count, make())
        if isinstance(made, ProduceRequest):
            made.acks = 1  # 0 has no answer
        frame = encode_request(made, version, correlation_id=1)
        with RawConnection(attacked.host, attacked.port, timeout=ANSWER_SECONDS_MAX) as peer:
            peer.send(frame)
            try:
                answer = peer.receive_frame()
            except ConnectionError:
                answer = b""
        assert len(answer) <= max(RESPONSE_SIZE_MAX, 20 * len(frame)), (key, path)
        size = anonymous_size(attacked)
        assert size < ANONYMOUS_MAX, (key, path, size / MIB)
