"""The cluster's own topics: what clients may not do to them."""

from uuid import UUID

import pytest

from quipu.controller.configs import Alteration, Change, Operation, Resource, alter
from quipu.controller.internal_topics import FIXED, settings_of
from quipu.controller.state import ClusterState
from quipu.controller.topics import (
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    plan_topic,
)
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings, topic_settings
from quipu.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.controller.states import ids, state_with

SETTINGS = BrokerSettings()
OFFSETS = Resource(2, CONSUMER_OFFSETS)


def a_state() -> ClusterState:
    state = state_with()
    configs = (("cleanup.policy", "compact"), ("min.insync.replicas", "1"))
    state.apply(plan_topic(state, NewTopic(CONSUMER_OFFSETS, 4, configs=configs), SETTINGS, ids()))
    return state


def set_to(value: str, name: str, *, whole: bool = False) -> Alteration:
    return Alteration(OFFSETS, [Change(name, Operation.SET, value)], whole=whole)


@pytest.mark.parametrize("alteration", [
    set_to("1", "retention.ms"), set_to("1", "retention.bytes"), set_to("delete", "cleanup.policy"),
    set_to("9223372036854775807", "flush.messages"), set_to("1048576", "segment.bytes"),
    set_to("1000", "max.message.bytes"),
    Alteration(OFFSETS, [Change("cleanup.policy", Operation.DELETE, None)]),
    Alteration(OFFSETS, [Change("cleanup.policy", Operation.APPEND, "delete")]),
    Alteration(OFFSETS, [], whole=True), set_to("2", "min.insync.replicas", whole=True),
], ids=str)
def test_what_would_lose_offsets_is_refused(alteration: Alteration) -> None:
    """K5, K8: whole or one by one, set, appended or removed."""
    decision = alter(a_state(), [alteration], SETTINGS)
    (answer,) = decision.answers
    assert (answer.code, decision.records) == (Code.INVALID_TOPIC_EXCEPTION, [])
    assert "min.insync.replicas" in (answer.message or "")


def test_how_many_nodes_must_have_an_offset_can_be_changed() -> None:
    """K5: the one setting that an operator may need."""
    decision = alter(a_state(), [set_to("2", "min.insync.replicas")], SETTINGS)
    assert [answer.code for answer in decision.answers] == [Code.NONE]
    assert len(decision.records) == 1


def test_they_are_not_created_extended_or_deleted() -> None:
    """K5, K8: by name or by id."""
    state = a_state()
    topic_id = state.topics[CONSUMER_OFFSETS].topic_id
    decisions = [
        create_topics(state, [NewTopic(TRANSACTION_STATE, 1)], SETTINGS, ids()),
        create_partitions(state, [NewPartitions(CONSUMER_OFFSETS, 50)], SETTINGS),
        delete_topics(state, [(CONSUMER_OFFSETS, ZERO_UUID)], SETTINGS),
        delete_topics(state, [(None, topic_id)], SETTINGS),
    ]
    for decision in decisions:
        assert decision.records == []
        assert [answer.code for answer in decision.answers] == [Code.INVALID_TOPIC_EXCEPTION]


def test_defaults_of_brokers_do_not_reach_them() -> None:
    """K5, K8: what a broker tells all topics holds for clients' topics."""
    state = a_state()
    broker = BrokerSettings(log_retention_ms=1, log_retention_bytes=1,
                            log_cleanup_policy=("delete",))
    settings = topic_settings(settings_of(state.topics[CONSUMER_OFFSETS]), broker)
    assert settings.cleanup_policy == ("compact",)
    assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)
    assert set(FIXED) == {"cleanup.policy", "retention.ms", "retention.bytes"}


def test_partitions_of_all_topics_are_bounded() -> None:
    """K5, K8: whoever asks; what is deleted makes room, and the cluster's own are never refused."""
    state = a_state()
    settings = BrokerSettings(max_partitions=10)
    new_id = ids()
    ids_ = iter(range(100, 200))

    def fresh() -> UUID:
        return UUID(int=next(ids_))

    created = create_topics(
        state, [NewTopic("a", 4, 1), NewTopic("b", 3, 1), NewTopic("c", 2, 1)], settings, fresh)
    assert [answer.code for answer in created.answers] == [
        Code.NONE, Code.POLICY_VIOLATION, Code.NONE]
    assert "max.partitions" in (created.answers[1].message or "")
    for record in created.records:
        state.apply(record)
    assert state.partition_count == 10
    grown = create_partitions(state, [NewPartitions("a", 5)], settings)
    assert [answer.code for answer in grown.answers] == [Code.POLICY_VIOLATION]
    assert plan_topic(state, NewTopic(TRANSACTION_STATE, 4), settings, new_id).runs

    for record in delete_topics(state, [("c", ZERO_UUID)], settings).records:
        state.apply(record)
    assert state.partition_count == 8
    assert create_partitions(state, [NewPartitions("a", 6)], settings).answers[0].code is Code.NONE
