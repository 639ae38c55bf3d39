"""Settings by name: looking them up, parsing their text, and what a topic inherits.

The tables are `BrokerSettings` (broker_settings) and `TopicSettings` (topic_settings): at the same
time the typed values that the rest of the program reads.

Invariants
    C1  a setting is honoured, or says in `ignored` that it is not and why
    C2  unknown names are refused, with the nearest known one
    C3  a value was checked when it was given: holders of a table may assume that it is allowed
    C4  what was stored by an earlier version can always be read: a value that is not allowed any
        more becomes the nearest one that is, or what it would be if it had not been set
    C5  the value of a sensitive setting appears in no error

Not here: reading files and environment (settings_sources), the kinds of settings (settings_types).
"""

import dataclasses
from collections.abc import Mapping
from typing import Final

from quipu.model.broker_settings import BrokerSettings
from quipu.model.errors import SettingError
from quipu.model.nearest import nearest
from quipu.model.settings_types import (
    Kind,
    Setting,
    Value,
    attribute_name,
    settings_of,
    whole_number,
)
from quipu.model.topic_settings import TopicSettings

__all__ = [
    "ALIASES", "BROKER", "TOPIC", "BrokerSettings", "TopicSettings", "check", "find", "in_ms",
    "inherited", "parse", "stored_value", "topic_settings", "value_of", "with_dynamic",
]

VALUE_SIZE_MAX: Final = 256  # of a setting that is changed while nodes run, or of a topic's

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

BROKER: Final[Mapping[str, Setting]] = settings_of(BrokerSettings)
TOPIC: Final[Mapping[str, Setting]] = settings_of(TopicSettings)
ALIASES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}

assert all(name in BROKER for row in TOPIC.values() for name in row.broker)
assert all(name in BROKER for name in ALIASES.values())


def parse(rows: Mapping[str, Setting], name: str, value: str, where: str = "") -> Value:
    """The typed value of `name=value`, or a `SettingError` that says what is allowed (C2, C3)."""
    row = find(rows, name, where)
    try:
        return row.kind.parse(value.strip())
    except ValueError:
        shown = "" if row.is_sensitive else f"={_shorten(value)}"  # C5
        raise SettingError(f"{name}{shown}{_at(where)}: must be {row.kind.allowed}") from None


def check(rows: Mapping[str, Setting], overrides: Mapping[str, str]) -> None:
    """Raise `SettingError` unless every name is known and every value allowed (C2, C3).

    For values that are kept as they are given, which are many: they have VALUE_SIZE_MAX characters.
    """
    for name, value in overrides.items():
        parse(rows, name, value)
        if len(value) > VALUE_SIZE_MAX:
            raise SettingError(f"{name}: a value of {len(value)} characters; at most "
                               f"{VALUE_SIZE_MAX} are kept")


def stored_value(rows: Mapping[str, Setting], name: str, value: str) -> Value:
    """What `name=value` means that was stored by whichever version; None: nothing (C4)."""
    row = rows.get(name)
    if row is None:
        return None
    try:
        return row.kind.parse(value.strip())
    except ValueError:
        return _nearest_allowed(row.kind, value.strip())


def _nearest_allowed(kind: Kind, value: str) -> Value:
    if kind.low is None or kind.high is None:
        return None
    try:
        return min(max(whole_number(value), kind.low), kind.high)
    except ValueError:
        return None


def find(rows: Mapping[str, Setting], name: str, where: str = "") -> Setting:
    """The row of `name`, or a `SettingError` with the nearest name (C2)."""
    row = rows.get(name)
    if row is None:
        near = nearest(name, [*rows, *ALIASES], cutoff=0.5)
        hint = f"; did you mean {near}?" if near else ""
        raise SettingError(f"unknown setting {_shorten(name)}{_at(where)}{hint}")
    return row


def value_of(settings: BrokerSettings | TopicSettings, name: str) -> Value:
    """The value of the setting called `name`, which must be one of the table."""
    value: Value = getattr(settings, attribute_name(name))
    return value


def with_dynamic(settings: BrokerSettings, overrides: Mapping[str, str]) -> BrokerSettings:
    """`settings` with stored values that were changed while the node ran (C4)."""
    values = {attribute_name(name): value for name, text in overrides.items()
              if (value := stored_value(BROKER, name, text)) is not None}
    return dataclasses.replace(settings, **values)  # type: ignore[arg-type]  # of its row's kind


def topic_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> TopicSettings:
    """What applies to a topic: its own stored `overrides`, else what the broker says (C4)."""
    values = {}
    for name, row in TOPIC.items():
        own = stored_value(TOPIC, name, overrides[name]) if name in overrides else None
        values[attribute_name(name)] = inherited(row, broker) if own is None else own
    return TopicSettings(**values)  # type: ignore[arg-type]  # of its row's kind


def inherited(row: Setting, broker: BrokerSettings) -> Value:
    """The value of a topic's setting for a topic that does not override it."""
    for name in row.broker:
        value = value_of(broker, name)
        if value is not None:
            return in_ms(name, value)
    return row.default


def in_ms(name: str, value: Value) -> Value:
    """Hours and minutes turned into the milliseconds that topics count in; -1 stays -1."""
    factor = {"hours": _HOUR_MS, "minutes": _MINUTE_MS}.get(name.rpartition(".")[2], 1)
    return value * factor if isinstance(value, int) and value > 0 and factor > 1 else value


def _shorten(value: str) -> str:
    """At most 80 characters of a text, and none that a terminal would act on."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in value[:80])
    return shown if len(value) <= 80 else f"{shown}..."


def _at(where: str) -> str:
    return f" ({where})" if where else ""
