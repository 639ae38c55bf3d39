"""Settings by name: looking them up, parsing their text, and what a topic inherits.

The tables are `BrokerSettings` (broker_settings) and `TopicSettings` (topic_settings).  An instance
of a table holds the typed values that the rest of the program reads.

Invariants
    model.C1  a setting has an effect, or its `ignored` says why it has none, or its `refused` why
              no value but Kafka's default is accepted
    model.C2  an unknown name is refused, and the error suggests the nearest known one; every name
              of Kafka 4.2 is known (kafka_settings)
    model.C3  values are checked when a table is made: code that reads one may assume that every
              value is allowed
    model.C4  values that an earlier version stored can always be read: one that is no longer
              allowed is replaced by the nearest allowed one, or by the default
    model.C6  Kafka's default is accepted for every setting of Kafka; where it is not allowed here,
              as "no limit" is not, it means our default
    model.C5  the value of a sensitive setting appears in no error

Not here: reading files and environment (settings_sources), types of settings (settings_types).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from quipu.model.broker_settings import BrokerSettings
from quipu.model.errors import SettingError
from quipu.model.kafka_settings import EARLIER_BROKER, KAFKA_BROKER, KAFKA_TOPIC
from quipu.model.kafka_settings.prefixed import find_prefixed
from quipu.model.kafka_settings.rows import KafkaSetting, SettingVerdict
from quipu.model.nearest import nearest
from quipu.model.settings_types import (
    Setting,
    Value,
    ValueRule,
    attribute_name,
    settings_of,
    whole_number,
)
from quipu.model.throttle_settings import THROTTLED_SIZE_MAX
from quipu.model.topic_settings import TopicSettings

__all__ = [
    "ALIASES", "BROKER", "OWN_BROKER", "OWN_TOPIC", "SETTINGS_PAGE", "TOPIC", "BrokerSettings",
    "TopicSettings", "check", "find", "find_known", "in_ms", "inherited", "names_without_effect",
    "parse", "stored_value", "topic_settings", "value_of", "with_dynamic",
]

SETTINGS_PAGE: Final = "docs/reference/kafka-settings.md"  # what becomes of each
VALUE_SIZE_MAX: Final = 256  # characters of a value that is stored in the cluster's metadata ...
LONG_VALUES: Final = {  # ... but for these
    "follower.replication.throttled.replicas": THROTTLED_SIZE_MAX,
    "leader.replication.throttled.replicas": THROTTLED_SIZE_MAX,
}

_ORDERED: Final = (  # pairs of settings: the first must not be the larger one
    ("min.compaction.lag.ms", "max.compaction.lag.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"))
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


def _with_kafka(
    own: Mapping[str, Setting], *kafka: Mapping[str, KafkaSetting]
) -> dict[str, Setting]:
    """A table, with Kafka's types and defaults, and Kafka's settings that have no effect."""
    facts = {name: row for rows in kafka for name, row in rows.items()}
    made = {name: row if name not in facts else dataclasses.replace(
                row, kind=row.kind._replace(type=facts[name].type),
                kafka_default=facts[name].default)
            for name, row in own.items()}
    others = {name: row.setting() for name, row in facts.items()
              if name not in own and row.verdict is not SettingVerdict.HONOURED}
    return made | others


OWN_TOPIC: Final[Mapping[str, Setting]] = settings_of(TopicSettings)  # fields of TopicSettings
OWN_BROKER: Final[Mapping[str, Setting]] = settings_of(BrokerSettings)
TOPIC: Final[Mapping[str, Setting]] = _with_kafka(OWN_TOPIC, KAFKA_TOPIC)
BROKER: Final[Mapping[str, Setting]] = _with_kafka(OWN_BROKER, KAFKA_BROKER, EARLIER_BROKER)
ALIASES: Final = {
    "broker.id": "node.id",
    "log.dir": "log.dirs",
    # Names of Inkless.
    "inkless.client.az.listener.map": "diskless.client.az.listener.map",
    "inkless.consume.cache.max.bytes": "diskless.cache.bytes",
    "inkless.fetch.data.thread.pool.size": "diskless.fetch.threads",
    "inkless.fetch.lagging.consumer.thread.pool.size": "diskless.fetch.lagging.threads",
    "inkless.file.cleaner.interval.ms": "diskless.cleaner.interval.ms",
    "inkless.file.cleaner.retention.period.ms": "diskless.object.grace.ms",
    "inkless.produce.buffer.max.bytes": "diskless.flush.bytes",
    "inkless.produce.commit.interval.ms": "diskless.flush.interval.ms",
    "inkless.produce.upload.thread.pool.size": "diskless.upload.threads",
    "inkless.retention.enforcement.interval.ms": "diskless.retention.interval.ms",
}

assert all(name in BROKER for row in TOPIC.values() for name in row.broker)
assert all(name in BROKER for name in ALIASES.values())


def parse(rows: Mapping[str, Setting], name: str, value: str, where: str = "") -> Value:
    """The typed value of `name=value`; SettingError if it is not allowed (model.C2, model.C3)."""
    row = find(rows, name, where)
    shown = "" if row.is_sensitive else f"={_shorten(value)}"  # model.C5
    try:
        found = _typed(row, value.strip())
    except ValueError:
        raise SettingError(f"{name}{shown}{_at(where)}: must be {row.kind.allowed}") from None
    if row.refused and found and found != row.default:
        raise SettingError(f"{name}{shown}{_at(where)} is refused: {row.refused}")
    return found


def _typed(row: Setting, text: str) -> Value:
    """The value that `text` means; ValueError if it means none (model.C6)."""
    try:
        return row.kind.parse(text)
    except ValueError:
        if text == row.kafka_default:
            return row.default
        raise


def check(rows: Mapping[str, Setting], overrides: Mapping[str, str]) -> None:
    """Raise `SettingError` unless every name is known and every value allowed (model.C2, model.C3).

    For values that the metadata stores as text: their size is bounded (VALUE_SIZE_MAX).
    """
    for name, value in overrides.items():
        size_max = LONG_VALUES.get(name, VALUE_SIZE_MAX)
        find(rows, name)
        if len(value) > size_max:
            raise SettingError(f"{name}: the value has {len(value)} characters; at most "
                               f"{size_max} are allowed")
        parse(rows, name, value)
    for least, most in _ORDERED:
        if least in overrides and most in overrides and (
                whole_number(overrides[least].strip()) > whole_number(overrides[most].strip())):
            raise SettingError(f"{least}={overrides[least]}: must be at most {most}, "
                               f"which is {overrides[most]}")


def stored_value(rows: Mapping[str, Setting], name: str, value: str) -> Value:
    """The typed value of `name=value` as any version stored it; None if unusable (model.C4)."""
    row = rows.get(name)
    if row is None:
        return None
    try:
        return _typed(row, value.strip())
    except ValueError:
        return _nearest_allowed(row.kind, value.strip())


def _nearest_allowed(kind: ValueRule, value: str) -> Value:
    if kind.low is None or kind.high is None:
        return None
    try:
        return min(max(whole_number(value), kind.low), kind.high)
    except ValueError:
        return None


def find(rows: Mapping[str, Setting], name: str, where: str = "") -> Setting:
    """The row of `name`, or a `SettingError` with the nearest name (model.C2)."""
    row = find_known(rows, name)
    if row is None:
        near = nearest(name, [*rows, *ALIASES], cutoff=0.5)
        hint = f"; did you mean {near}?" if near else ""
        raise SettingError(f"unknown setting {_shorten(name)}{_at(where)}{hint}")
    return row


def find_known(rows: Mapping[str, Setting], name: str) -> Setting | None:
    """The row of `name`, which may be one of Kafka's names with a prefix; None if unknown."""
    row = rows.get(name)
    if row is None and rows is BROKER and (prefixed := find_prefixed(name)) is not None:
        return prefixed.setting()
    return row


def value_of(settings: BrokerSettings | TopicSettings, name: str) -> Value:
    """The value of the setting called `name`, which must be in the table."""
    if name in (OWN_BROKER if isinstance(settings, BrokerSettings) else OWN_TOPIC):
        value: Value = getattr(settings, attribute_name(name))
        return value
    assert isinstance(settings, BrokerSettings), name
    given = dict(settings.without_effect).get(name)
    return BROKER[name].default if given is None else stored_value(BROKER, name, given)


def with_dynamic(settings: BrokerSettings, overrides: Mapping[str, str]) -> BrokerSettings:
    """`settings` with the stored values of dynamic settings in place of its own (model.C4)."""
    values = {attribute_name(name): value for name, text in overrides.items()
              if name in OWN_BROKER and (value := stored_value(BROKER, name, text)) is not None}
    others = dict(settings.without_effect) | {
        name: text for name, text in overrides.items() if name in BROKER and name not in OWN_BROKER}
    return dataclasses.replace(
        settings, **values,  # type: ignore[arg-type]  # of its row's kind
        without_effect=tuple(sorted(others.items())))


def names_without_effect(rows: Mapping[str, Setting], names: Iterable[str]) -> list[str]:
    """Those of `names` that are accepted and change nothing here, for one warning (model.C1)."""
    return sorted({name for name in names
                   if (row := find_known(rows, name)) is not None and row.ignored})


def topic_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> TopicSettings:
    """The settings of a topic: its stored `overrides`, else the broker's values (model.C4)."""
    values = {}
    for name in OWN_TOPIC:
        own = stored_value(TOPIC, name, overrides[name]) if name in overrides else None
        values[attribute_name(name)] = inherited(TOPIC[name], broker) if own is None else own
    return TopicSettings(**values)  # type: ignore[arg-type]  # of its row's kind


def inherited(row: Setting, broker: BrokerSettings) -> Value:
    """The value of a topic's setting for a topic that does not override it."""
    for name in row.broker:
        value = value_of(broker, name)
        if value is not None:
            return in_ms(name, value)
    return row.default


def in_ms(name: str, value: Value) -> Value:
    """`value` in milliseconds, if `name` says hours or minutes; -1 stays -1."""
    factor = {"hours": _HOUR_MS, "minutes": _MINUTE_MS}.get(name.rpartition(".")[2], 1)
    return value * factor if isinstance(value, int) and value > 0 and factor > 1 else value


def _shorten(value: str) -> str:
    """The first 80 characters of `value`, with control characters escaped."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in value[:80])
    return shown if len(value) <= 80 else f"{shown}..."


def _at(where: str) -> str:
    return f" ({where})" if where else ""
