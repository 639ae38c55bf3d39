"""Metadata in every version."""

import pytest

from quipu.broker.handlers import k03_metadata
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", versions(MetadataRequest))
@looped
async def test_all_topics_are_told(version: int) -> None:
    """K12: null asks for all from v1 on; in v0 an empty list does."""
    broker = await a_broker(NewTopic("a", 2), NewTopic("b"))
    request = MetadataRequest(topics=[] if version == 0 else None)

    response = await ask(broker, k03_metadata, request, version)

    assert [(t.name, len(t.partitions)) for t in response.topics] == [("a", 2), ("b", 1)]
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "kafka.test", 9092)]
    partition = response.topics[0].partitions[1]
    assert (partition.partition_index, partition.leader_id) == (1, 1)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert partition.offline_replicas == []
    state = broker.cluster.state
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == state.cluster_id
    if version >= 7:
        assert partition.leader_epoch == 1
    if version >= 10:
        assert response.topics[0].topic_id == state.topics["a"].topic_id


@pytest.mark.parametrize("version", versions(MetadataRequest)[1:])
@looped
async def test_an_empty_list_asks_for_none(version: int) -> None:
    """K12: clients ask so for brokers alone."""
    broker = await a_broker(NewTopic("a"))

    response = await ask(broker, k03_metadata, MetadataRequest(topics=[]), version)

    assert response.topics == []
    assert len(response.brokers) == 1


@pytest.mark.parametrize("version", versions(MetadataRequest))
@looped
async def test_a_missing_topic_is_created_on_demand(version: int) -> None:
    """K5: auto.create.topics.enable, with num.partitions; ready in the same response."""
    broker = await a_broker(settings=BrokerSettings(num_partitions=4))

    response = await ask(broker, k03_metadata, MetadataRequest(topics=by_name("new")), version)

    assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (Code.NONE, 4)
    assert broker.partitions.notifications == [("created", "new", 4)]


REFUSED = [
    ("the client does not want it", "new", False, BrokerSettings(),
     Code.UNKNOWN_TOPIC_OR_PARTITION),
    ("the broker does not allow it", "new", True, BrokerSettings(auto_create_topics_enable=False),
     Code.UNKNOWN_TOPIC_OR_PARTITION),
    ("the cluster makes its own", CONSUMER_OFFSETS, True, BrokerSettings(),
     Code.UNKNOWN_TOPIC_OR_PARTITION),
    ("no topic can have it", "a/b", True, BrokerSettings(), Code.INVALID_TOPIC_EXCEPTION),
    ("nor without asking for creation", "a/b", False, BrokerSettings(),
     Code.INVALID_TOPIC_EXCEPTION),
    ("it would clash", "old.topic", True, BrokerSettings(), Code.INVALID_TOPIC_EXCEPTION),
    ("there are too few brokers", "new", True, BrokerSettings(default_replication_factor=2),
     Code.INVALID_REPLICATION_FACTOR),
]


@pytest.mark.parametrize(("why", "name", "wanted", "settings", "code"), REFUSED,
                         ids=[case[0] for case in REFUSED])
@looped
async def test_a_missing_topic_is_not_created(
    why: str, name: str, wanted: bool, settings: BrokerSettings, code: Code
) -> None:
    """K5: an error for this topic, and the others are response."""
    broker = await a_broker(NewTopic("old_topic", 1, 1), settings=settings)
    request = MetadataRequest(
        topics=by_name(name, "old_topic"), allow_auto_topic_creation=wanted)

    response = await ask(broker, k03_metadata, request, 13)

    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        (name, code), ("old_topic", Code.NONE)]
    assert list(broker.cluster.state.topics) == ["old_topic"]


@pytest.mark.parametrize(("error", "code"), [
    (Code.KAFKA_STORAGE_ERROR, Code.KAFKA_STORAGE_ERROR),
    (Code.REQUEST_TIMED_OUT, Code.LEADER_NOT_AVAILABLE)])
@looped
async def test_topics_that_cannot_be_created_hide_no_others(
    error: Code, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: whatever the controller says to one new topic, those that are there are response."""
    broker = await a_broker(NewTopic("there"))

    async def refuse(*_: object, **__: object) -> None:
        raise RequestError("not now", code=error)

    monkeypatch.setattr(broker.cluster, "ask_controller", refuse)
    response = await ask(broker, k03_metadata, MetadataRequest(topics=by_name("new", "there")), 13)
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics] == [
        ("new", code, 0), ("there", Code.NONE, 1)]


@pytest.mark.parametrize("version", [12, 13])
@looped
async def test_topics_are_found_by_id(version: int) -> None:
    """K12: known ids are response with their names, unknown ones without."""
    broker = await a_broker(NewTopic("a"))
    topic_id = broker.cluster.state.topics["a"].topic_id
    unknown = type(topic_id)(int=77)
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None),
                                      MetadataRequestTopic(topic_id=unknown, name=None)])

    response = await ask(broker, k03_metadata, request, version)

    assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
        ("a", topic_id, Code.NONE), (None, unknown, Code.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", [10, 11])
@looped
async def test_ids_are_refused_before_version_12(version: int) -> None:
    broker = await a_broker(NewTopic("a"))
    by_id = MetadataRequestTopic(topic_id=broker.cluster.state.topics["a"].topic_id, name="a")
    nameless = MetadataRequestTopic(topic_id=ZERO_UUID, name=None)

    for topic in (by_id, nameless):
        with pytest.raises(RequestError) as caught:
            await ask(broker, k03_metadata, MetadataRequest(topics=[topic]), version)
        assert caught.value.code is Code.INVALID_REQUEST
        response = k03_metadata.refuse(MetadataRequest(topics=[topic]), caught.value)
        decoded = MetadataResponse.decode(memoryview(response.encode(version)), version)
        assert [(t.error_code, t.name) for t in decoded.topics] == [
            (Code.INVALID_REQUEST, topic.name or "")]


@looped
async def test_a_topic_asked_for_twice_is_told_once() -> None:
    broker = await a_broker(NewTopic("a"))

    response = await ask(broker, k03_metadata, MetadataRequest(topics=by_name("a", "a")), 13)

    assert [topic.name for topic in response.topics] == ["a"]


@looped
async def test_a_failed_partition_has_no_leader() -> None:
    """T12: clients are response that it is offline, and its neighbours go on."""
    broker = await a_broker(NewTopic("a", 2))
    for failure in (QuipuError("bad disk"), None):
        broker.partitions.failed = {("a", 1): failure} if failure else {}

        response = await ask(broker, k03_metadata, MetadataRequest(topics=by_name("a")), 13)

        good, other = response.topics[0].partitions
        assert (good.error_code, good.leader_id) == (Code.NONE, 1)
        if failure:
            assert (other.error_code, other.leader_id) == (Code.LEADER_NOT_AVAILABLE, -1)
            assert other.offline_replicas == [1]
        else:
            assert (other.error_code, other.leader_id) == (Code.NONE, 1)


@looped
async def test_operations_are_shown_if_requested() -> None:
    """K12: without access control everything is allowed; without the request, nothing is shown."""
    broker = await a_broker(NewTopic("a"))
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True,
                              include_cluster_authorized_operations=True)

    response = await ask(broker, k03_metadata, request, 10)
    silent = await ask(broker, k03_metadata, MetadataRequest(topics=None), 10)

    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000
    assert silent.topics[0].topic_authorized_operations == -(2**31)
    assert silent.cluster_authorized_operations == -(2**31)
