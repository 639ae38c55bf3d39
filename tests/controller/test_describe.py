"""Settings as clients see them: the value in force and the ladder behind it."""

from quipu.controller.describe import (
    Ladder,
    Source,
    Synonym,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from quipu.model.settings import BROKER, TOPIC, BrokerSettings, topic_settings, value_of
from quipu.model.settings_types import render

DEFAULTS = Ladder(BrokerSettings(), own={}, cluster={})


def test_a_topic_without_settings_shows_defaults_in_its_own_unit() -> None:
    """K5: 168 hours are shown as milliseconds, from the default."""
    entries = {entry.row.name: entry for entry in describe_topic({}, DEFAULTS)}

    assert entries.keys() == TOPIC.keys()
    assert all(entry.source is Source.DEFAULT for entry in entries.values())
    assert entries["retention.ms"].value == "604800000"
    assert entries["retention.ms"].synonyms == (
        Synonym("log.retention.hours", "168", Source.DEFAULT),)


def test_every_rung_of_the_ladder_is_shown_best_first() -> None:
    """K5: topic, broker, cluster, static, default."""
    ladder = Ladder(BrokerSettings(log_retention_minutes=1),
                    own={"log.retention.ms": "3"}, cluster={"log.retention.ms": "4"})
    entries = {entry.row.name: entry for entry in describe_topic({"retention.ms": "2"}, ladder)}

    entry = entries["retention.ms"]
    assert (entry.value, entry.source, entry.read_only) == ("2", Source.TOPIC, False)
    assert entry.synonyms == (
        Synonym("retention.ms", "2", Source.TOPIC),
        Synonym("log.retention.ms", "3", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "4", Source.DYNAMIC_CLUSTER),
        Synonym("log.retention.minutes", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_what_is_shown_is_what_is_in_force() -> None:
    """K5: for every topic setting, under several brokers."""
    for broker in (BrokerSettings(), BrokerSettings(log_retention_hours=2, log_roll_ms=900),
                   BrokerSettings(log_retention_hours=-1, log_segment_bytes=99_000)):
        in_force = topic_settings({"flush.ms": "11"}, broker)
        for entry in describe_topic({"flush.ms": "11"}, Ladder(broker, own={}, cluster={})):
            assert entry.value == render(value_of(in_force, entry.row.name)), entry.row.name


def test_a_broker_shows_what_was_given_to_it() -> None:
    settings = BrokerSettings(num_partitions=1, explicit=frozenset({"num.partitions"}))
    entries = {entry.row.name: entry for entry in
               describe_broker(Ladder(settings, own={"log.retention.ms": "3"}, cluster={}))}

    assert entries.keys() == BROKER.keys()
    assert entries["num.partitions"].source is Source.STATIC_BROKER
    assert entries["log.retention.ms"].source is Source.DYNAMIC_BROKER
    assert entries["broker.rack"].value is None
    assert entries["broker.rack"].source is Source.DEFAULT
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only


def test_the_cluster_s_default_shows_only_what_was_given() -> None:
    entries = describe_cluster_default(DEFAULTS._replace(cluster={"log.retention.ms": "3"}))

    assert [(entry.row.name, entry.value, entry.source) for entry in entries] == [
        ("log.retention.ms", "3", Source.DYNAMIC_CLUSTER)]
