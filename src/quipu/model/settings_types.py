"""What a setting is, and the functions that declare one.

Settings are fields of a frozen dataclass, made by the functions below.  A setting's name is the
field's name with dots for underscores, so `log_segment_bytes` is `log.segment.bytes`: the class is
the table, and no name is written twice.  The tables are in `broker_settings` and `topic_settings`.

Not here: which values a type of setting allows (settings_rules).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, Unpack

from quipu.model.listeners import ListenerEndpoint, ListenerProtocol
from quipu.model.settings_rules import (
    ADDRESS,
    ADDRESS_LIMITS,
    ADVERTISED_ENDPOINTS,
    ENDPOINTS,
    INT_MAX,
    LINE_SIZE_MAX,
    LISTENER_PROTOCOLS,
    LONG_MAX,
    MEMBER_NAME,
    PATH_SIZE_MAX,
    PORT_MAX,
    SHORT_MAX,
    VOTERS,
    Address,
    AddressLimit,
    SettingType,
    Value,
    ValueRule,
    Voter,
    boolean_rule,
    choice_rule,
    choices_rule,
    decimal_rule,
    integer_rule,
    is_member_name,
    line_rule,
    ratio_rule,
    render,
    text_rule,
    whole_number,
)

__all__ = [
    "ADDRESS", "ADDRESS_LIMITS", "INT_MAX", "LINE_SIZE_MAX", "LONG_MAX", "MEMBER_NAME", "PORT_MAX",
    "SHORT_MAX", "VOTERS", "Address", "AddressLimit", "Setting", "SettingType", "Traits", "Value",
    "ValueRule", "Voter", "address", "address_limits", "advertised_endpoints", "attribute_name",
    "boolean", "choice", "choices", "decimal", "endpoints", "int16", "int32", "int64",
    "is_member_name", "listener_protocols", "member_name", "optional_address", "optional_int32",
    "optional_int64", "optional_line", "optional_secret", "optional_text", "path", "ratio",
    "render", "ruled", "setting_name", "settings_of", "text", "voters", "whole_number",
]

T = TypeVar("T", bound=Value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of a table of settings."""

    name: str
    kind: ValueRule
    default: Value
    about: str
    dynamic: bool  # may be changed while the node runs
    ignored: str  # why it has no effect; empty if it has one (model.C1)
    # Of a topic's setting: the broker's settings for its default; the first that has a value counts
    broker: tuple[str, ...]
    refused: str = ""  # why no value but Kafka's default is allowed; empty if others are
    is_per_broker: bool = False  # dynamic, and cannot be the default of all brokers
    is_internal: bool = False  # described only where it is set, as in Kafka
    kafka_default: str | None = None  # Kafka's own default, which is always accepted

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is a secret, which is in no response, log line or error."""
        return self.kind.type is SettingType.PASSWORD

    @property
    def documentation(self) -> str:
        """What the setting does, and why it has no effect if it has none."""
        if self.refused:
            return f"{self.about} Only its default is accepted: {self.refused}."
        if not self.ignored:
            return self.about
        return f"{self.about} Accepted and reported, but without effect: {self.ignored}"


class Traits(TypedDict, total=False):
    """Optional properties of a setting of any type."""

    dynamic: bool
    ignored: str
    broker: tuple[str, ...]


def setting_name(attribute: str) -> str:
    """`log_segment_bytes` -> `log.segment.bytes`."""
    return attribute.replace("_", ".")


def attribute_name(setting: str) -> str:
    """`log.segment.bytes` -> `log_segment_bytes`."""
    return setting.replace(".", "_")


def settings_of(table: type) -> dict[str, Setting]:
    """Every setting of a dataclass whose fields were made by the functions below, by name."""
    found: dict[str, Setting] = {}
    for item in dataclasses.fields(table):
        row = item.metadata.get("setting")
        if row is not None:
            assert isinstance(row, Setting), item.name
            name = setting_name(item.name)
            assert render(row.default) is None or _accepts(row), f"{name}: bad default"
            found[name] = dataclasses.replace(row, name=name)
    return found


# -- Types of settings: each function makes a dataclass field.


def boolean(about: str, *, default: bool, **traits: Unpack[Traits]) -> bool:
    return _setting(default, boolean_rule(), about, traits)


def int16(default: int, about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int:
    return _setting(default, integer_rule(SettingType.SHORT, low, high), about, traits)


def int32(default: int, about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int:
    return _setting(default, integer_rule(SettingType.INT, low, high), about, traits)


def int64(default: int, about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int:
    return _setting(default, integer_rule(SettingType.LONG, low, high), about, traits)


def optional_int32(about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int | None:
    return _setting(_NONE, integer_rule(SettingType.INT, low, high), about, traits)


def optional_int64(about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int | None:
    return _setting(_NONE, integer_rule(SettingType.LONG, low, high), about, traits)


def ratio(default: float, about: str, **traits: Unpack[Traits]) -> float:
    return _setting(default, ratio_rule(), about, traits)


def decimal(default: float, about: str, *, low: float, **traits: Unpack[Traits]) -> float:
    return _setting(default, decimal_rule(low), about, traits)


def text(default: str, about: str, **traits: Unpack[Traits]) -> str:
    return _setting(default, text_rule(SettingType.STRING), about, traits)


def optional_text(about: str, **traits: Unpack[Traits]) -> str | None:
    return _setting(_NO_TEXT, text_rule(SettingType.STRING), about, traits)


def optional_line(about: str, **traits: Unpack[Traits]) -> str | None:
    return _setting(_NO_TEXT, line_rule(LINE_SIZE_MAX), about, traits)


def path(default: str, about: str, **traits: Unpack[Traits]) -> str:
    return _setting(default, line_rule(PATH_SIZE_MAX), about, traits)


def optional_secret(about: str, **traits: Unpack[Traits]) -> str | None:
    """A secret text: in no error, log line, repr or response."""
    return _setting(_NO_TEXT, text_rule(SettingType.PASSWORD), about, traits)


def choice(default: str, among: Sequence[str], about: str, **traits: Unpack[Traits]) -> str:
    """One of the words in `among`; case matters."""
    return _setting(default, choice_rule(among), about, traits)


def choices(
    default: tuple[str, ...], among: Sequence[str], about: str, **traits: Unpack[Traits]
) -> tuple[str, ...]:
    """One or more of the words in `among`, separated by commas."""
    return _setting(default, choices_rule(among), about, traits)


def address(default: Address, about: str, **traits: Unpack[Traits]) -> Address:
    return _setting(default, ADDRESS, about, traits)


def member_name(default: str, about: str, **traits: Unpack[Traits]) -> str:
    return _setting(default, MEMBER_NAME, about, traits)


def voters(about: str, **traits: Unpack[Traits]) -> tuple[Voter, ...]:
    return _setting(_NO_VOTERS, VOTERS, about, traits)


def address_limits(about: str, **traits: Unpack[Traits]) -> tuple[AddressLimit, ...]:
    return _setting(_NO_LIMITS, ADDRESS_LIMITS, about, traits)


def endpoints(
    default: tuple[ListenerEndpoint, ...], about: str, **traits: Unpack[Traits]
) -> tuple[ListenerEndpoint, ...]:
    return _setting(default, ENDPOINTS, about, traits)


def advertised_endpoints(about: str, **traits: Unpack[Traits]) -> tuple[ListenerEndpoint, ...]:
    return _setting(_NO_ENDPOINTS, ADVERTISED_ENDPOINTS, about, traits)


def listener_protocols(
    default: tuple[ListenerProtocol, ...], about: str, **traits: Unpack[Traits]
) -> tuple[ListenerProtocol, ...]:
    return _setting(default, LISTENER_PROTOCOLS, about, traits)


def optional_address(about: str, **traits: Unpack[Traits]) -> Address | None:
    return _setting(_NO_ADDRESS, ADDRESS, about, traits)


def ruled(default: T, kind: ValueRule, about: str, **traits: Unpack[Traits]) -> T:
    return _setting(default, kind, about, traits)


_NONE: int | None = None
_NO_TEXT: str | None = None
_NO_ADDRESS: Address | None = None
_NO_ENDPOINTS: tuple[ListenerEndpoint, ...] = ()
_NO_VOTERS: tuple[Voter, ...] = ()
_NO_LIMITS: tuple[AddressLimit, ...] = ()


def _setting(default: T, kind: ValueRule, about: str, traits: Traits) -> T:
    row = Setting(
        name="",  # set by `settings_of`, from the field's name
        kind=kind,
        default=default,
        about=about,
        dynamic=traits.get("dynamic", False),
        ignored=traits.get("ignored", ""),
        broker=traits.get("broker", ()),
    )
    return field(default=default, repr=not row.is_sensitive, metadata={"setting": row})


def _accepts(row: Setting) -> bool:
    written = render(row.default)
    assert written is not None
    return row.kind.parse(written) == row.default
