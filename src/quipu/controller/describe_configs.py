"""Settings as clients see them: the value in force, and where it comes from.

A value comes from one of several layers, best first: the topic itself, this broker's dynamic
settings, the cluster's dynamic default, the broker's static configuration, the built-in default.
The first layer that has a value is in force; all that have one are its `synonyms`, as Kafka calls
them.  The value of a sensitive setting is never shown, only that it has one and from which layer.

Tools copy what they are shown to other clusters, also of Kafka.  So a value that means "decide by
the number of nodes", or that is not set, is shown as what it comes to (`_derived`): a number of
replicas, an id, addresses.  Its source stays: the default, if nobody has set it.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from quipu.controller.internal_topics import settings_of
from quipu.controller.resources import ResourceType
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.chains import least_in_sync
from quipu.model.ids import NodeId
from quipu.model.listeners import DEFAULT as DEFAULT_LISTENER
from quipu.model.listeners import ListenerEndpoint
from quipu.model.resource_settings import CLIENT_METRICS, GROUP
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


class ConfigSource(IntEnum):
    """Where a value comes from; Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


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
    node_id: int = 0
    chain_length: int = 1  # replicas of a topic that is created without a number
    advertised: tuple[ListenerEndpoint, ...] = ()  # as the broker has registered them

    @property
    def replica_count(self) -> int:
        """The replicas of a topic that is created without a number."""
        return self.settings.default_replication_factor or self.chain_length

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
    chain, broker = state.chain_of(NodeId(node_id)), state.brokers.get(NodeId(node_id))
    lengths = [len(each.members) for each in state.chains.values()] if chain is None else [
        len(chain.members)]
    advertised = () if broker is None else broker.listeners or (
        ListenerEndpoint(DEFAULT_LISTENER.name, broker.host, broker.port),)
    return ConfigLayers(
        settings,
        own=state.configs(ResourceType.BROKER, str(node_id)),
        cluster=state.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
        node_id=node_id, chain_length=min(lengths, default=1), advertised=advertised,
    )


def describe_topic(topic: Topic, broker: ConfigLayers) -> list[ConfigEntry]:
    """Every setting of a topic, with the value that is in force."""
    configs = settings_of(topic)
    return [_topic_entry(row, configs, broker) if row.name != MIN_INSYNC_REPLICAS
            else _counted(_topic_entry(row, configs, broker), topic.replication_factor)
            for row in TOPIC.values() if not row.is_internal or row.name in configs]


def describe_broker(broker: ConfigLayers) -> list[ConfigEntry]:
    """Every setting of a broker; internal ones only where they are set, as in Kafka."""
    entries = []
    for row in BROKER.values():
        synonyms = tuple(broker.synonyms(row.name))
        if row.is_internal and (not synonyms or synonyms[0].source is ConfigSource.DEFAULT):
            continue
        value, source = ((synonyms[0].value, synonyms[0].source) if synonyms
                         else (None, ConfigSource.DEFAULT))
        entry = ConfigEntry(row, value, source, not row.dynamic, synonyms)
        entries.append(_derived(entry, broker))
    return entries


def _derived(entry: ConfigEntry, broker: ConfigLayers) -> ConfigEntry:
    """`entry` of a broker, with what its value comes to if it says nothing by itself."""
    match entry.row.name:
        case name if name == MIN_INSYNC_REPLICAS:
            return _counted(entry, broker.replica_count)
        case "default.replication.factor":
            return _mapped(entry, lambda value: str(int(value or 0) or broker.chain_length))
        case "node.id":
            return _mapped(entry, lambda _: str(broker.node_id))
        case "advertised.listeners":
            return _mapped(entry, lambda value: render(broker.advertised) or value)
    return entry


def _counted(entry: ConfigEntry, replica_count: int) -> ConfigEntry:
    """min.insync.replicas as the number that is in force for that many replicas."""
    return _mapped(entry, lambda value: str(
        least_in_sync(None if value is None else int(value), replica_count)))


def _mapped(entry: ConfigEntry, shown_as: Callable[[str | None], str | None]) -> ConfigEntry:
    synonyms = entry.synonyms or (
        ConfigSynonym(entry.row.name, None, ConfigSource.DEFAULT),)
    return entry._replace(value=shown_as(entry.value), synonyms=tuple(
        each._replace(value=shown_as(each.value)) for each in synonyms))


def describe_cluster_default(broker: ConfigLayers) -> list[ConfigEntry]:
    """The dynamic settings that hold for every broker: only those that were given."""
    entries = []
    for name, text in broker.cluster.items():
        value = stored_value(BROKER, name, text)
        if value is not None:
            row = BROKER[name]
            synonym = ConfigSynonym(name, shown(row, value), ConfigSource.DYNAMIC_CLUSTER)
            entry = ConfigEntry(row, synonym.value, synonym.source, not row.dynamic, (synonym,))
            entries.append(_derived(entry, broker))
    return entries


def describe_group(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a group, which has `configs` of its own; the group need not exist."""
    return [_own_or_default(row, configs, ConfigSource.GROUP) for row in GROUP.values()]


def describe_client_metrics(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a subscription; a default has no synonyms, as in Kafka."""
    found = [_own_or_default(row, configs, ConfigSource.CLIENT_METRICS)
             for row in CLIENT_METRICS.values()]
    return [entry if entry.source is ConfigSource.CLIENT_METRICS else entry._replace(synonyms=())
            for entry in found]


def _own_or_default(row: Setting, configs: Mapping[str, str], source: ConfigSource) -> ConfigEntry:
    value = configs.get(row.name)
    if value is None:
        value, source = render(row.default), ConfigSource.DEFAULT
    return ConfigEntry(row, value, source, read_only=False,
                       synonyms=(ConfigSynonym(row.name, value, source),))


def _topic_entry(row: Setting, configs: Mapping[str, str], broker: ConfigLayers) -> ConfigEntry:
    synonyms = []
    own = stored_value(TOPIC, row.name, configs[row.name]) if row.name in configs else None
    if own is not None:
        synonyms.append(ConfigSynonym(row.name, shown(row, own), ConfigSource.TOPIC))
    inherited = [synonym for name in row.broker for synonym in broker.synonyms(name)]
    synonyms += sorted(inherited, key=_default_last)
    if not row.broker or not synonyms:
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
