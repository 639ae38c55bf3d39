"""One row per setting of Kafka 4.2: its type, default and update mode, and what becomes of it here.

Rows are written as text, a line each, in groups that share a verdict and its reason:

    NAME  TYPE[:LOW..HIGH]  DEFAULT  MODE [internal]

DEFAULT is `null` for none, `required` for none that Kafka would start without, and `""` for empty
text.  MODE is Kafka's: read-only, per-broker or cluster-wide; settings of topics have none.
`internal` marks those that Kafka hides from its documentation and descriptions.

Not here: the rows (the other modules of this room), what a setting with an effect does
(broker_settings, topic_settings).
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from quipu.model.settings_rules import (
    INT_MAX,
    LONG_MAX,
    SHORT_MAX,
    SettingType,
    Value,
    ValueRule,
    boolean_rule,
    decimal_rule,
    integer_rule,
    list_rule,
    optional_text_rule,
)
from quipu.model.settings_types import Setting

NO_DEFAULT: Final = "required"
_NULL: Final = "null"
_EMPTY: Final = '""'
_INTERNAL: Final = "internal"
_INTEGERS: Final = {
    SettingType.SHORT: (-SHORT_MAX - 1, SHORT_MAX),
    SettingType.INT: (-INT_MAX - 1, INT_MAX),
    SettingType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


class SettingVerdict(StrEnum):
    """What becomes of a setting of Kafka."""

    HONOURED = "honoured"
    NO_EFFECT = "no effect"
    REFUSED = "refused"  # unless it has Kafka's default


class UpdateMode(StrEnum):
    """Whether a setting of a broker can be changed while it runs, with Kafka's names."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class KafkaSetting(NamedTuple):
    """A setting of Kafka: facts about it, and what becomes of it here."""

    name: str
    type: SettingType
    low: int | None
    high: int | None
    default: str | None  # None: it has none
    is_required: bool  # Kafka does not start without it
    mode: UpdateMode | None  # None: of a topic
    is_internal: bool
    verdict: SettingVerdict
    why: str  # of a verdict other than HONOURED: continues "without effect: ..." or "refused: ..."

    def setting(self) -> Setting:
        """The row of a table of settings, for a setting that has no effect or is refused."""
        assert self.verdict is not SettingVerdict.HONOURED, self
        rule = self._rule()
        default: Value = None if self.default is None else rule.parse(self.default)
        is_refused = self.verdict is SettingVerdict.REFUSED
        return Setting(
            name=self.name, kind=rule, default=default, about="A setting of Kafka.",
            dynamic=self.mode in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE),
            ignored=self.why, refused=self.why if is_refused else "", broker=(),
            is_per_broker=self.mode is UpdateMode.PER_BROKER, is_internal=self.is_internal,
            kafka_default=self.default)

    def _rule(self) -> ValueRule:
        match self.type:
            case SettingType.BOOLEAN:
                return boolean_rule()
            case SettingType.DOUBLE:
                return decimal_rule()
            case SettingType.LIST:
                return list_rule()
            case SettingType.SHORT | SettingType.INT | SettingType.LONG:
                least, most = _INTEGERS[self.type]
                return integer_rule(self.type, least if self.low is None else self.low,
                                    most if self.high is None else self.high)
            case _:
                return optional_text_rule(self.type)


def honoured(table: str) -> tuple[KafkaSetting, ...]:
    """Settings that have an effect here: broker_settings and topic_settings say which."""
    return tuple(_rows(table, SettingVerdict.HONOURED, ""))


def no_effect(why: str, table: str) -> tuple[KafkaSetting, ...]:
    """Settings that are accepted, checked and shown, and change nothing."""
    return tuple(_rows(table, SettingVerdict.NO_EFFECT, why))


def refused(why: str, table: str) -> tuple[KafkaSetting, ...]:
    """Settings of which only Kafka's default is accepted."""
    return tuple(_rows(table, SettingVerdict.REFUSED, why))


def _rows(table: str, verdict: SettingVerdict, why: str) -> Iterator[KafkaSetting]:
    for line in table.splitlines():
        if not line.strip():
            continue
        name, kind, default, *traits = line.split()
        word, _, bounds = kind.partition(":")
        low, _, high = bounds.partition("..")
        yield KafkaSetting(
            name=name, type=SettingType[word.upper()],
            low=int(low) if low else None, high=int(high) if high else None,
            default=None if default in (_NULL, NO_DEFAULT) else default.replace(_EMPTY, ""),
            is_required=default == NO_DEFAULT,
            mode=UpdateMode(traits[0]) if traits and traits[0] != _INTERNAL else None,
            is_internal=_INTERNAL in traits, verdict=verdict, why=why)
