"""DeleteTopics in every version."""

from uuid import UUID

import pytest

from quipu.broker.handlers import k20_delete_topics
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.settings import BrokerSettings
from quipu.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
@looped
async def test_topics_are_deleted_by_name(version: int) -> None:
    """K5, K12: each topic has its own result."""
    broker = await a_broker(NewTopic("a"), NewTopic("b"))
    if version >= 6:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name="a"), DeleteTopicState(name="x")])
    else:
        request = DeleteTopicsRequest(topic_names=["a", "x"])

    response = await ask(broker, k20_delete_topics, request, version)

    assert [(topic.name, topic.error_code) for topic in response.responses] == [
        ("a", Code.NONE), ("x", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert list(broker.cluster.state.topics) == ["b"]
    assert broker.partitions.notifications[-1] == ("deleted", "a")


@looped
async def test_topics_are_deleted_by_id() -> None:
    """K5: from v6 on; the response has the name of the id."""
    broker = await a_broker(NewTopic("a"))
    topic_id = broker.cluster.state.topics["a"].topic_id
    request = DeleteTopicsRequest(topics=[
        DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=UUID(int=9))])

    response = await ask(broker, k20_delete_topics, request, 6)

    assert [(t.name, t.topic_id, t.error_code) for t in response.responses] == [
        ("a", topic_id, Code.NONE), (None, UUID(int=9), Code.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize(("version", "code"), [
    (2, Code.INVALID_REQUEST), (3, Code.TOPIC_DELETION_DISABLED)])
@looped
async def test_old_clients_do_not_know_that_deletion_can_be_disabled(
    version: int, code: Code
) -> None:
    broker = await a_broker(NewTopic("a"), settings=BrokerSettings(delete_topic_enable=False))

    response = await ask(broker, k20_delete_topics, DeleteTopicsRequest(topic_names=["a"]), version)

    assert response.responses[0].error_code == code
