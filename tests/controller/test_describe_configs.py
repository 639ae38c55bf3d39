"""Settings as clients see them: the value in force and the layers behind it."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from quipu.controller.describe_configs import (
    ConfigLayers,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from quipu.controller.placement import ChainPlacement
from quipu.controller.topic_state import Topic, partition_state
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.model.settings import BROKER, TOPIC, BrokerSettings, topic_settings, value_of
from quipu.model.settings_types import render
from quipu.model.topics import CONSUMER_OFFSETS

DEFAULTS = ConfigLayers(BrokerSettings(), own={}, cluster={})


def a_topic(
    configs: Mapping[str, str] | None = None, *, name: str = "t", replicas: tuple[int, ...] = (1,)
) -> Topic:
    """A topic of one partition, with settings of its own."""
    members = tuple(ReplicaMember(NodeId(node_id), MemberState.SERVING) for node_id in replicas)
    partition = partition_state(
        ChainPlacement("c"), ReplicaSet(epoch=Epoch(1), version=1, members=members), NodeId(1))
    return Topic(name=name, topic_id=UUID(int=1), partitions=(partition,), configs=configs or {})


def test_a_topic_without_settings_shows_defaults_in_its_own_unit() -> None:
    """K5: 168 hours are shown as milliseconds, from the default."""
    entries = {entry.row.name: entry for entry in describe_topic(a_topic(), DEFAULTS)}

    assert entries.keys() == TOPIC.keys()
    assert all(entry.source is ConfigSource.DEFAULT for entry in entries.values())
    assert entries["retention.ms"].value == "604800000"
    assert entries["retention.ms"].synonyms == (
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),)


def test_every_rung_of_the_ladder_is_shown_best_first() -> None:
    """K5: topic, broker, cluster, static, default."""
    layers = ConfigLayers(BrokerSettings(log_retention_minutes=1),
                    own={"log.retention.ms": "3"}, cluster={"log.retention.ms": "4"})
    entries = {entry.row.name: entry for entry in describe_topic(
        a_topic({"retention.ms": "2"}), layers)}

    entry = entries["retention.ms"]
    assert (entry.value, entry.source, entry.read_only) == ("2", ConfigSource.TOPIC, False)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "2", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.DYNAMIC_CLUSTER),
        ConfigSynonym("log.retention.minutes", "1", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_what_is_shown_is_what_is_in_force() -> None:
    """K5: for every topic setting, under several brokers."""
    for broker in (BrokerSettings(), BrokerSettings(log_retention_hours=2, log_roll_ms=900),
                   BrokerSettings(log_retention_hours=-1, log_segment_bytes=99_000)):
        in_force = topic_settings({"flush.ms": "11"}, broker)
        topic = a_topic({"flush.ms": "11"})
        for entry in describe_topic(topic, ConfigLayers(broker, own={}, cluster={})):
            if entry.row.name != "min.insync.replicas":  # see the next test
                assert entry.value == render(value_of(in_force, entry.row.name)), entry.row.name


@pytest.mark.parametrize(("given", "shown"), [(None, "3"), ("0", "3"), ("1", "1"), ("2", "2")])
def test_all_replicas_are_shown_as_their_number(given: str | None, shown: str) -> None:
    """K5: tools compare min.insync.replicas with the replicas; 0 would say that none is needed."""
    topic = a_topic({} if given is None else {"min.insync.replicas": given}, replicas=(1, 2, 3))
    entries = {entry.row.name: entry for entry in describe_topic(topic, DEFAULTS)}

    assert entries["min.insync.replicas"].value == shown
    assert entries["min.insync.replicas"].synonyms[0].value == (given or "0")


def test_the_cluster_s_own_topics_keep_their_records_whatever_brokers_are_set_to() -> None:
    """K5, K8: neither their own settings nor a broker's default let them be deleted by age."""
    topic = a_topic({"retention.ms": "1", "cleanup.policy": "delete"}, name=CONSUMER_OFFSETS)
    layers = ConfigLayers(BrokerSettings(log_retention_bytes=1, log_cleanup_policy=("delete",)),
                    own={"log.retention.ms": "3"}, cluster={"log.retention.bytes": "4"})
    entries = {entry.row.name: entry.value for entry in describe_topic(topic, layers)}

    assert entries["cleanup.policy"] == "compact"
    assert (entries["retention.ms"], entries["retention.bytes"]) == ("-1", "-1")


def test_a_broker_shows_what_was_given_to_it() -> None:
    settings = BrokerSettings(num_partitions=1, explicit=frozenset({"num.partitions"}))
    entries = {entry.row.name: entry for entry in
               describe_broker(ConfigLayers(settings, own={"log.retention.ms": "3"}, cluster={}))}

    assert entries.keys() == BROKER.keys()
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER
    assert entries["log.retention.ms"].source is ConfigSource.DYNAMIC_BROKER
    assert entries["broker.rack"].value is None
    assert entries["broker.rack"].source is ConfigSource.DEFAULT
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only


def test_the_cluster_s_default_shows_only_what_was_given() -> None:
    entries = describe_cluster_default(DEFAULTS._replace(cluster={"log.retention.ms": "3"}))

    assert [(entry.row.name, entry.value, entry.source) for entry in entries] == [
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_CLUSTER)]
