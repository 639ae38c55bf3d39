"""Settings as clients see them: the value in force, and where it comes from.

The places that a value may come from form a ladder, best first: the topic itself, this broker's
dynamic settings, the cluster's dynamic default, the broker's static configuration, the built-in
default.  The first rung that has a value is in force; all that have one are its `synonyms`.  Of a
sensitive setting it is told that it has a value and where from, never which one.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from quipu.controller.internal_topics import settings_of
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState, ResourceType, Topic
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


class Source(IntEnum):
    """Where a value comes from; Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One rung of the ladder that has a value."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One setting with its value in force."""

    row: Setting
    value: str | None
    source: Source
    read_only: bool
    synonyms: tuple[Synonym, ...]


class Ladder(NamedTuple):
    """What one broker's settings are made of."""

    settings: BrokerSettings  # static
    own: Mapping[str, str]  # dynamic, of this broker
    cluster: Mapping[str, str]  # dynamic, of every broker

    def rungs(self, name: str) -> Iterator[Synonym]:
        """Every place that says something about the broker setting `name`, best first."""
        for source, texts in ((Source.DYNAMIC_BROKER, self.own),
                              (Source.DYNAMIC_CLUSTER, self.cluster)):
            value = stored_value(BROKER, name, texts[name]) if name in texts else None
            if value is not None:
                yield Synonym(name, shown(BROKER[name], value), source)
        value, default = value_of(self.settings, name), BROKER[name].default
        if name in self.settings.explicit or value != default:
            yield Synonym(name, shown(BROKER[name], value), Source.STATIC_BROKER)
        if default is not None:
            yield Synonym(name, shown(BROKER[name], default), Source.DEFAULT)


def shown(row: Setting, value: Value) -> str | None:
    """`value` as clients may see it: nothing of a secret."""
    return None if row.is_sensitive else render(value)


def ladder(state: ClusterState, node_id: int, settings: BrokerSettings) -> Ladder:
    return Ladder(
        settings,
        own=state.configs(ResourceType.BROKER, str(node_id)),
        cluster=state.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
    )


def describe_topic(topic: Topic, broker: Ladder) -> list[Entry]:
    """Every setting of a topic, with the value that is in force.

    `min.insync.replicas` of 0 stands for all nodes of the chain: their number is told, for tools
    compare it with the number of replicas.  Where it comes from is told as it was given.
    """
    configs = settings_of(topic)
    entries = [_topic_entry(row, configs, broker) for row in TOPIC.values()]
    return [entry._replace(value=str(topic.replication_factor))
            if entry.row.name == MIN_INSYNC_REPLICAS and entry.value == ALL_REPLICAS else entry
            for entry in entries]


def describe_broker(broker: Ladder) -> list[Entry]:
    """Every setting of a broker."""
    entries = []
    for row in BROKER.values():
        rungs = tuple(broker.rungs(row.name))
        value, source = (rungs[0].value, rungs[0].source) if rungs else (None, Source.DEFAULT)
        entries.append(Entry(row, value, source, not row.dynamic, rungs))
    return entries


def describe_cluster_default(broker: Ladder) -> list[Entry]:
    """The dynamic settings that hold for every broker: only those that were given."""
    entries = []
    for name, text in broker.cluster.items():
        value = stored_value(BROKER, name, text)
        if value is not None:
            row = BROKER[name]
            rung = Synonym(name, shown(row, value), Source.DYNAMIC_CLUSTER)
            entries.append(Entry(row, rung.value, rung.source, not row.dynamic, (rung,)))
    return entries


def _topic_entry(row: Setting, configs: Mapping[str, str], broker: Ladder) -> Entry:
    rungs = []
    own = stored_value(TOPIC, row.name, configs[row.name]) if row.name in configs else None
    if own is not None:
        rungs.append(Synonym(row.name, shown(row, own), Source.TOPIC))
    inherited = [rung for name in row.broker for rung in broker.rungs(name)]
    rungs += sorted(inherited, key=_default_last)
    if not row.broker:
        rungs.append(Synonym(row.name, render(row.default), Source.DEFAULT))
    best = rungs[0]
    value = best.value if best.name == row.name else _as_topic(best)
    return Entry(row, value, best.source, read_only=False, synonyms=tuple(rungs))


def _default_last(rung: Synonym) -> bool:
    """`log.retention.hours` given beats the built-in default of any other of its names."""
    return rung.source is Source.DEFAULT


def _as_topic(rung: Synonym) -> str | None:
    """The broker's value in the unit that the topic's setting has."""
    if rung.value is None:
        return None
    return render(in_ms(rung.name, stored_value(BROKER, rung.name, rung.value)))
