"""CreateTopics in every version."""

import pytest

from quipu.broker.handlers import k19_create_topics
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import OWN_TOPIC, BrokerSettings
from quipu.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


def wanted(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value)
                 for key, value in configs.items()])


@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
@looped
async def test_good_topics_are_created_beside_bad_ones(version: int) -> None:
    """K5, K12: each topic has its own result, in the order of the request."""
    broker = await a_broker(NewTopic("old"))
    request = CreateTopicsRequest(topics=[
        wanted("a", 3, retention_ms="5"), wanted("old"), wanted("b", replicas=2)])

    response = await ask(broker, k19_create_topics, request, version)

    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", Code.NONE), ("old", Code.TOPIC_ALREADY_EXISTS),
        ("b", Code.INVALID_REPLICATION_FACTOR)]
    assert response.topics[0].error_message is None
    assert response.topics[1].error_message
    made = broker.cluster.state.topics["a"]
    assert (len(made.partitions), dict(made.configs)) == (3, {"retention.ms": "5"})
    if version >= 7:
        assert response.topics[0].topic_id == made.topic_id
        assert response.topics[1].topic_id == ZERO_UUID


@pytest.mark.parametrize("version", [5, 6, 7])
@looped
async def test_the_response_describes_the_topic(version: int) -> None:
    """K1: Java's tools read these fields and fail on nulls and on a source below 1."""
    broker = await a_broker(settings=BrokerSettings(num_partitions=2))
    request = CreateTopicsRequest(topics=[wanted("a", -1, -1, retention_ms="5"), wanted("/")])

    made, refused = (await ask(broker, k19_create_topics, request, version)).topics

    assert (made.num_partitions, made.replication_factor) == (2, 1)
    configs = {config.name: config for config in made.configs}
    assert configs.keys() == OWN_TOPIC.keys()
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert configs["segment.ms"].config_source == 5
    assert all(config.config_source >= 1 for config in made.configs)
    assert refused.configs == []
    assert (refused.num_partitions, refused.replication_factor) == (-1, -1)


@looped
async def test_validate_only_creates_nothing() -> None:
    """K5: and responds as if it did, without an id."""
    broker = await a_broker()
    request = CreateTopicsRequest(topics=[wanted("a", 2)], validate_only=True)

    (topic,) = (await ask(broker, k19_create_topics, request, 7)).topics

    assert (topic.error_code, topic.num_partitions, topic.topic_id) == (Code.NONE, 2, ZERO_UUID)
    assert broker.cluster.state.topics == {}
    assert broker.partitions.notifications == []


@looped
async def test_a_manual_assignment_reaches_the_controller() -> None:
    broker = await a_broker()
    good = CreatableTopic(
        name="a", num_partitions=-1, replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])])
    bad = CreatableTopic(
        name="b", num_partitions=-1, replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[2])])

    response = await ask(broker, k19_create_topics, CreateTopicsRequest(topics=[good, bad]), 7)

    assert [topic.error_code for topic in response.topics] == [
        Code.NONE, Code.INVALID_REPLICA_ASSIGNMENT]


@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
@looped
async def test_what_is_wrong_with_the_longest_name_can_be_told(version: int) -> None:
    """K8: strings of 32,767 bytes may be sent, and a message that repeats one must fit, too."""
    broker = await a_broker()
    long = [wanted("z" * 32_767), wanted("é" * 16_000)]
    request = CreateTopicsRequest(topics=[*long, *long])

    response = await ask(broker, k19_create_topics, request, version)

    assert response.topics
    for topic in response.topics:
        assert topic.error_code == Code.INVALID_REQUEST
        assert topic.error_message is None or len(topic.error_message.encode()) <= 32_767
