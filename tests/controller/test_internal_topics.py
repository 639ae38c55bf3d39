"""The cluster's own topics: what clients may not do to them."""

from uuid import UUID

import pytest

from quipu.controller.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    alter,
)
from quipu.controller.internal_topics import FIXED, settings_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import (
    create_internal_topics,
    create_partitions,
    create_topics,
    delete_topics,
)
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings, topic_settings
from quipu.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.controller.states import carry_out, ids, state_with

SETTINGS = BrokerSettings()
OFFSETS = ConfigResource(2, CONSUMER_OFFSETS)


def a_state() -> ClusterState:
    state = state_with()
    configs = (("cleanup.policy", "compact"), ("min.insync.replicas", "1"))
    carry_out(state, create_internal_topics(
        state, [NewTopic(CONSUMER_OFFSETS, 4, configs=configs)], SETTINGS, ids()))
    return state


def set_to(value: str, name: str, *, whole: bool = False) -> ConfigAlteration:
    return ConfigAlteration(OFFSETS, [ConfigChange(name, ConfigOperation.SET, value)], whole=whole)


@pytest.mark.parametrize("alteration", [
    set_to("1", "retention.ms"), set_to("1", "retention.bytes"), set_to("delete", "cleanup.policy"),
    set_to("9223372036854775807", "flush.messages"), set_to("1048576", "segment.bytes"),
    set_to("1000", "max.message.bytes"),
    ConfigAlteration(OFFSETS, [ConfigChange("cleanup.policy", ConfigOperation.DELETE, None)]),
    ConfigAlteration(OFFSETS, [ConfigChange("cleanup.policy", ConfigOperation.APPEND, "delete")]),
    ConfigAlteration(OFFSETS, [], whole=True), set_to("2", "min.insync.replicas", whole=True),
], ids=str)
def test_what_would_lose_offsets_is_refused(alteration: ConfigAlteration) -> None:
    """K5, K8: whole or one by one, set, appended or removed."""
    decision = alter(a_state(), [alteration], SETTINGS)
    (result,) = decision.results
    assert (result.code, decision.records) == (Code.INVALID_TOPIC_EXCEPTION, [])
    assert "min.insync.replicas" in (result.message or "")


def test_how_many_nodes_must_have_an_offset_can_be_changed() -> None:
    """K5: the one setting that an operator may need."""
    decision = alter(a_state(), [set_to("2", "min.insync.replicas")], SETTINGS)
    assert [result.code for result in decision.results] == [Code.NONE]
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
        assert [result.code for result in decision.results] == [Code.INVALID_TOPIC_EXCEPTION]


def test_defaults_of_brokers_do_not_reach_them() -> None:
    """K5, K8: a broker's setting for all topics holds for clients' topics."""
    state = a_state()
    broker = BrokerSettings(log_retention_ms=1, log_retention_bytes=1,
                            log_cleanup_policy=("delete",))
    settings = topic_settings(settings_of(state.topics[CONSUMER_OFFSETS]), broker)
    assert settings.cleanup_policy == ("compact",)
    assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)
    assert set(FIXED) == {"cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes"}


def test_partitions_of_all_topics_are_bounded() -> None:
    """K5, K8: deleted topics make room, and the cluster's own are never refused."""
    state = a_state()
    settings = BrokerSettings(max_partitions=10)
    new_id = ids()
    ids_ = iter(range(100, 200))

    def fresh() -> UUID:
        return UUID(int=next(ids_))

    created = create_topics(
        state, [NewTopic("a", 4, 1), NewTopic("b", 3, 1), NewTopic("c", 2, 1)], settings, fresh)
    assert [result.code for result in created.results] == [
        Code.NONE, Code.POLICY_VIOLATION, Code.NONE]
    assert "max.partitions" in (created.results[1].message or "")
    for record in created.records:
        state.apply(record)
    assert state.partition_count == 10
    grown = create_partitions(state, [NewPartitions("a", 5)], settings)
    assert [result.code for result in grown.results] == [Code.POLICY_VIOLATION]
    assert create_internal_topics(
        state, [NewTopic(TRANSACTION_STATE, 4)], settings, new_id).records

    for record in delete_topics(state, [("c", ZERO_UUID)], settings).records:
        state.apply(record)
    assert state.partition_count == 8
    assert create_partitions(state, [NewPartitions("a", 6)], settings).results[0].code is Code.NONE
