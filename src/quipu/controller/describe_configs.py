"""Settings as clients see them: the value in force, and where it comes from.

A value comes from one of several layers, best first: the topic itself, this broker's dynamic
settings, the cluster's dynamic default, the broker's static configuration, the built-in default.
The first layer that has a value is in force; all that have one are its `synonyms`, as Kafka calls
them.  The value of a sensitive setting is never shown, only that it has one and from which layer.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from quipu.controller.internal_topics import settings_of
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState, ResourceType
from quipu.controller.topic_state import Topic
from quipu.model.settings import (
    BROKER,
    TOPIC,
    BrokerSettings,
    in_ms,
    stored_value,
    value_of,
)
from quipu.model.settings_types import Setting, Value, render

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
ALL_REPLICAS: Final = "0"


class ConfigSource(IntEnum):
    """Where a value comes from; Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigSynonym(NamedTuple):
    """The value of a setting in one layer."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting with its value in force."""

    row: Setting
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


class ConfigLayers(NamedTuple):
    """What one broker's settings are made of."""

    settings: BrokerSettings  # static
    own: Mapping[str, str]  # dynamic, of this broker
    cluster: Mapping[str, str]  # dynamic, of every broker

    def synonyms(self, name: str) -> Iterator[ConfigSynonym]:
        """The layers that have a value of the broker setting `name`, best first."""
        for source, texts in ((ConfigSource.DYNAMIC_BROKER, self.own),
                              (ConfigSource.DYNAMIC_CLUSTER, self.cluster)):
            value = stored_value(BROKER, name, texts[name]) if name in texts else None
            if value is not None:
                yield ConfigSynonym(name, shown(BROKER[name], value), source)
        value, default = value_of(self.settings, name), BROKER[name].default
        if name in self.settings.explicit or value != default:
            yield ConfigSynonym(name, shown(BROKER[name], value), ConfigSource.STATIC_BROKER)
        if default is not None:
            yield ConfigSynonym(name, shown(BROKER[name], default), ConfigSource.DEFAULT)


def shown(row: Setting, value: Value) -> str | None:
    """`value` as clients may see it: nothing of a secret."""
    return None if row.is_sensitive else render(value)


def layers(state: ClusterState, node_id: int, settings: BrokerSettings) -> ConfigLayers:
    return ConfigLayers(
        settings,
        own=state.configs(ResourceType.BROKER, str(node_id)),
        cluster=state.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
    )


def describe_topic(topic: Topic, broker: ConfigLayers) -> list[ConfigEntry]:
    """Every setting of a topic, with the value that is in force.

    `min.insync.replicas` of 0 means all nodes of the chain: it is shown as their number, for tools
    compare it with the number of replicas.  Its synonyms are shown as they were given.
    """
    configs = settings_of(topic)
    entries = [_topic_entry(row, configs, broker) for row in TOPIC.values()]
    return [entry._replace(value=str(topic.replication_factor))
            if entry.row.name == MIN_INSYNC_REPLICAS and entry.value == ALL_REPLICAS else entry
            for entry in entries]


def describe_broker(broker: ConfigLayers) -> list[ConfigEntry]:
    """Every setting of a broker."""
    entries = []
    for row in BROKER.values():
        synonyms = tuple(broker.synonyms(row.name))
        value, source = ((synonyms[0].value, synonyms[0].source) if synonyms
                         else (None, ConfigSource.DEFAULT))
        entries.append(ConfigEntry(row, value, source, not row.dynamic, synonyms))
    return entries


def describe_cluster_default(broker: ConfigLayers) -> list[ConfigEntry]:
    """The dynamic settings that hold for every broker: only those that were given."""
    entries = []
    for name, text in broker.cluster.items():
        value = stored_value(BROKER, name, text)
        if value is not None:
            row = BROKER[name]
            synonym = ConfigSynonym(name, shown(row, value), ConfigSource.DYNAMIC_CLUSTER)
            entries.append(ConfigEntry(
                row, synonym.value, synonym.source, not row.dynamic, (synonym,)))
    return entries


def _topic_entry(row: Setting, configs: Mapping[str, str], broker: ConfigLayers) -> ConfigEntry:
    synonyms = []
    own = stored_value(TOPIC, row.name, configs[row.name]) if row.name in configs else None
    if own is not None:
        synonyms.append(ConfigSynonym(row.name, shown(row, own), ConfigSource.TOPIC))
    inherited = [synonym for name in row.broker for synonym in broker.synonyms(name)]
    synonyms += sorted(inherited, key=_default_last)
    if not row.broker:
        synonyms.append(ConfigSynonym(row.name, render(row.default), ConfigSource.DEFAULT))
    best = synonyms[0]
    value = best.value if best.name == row.name else _as_topic(best)
    return ConfigEntry(row, value, best.source, read_only=False, synonyms=tuple(synonyms))


def _default_last(synonym: ConfigSynonym) -> bool:
    """`log.retention.hours` given beats the built-in default of any other of its names."""
    return synonym.source is ConfigSource.DEFAULT


def _as_topic(synonym: ConfigSynonym) -> str | None:
    """The broker's value in the unit that the topic's setting has."""
    if synonym.value is None:
        return None
    return render(in_ms(synonym.name, stored_value(BROKER, synonym.name, synonym.value)))
