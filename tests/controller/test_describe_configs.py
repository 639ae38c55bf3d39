"""Settings as clients see them: the value in force and the layers behind it."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from quipu.controller.describe_configs import (
    ConfigLayers,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster_default,
    describe_topic,
    layers,
)
from quipu.controller.placement import ChainPlacement
from quipu.controller.topic_state import Topic, partition_state
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.model.listeners import ListenerEndpoint
from quipu.model.settings import BROKER, OWN_TOPIC, BrokerSettings, topic_settings, value_of
from quipu.model.settings_types import render
from quipu.model.topics import CONSUMER_OFFSETS
from tests.controller.states import state_with

DEFAULTS = ConfigLayers(BrokerSettings(), own={}, cluster={})


def a_topic(
    configs: Mapping[str, str] | None = None, *, name: str = "t", replicas: tuple[int, ...] = (1,)
) -> Topic:
    """A topic of one partition, with settings of its own."""
    members = tuple(ReplicaMember(NodeId(node_id), MemberState.SERVING) for node_id in replicas)
    partition = partition_state(
        ChainPlacement("c"), ReplicaSet(epoch=Epoch(1), version=1, members=members), NodeId(1),
        tuple(map(NodeId, replicas)))
    return Topic(name=name, topic_id=UUID(int=1), partitions=(partition,), configs=configs or {})


def test_a_topic_without_settings_shows_defaults_in_its_own_unit() -> None:
    """K5: 168 hours are shown as milliseconds, from the default."""
    entries = {entry.row.name: entry for entry in describe_topic(a_topic(), DEFAULTS)}

    assert entries.keys() == OWN_TOPIC.keys()
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


@pytest.mark.parametrize(("given", "replicas", "shown"), [
    (None, 3, "2"), (None, 2, "1"), (None, 1, "1"),
    ("0", 3, "3"), ("1", 3, "1"), ("2", 3, "2"), ("100", 3, "3"), ("2", 1, "1"),
])
def test_a_topic_shows_how_many_replicas_must_be_in_sync(
    given: str | None, replicas: int, shown: str
) -> None:
    """K5, K9: tools compare min.insync.replicas with the replicas, and copy it to other clusters;
    a 0 means something else there, and no value nothing.
    """
    topic = a_topic({} if given is None else {"min.insync.replicas": given},
                    replicas=tuple(range(1, replicas + 1)))
    (entry,) = [each for each in describe_topic(topic, DEFAULTS)
                if each.row.name == "min.insync.replicas"]

    source = ConfigSource.DEFAULT if given is None else ConfigSource.TOPIC
    assert (entry.value, entry.source) == (shown, source)
    assert entry.synonyms[0] == ConfigSynonym("min.insync.replicas", shown, source)
    assert all(int(each.value or 0) >= 1 for each in entry.synonyms)


@pytest.mark.parametrize(("given", "shown"), [("0", "3"), ("1", "1"), ("7", "3")])
def test_a_topic_shows_the_broker_s_default_as_a_number_of_its_own_replicas(
    given: str, shown: str
) -> None:
    """K5: also where every broker was given the strict rule."""
    layers = DEFAULTS._replace(cluster={"min.insync.replicas": given})
    entries = {entry.row.name: entry for entry in describe_topic(
        a_topic(replicas=(1, 2, 3)), layers)}

    entry = entries["min.insync.replicas"]
    assert (entry.value, entry.source) == (shown, ConfigSource.DYNAMIC_CLUSTER)


def test_replicas_that_a_partition_is_moved_to_do_not_count_yet() -> None:
    """K5, K6: between two chains of three it is still a topic of three replicas."""
    topic = a_topic(replicas=(1, 2, 3, 4, 5, 6))
    partition = topic.partitions[0]
    moving = replace(partition.replica_set, arriving=frozenset(map(NodeId, (4, 5, 6))))
    topic = replace(topic, partitions=(partition._replace(replica_set=moving),))

    entries = {entry.row.name: entry for entry in describe_topic(topic, DEFAULTS)}

    assert entries["min.insync.replicas"].value == "2"


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

    assert entries.keys() == {name for name, row in BROKER.items() if not row.is_internal}
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER
    assert entries["log.retention.ms"].source is ConfigSource.DYNAMIC_BROKER
    assert entries["broker.rack"].value is None
    assert entries["broker.rack"].source is ConfigSource.DEFAULT
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only


@pytest.mark.parametrize(("given", "factor", "least"), [
    (BrokerSettings(), "3", "2"),
    (BrokerSettings(min_insync_replicas=0), "3", "3"),
    (BrokerSettings(default_replication_factor=2), "2", "1"),
    (BrokerSettings(min_insync_replicas=2, default_replication_factor=1), "1", "1"),
])
def test_a_broker_shows_numbers_and_addresses_where_nothing_was_set(
    given: BrokerSettings, factor: str, least: str
) -> None:
    """K5, K9: a tool that copies the settings of a broker gets values that Kafka accepts."""
    advertised = (ListenerEndpoint("PLAINTEXT", "node.test", 9092),)
    entries = {entry.row.name: entry for entry in describe_broker(ConfigLayers(
        given, own={}, cluster={}, node_id=7, chain_length=3, advertised=advertised))}

    assert entries["default.replication.factor"].value == factor
    assert entries["min.insync.replicas"].value == least
    assert entries["node.id"].value == "7"
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert entries["advertised.listeners"].value == "PLAINTEXT://node.test:9092"
    assert entries["node.id"].source is ConfigSource.DEFAULT
    for name in ("default.replication.factor", "min.insync.replicas", "node.id", "listeners",
                 "advertised.listeners"):
        assert all(each.value not in (None, "", "0") for each in entries[name].synonyms), name


def test_the_layers_of_a_broker_know_its_chain_and_its_addresses() -> None:
    """K5: the number that -1 gives is that of the nodes of the broker's own chain."""
    state = state_with(a=3, b=1)

    assert [layers(state, node, BrokerSettings()).chain_length for node in (1, 4, 9)] == [3, 1, 1]
    assert layers(state, 1, BrokerSettings()).advertised == (
        ListenerEndpoint("PLAINTEXT", "host-1", 9092),)
    assert layers(state, 9, BrokerSettings()).advertised == ()


def test_the_cluster_s_default_shows_only_what_was_given() -> None:
    entries = describe_cluster_default(DEFAULTS._replace(cluster={"log.retention.ms": "3"}))

    assert [(entry.row.name, entry.value, entry.source) for entry in entries] == [
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_CLUSTER)]
