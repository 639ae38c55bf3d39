"""What a setting is: its type, which values it allows, and how its text is parsed.

Settings are fields of a frozen dataclass, made by the functions below.  A setting's name is the
field's name with dots for underscores, so `log_segment_bytes` is `log.segment.bytes`: the class is
the table, and no name is written twice.  The tables are in `broker_settings` and `topic_settings`.

A parser raises ValueError; `settings.parse` makes it a SettingError with the setting's name, where
it was given and what is allowed.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, TypedDict, TypeVar, Unpack

from quipu.model.listeners import (
    DEFAULT,
    LISTENERS_MAX,
    ListenerEndpoint,
    ListenerProtocol,
    ListenerZone,
    SecurityProtocol,
    is_listener_name,
)

SHORT_MAX: Final = 2**15 - 1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
PORT_MAX: Final = 2**16 - 1
VOTERS_MAX: Final = 9
ADDRESS_LIMITS_MAX: Final = 1000
TEXT_SIZE_MAX: Final = 1 << 20  # bytes; enough for certificates
LINE_SIZE_MAX: Final = 1000  # bytes; a rack is part of every Metadata response
PATH_SIZE_MAX: Final = 4096
HOST_SIZE_MAX: Final = 255  # a DNS name has at most 253
_MEMBER_NAME_SIZE_MAX: Final = 63  # as a DNS label
_MEMBER_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?-(?:0|[1-9][0-9]{0,8})")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")  # an int64; int() of many digits is slow
_TEXT: Final = re.compile(r"[^\x00\ud800-\udfff]+")  # a lone surrogate was a byte that is no UTF-8
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_DECIMAL: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})?")


class SettingType(IntEnum):
    """Kafka's types of settings, with the codes of DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Address(NamedTuple):
    """Address of a listener: a host name or IP, and a port (0: the system chooses one)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Voter(NamedTuple):
    """A node that elects the controller: its id, and the address that other nodes connect to.

    A voter without an address is found by peer.discovery.
    """

    node_id: int
    address: Address | None = None

    def __str__(self) -> str:
        return str(self.node_id) if self.address is None else f"{self.node_id}@{self.address}"


class AddressLimit(NamedTuple):
    """Maximum number of connections from one IP address."""

    host: str
    count_max: int

    def __str__(self) -> str:
        return f"{self.host}:{self.count_max}"


_RANGES: Final = {
    SettingType.SHORT: (-(2**15), SHORT_MAX),
    SettingType.INT: (-(2**31), INT_MAX),
    SettingType.LONG: (-(2**63), LONG_MAX),
}

Value = (int | float | bool | str | tuple[str, ...] | tuple[Voter, ...] | tuple[AddressLimit, ...]
         | tuple[ListenerEndpoint, ...] | tuple[ListenerProtocol, ...] | tuple[ListenerZone, ...]
         | Address | None)
T = TypeVar("T", bound=Value)


class ValueRule(NamedTuple):
    """The type of a setting, its parser, and which values it allows."""

    type: SettingType
    parse: Callable[[str], Value]  # raises ValueError
    allowed: str  # for people: continues "must be ..."
    low: int | None = None  # minimum and maximum of an integer
    high: int | None = None


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

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is a secret, which is in no response, log line or error."""
        return self.kind.type is SettingType.PASSWORD

    @property
    def documentation(self) -> str:
        """What the setting does, and why it has no effect if it has none."""
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


def render(value: Value) -> str | None:
    """The text that parses to `value`; None for a setting that has no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(str, value))
    return str(value)


# -- Types of settings: each function makes a dataclass field.


def boolean(about: str, *, default: bool, **traits: Unpack[Traits]) -> bool:
    kind = ValueRule(SettingType.BOOLEAN, _parse_boolean, "true or false")
    return _setting(default, kind, about, traits)


def int16(default: int, about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int:
    return _setting(default, _integer(SettingType.SHORT, low, high), about, traits)


def int32(default: int, about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int:
    return _setting(default, _integer(SettingType.INT, low, high), about, traits)


def int64(default: int, about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int:
    return _setting(default, _integer(SettingType.LONG, low, high), about, traits)


def optional_int32(about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int | None:
    return _setting(_NONE, _integer(SettingType.INT, low, high), about, traits)


def optional_int64(about: str, *, low: int, high: int, **traits: Unpack[Traits]) -> int | None:
    return _setting(_NONE, _integer(SettingType.LONG, low, high), about, traits)


def ratio(default: float, about: str, **traits: Unpack[Traits]) -> float:
    kind = ValueRule(SettingType.DOUBLE, _parse_ratio, "a number from 0 to 1")
    return _setting(default, kind, about, traits)


def text(default: str, about: str, **traits: Unpack[Traits]) -> str:
    return _setting(default, _text(SettingType.STRING), about, traits)


def optional_text(about: str, **traits: Unpack[Traits]) -> str | None:
    return _setting(_NO_TEXT, _text(SettingType.STRING), about, traits)


def optional_line(about: str, **traits: Unpack[Traits]) -> str | None:
    return _setting(_NO_TEXT, _line(LINE_SIZE_MAX), about, traits)


def path(default: str, about: str, **traits: Unpack[Traits]) -> str:
    return _setting(default, _line(PATH_SIZE_MAX), about, traits)


def optional_secret(about: str, **traits: Unpack[Traits]) -> str | None:
    """A secret text: in no error, log line, repr or response."""
    return _setting(_NO_TEXT, _text(SettingType.PASSWORD), about, traits)


def choice(default: str, among: Sequence[str], about: str, **traits: Unpack[Traits]) -> str:
    """One of the words in `among`; case matters."""

    def parse(value: str) -> str:
        if value not in among:
            raise ValueError
        return value

    kind = ValueRule(SettingType.STRING, parse, _either(among))
    return _setting(default, kind, about, traits)


def choices(
    default: tuple[str, ...], among: Sequence[str], about: str, **traits: Unpack[Traits]
) -> tuple[str, ...]:
    """One or more of the words in `among`, separated by commas."""

    def parse(value: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in value.split(","))
        if not set(words) <= set(among):
            raise ValueError
        return tuple(dict.fromkeys(words))

    kind = ValueRule(SettingType.LIST, parse, f"a comma list of {_either(among)}")
    return _setting(default, kind, about, traits)


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


def _integer(kind: SettingType, low: int, high: int) -> ValueRule:
    least, most = _RANGES[kind]
    assert least <= low <= high <= most, (kind, low, high)

    def parse(value: str) -> int:
        number = whole_number(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return ValueRule(kind, parse, f"an integer from {low} to {high}", low, high)


def whole_number(value: str) -> int:
    """An integer as Kafka writes it; `int` would also accept `1_000` and non-ASCII digits."""
    if _NUMBER.fullmatch(value) is None:
        raise ValueError
    return int(value)


def _parse_boolean(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError
    return value.lower() == "true"


def _parse_ratio(value: str) -> float:
    if _DECIMAL.fullmatch(value) is None or not 0 <= float(value) <= 1:
        raise ValueError
    return float(value)


def _text(kind: SettingType) -> ValueRule:
    return ValueRule(kind, partial(_parse_text, _TEXT, TEXT_SIZE_MAX),
                f"some text in UTF-8, {TEXT_SIZE_MAX} bytes at most")


def _line(size_max: int) -> ValueRule:
    return ValueRule(SettingType.STRING, partial(_parse_text, _LINE, size_max),
                f"one line of UTF-8, {size_max} bytes at most")


def _parse_text(pattern: re.Pattern[str], size_max: int, value: str) -> str:
    if pattern.fullmatch(value) is None or len(value.encode()) > size_max:
        raise ValueError
    return value


def _parse_address(value: str) -> Address:
    """`host:port`, `[v6]:port`, or either after `PLAINTEXT://` as Kafka writes it."""
    host, colon, port = value.removeprefix("PLAINTEXT://").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError
    if not colon or any(character in host for character in "/,[] "):
        raise ValueError
    if host:
        _parse_text(_LINE, HOST_SIZE_MAX, host)
    number = _parse_digits(port, PORT_MAX)
    return Address(host or "0.0.0.0", number)  # noqa: S104 Kafka: no host means all interfaces


def _parse_endpoint(value: str) -> ListenerEndpoint:
    """`NAME://host:port`; without a name the listener is PLAINTEXT.  Case does not matter."""
    name, separator, address = value.rpartition("://")
    name = name.upper() if separator else DEFAULT.name
    if not is_listener_name(name):
        raise ValueError
    return ListenerEndpoint(name, *_parse_address(address))


def _parse_endpoints(value: str, *, are_ports_distinct: bool) -> tuple[ListenerEndpoint, ...]:
    """A comma list with each name once; listeners, unlike advertised ones, need distinct ports."""
    found = tuple(_parse_endpoint(item.strip()) for item in value.split(",") if value)
    ports = [endpoint.port for endpoint in found if endpoint.port]
    if len({endpoint.listener for endpoint in found}) < len(found) or len(found) > LISTENERS_MAX:
        raise ValueError
    if are_ports_distinct and (not found or len(set(ports)) < len(ports)):
        raise ValueError
    return found


def _parse_listener_protocols(value: str) -> tuple[ListenerProtocol, ...]:
    """`NAME:PROTOCOL,NAME:PROTOCOL`; case does not matter."""
    found = []
    for item in value.split(","):
        name, _, protocol = item.strip().upper().partition(":")
        if not is_listener_name(name):
            raise ValueError
        found.append(ListenerProtocol(name, SecurityProtocol(protocol)))
    if len({each.listener for each in found}) < len(found):
        raise ValueError
    return tuple(found)


def _parse_digits(value: str, most: int) -> int:
    """An integer from 0 to `most`, written without a sign."""
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(most))
            and int(value) <= most):
        raise ValueError
    return int(value)


def _parse_voters(value: str) -> tuple[Voter, ...]:
    """`1@host:port,2@host:port`, as Kafka writes it, or `1,2`; empty means this node alone."""
    found = []
    for item in value.split(",") if value else []:
        number, at, where = item.strip().partition("@")
        address = _parse_address(where) if at else None
        found.append(Voter(_parse_digits(number, INT_MAX), address))
    if len({voter.node_id for voter in found}) < len(found) or len(found) > VOTERS_MAX:
        raise ValueError
    return tuple(found)


def _parse_address_limits(value: str) -> tuple[AddressLimit, ...]:
    """`10.0.0.1:100,::1:20`, as Kafka writes it: the count follows the last colon."""
    found = []
    for item in value.split(",") if value else []:
        host, _, count = item.strip().rpartition(":")
        limit = AddressLimit(host.strip("[]"), _parse_digits(count, INT_MAX))
        if not limit.host or any(character in limit.host for character in "/[] "):
            raise ValueError
        found.append(limit)
    if len({limit.host for limit in found}) < len(found) or len(found) > ADDRESS_LIMITS_MAX:
        raise ValueError
    return tuple(found)


def is_member_name(value: str) -> bool:
    """Whether `value` is a node name such as `orders-0`: a chain, and a number in it."""
    return len(value) <= _MEMBER_NAME_SIZE_MAX and _MEMBER_NAME.fullmatch(value) is not None


def _parse_member_name(value: str) -> str:
    if not is_member_name(value):
        raise ValueError
    return value


def _either(words: Sequence[str]) -> str:
    return " or ".join(words)


ADDRESS: Final = ValueRule(
    SettingType.STRING, _parse_address,
    f"one HOST:PORT (or PLAINTEXT://HOST:PORT) with a host of {HOST_SIZE_MAX} characters at most "
    "and a port from 0 to 65535")
_ONE_ENDPOINT: Final = (
    f"one HOST:PORT or NAME://HOST:PORT (port from 0 to 65535, host up to {HOST_SIZE_MAX} "
    f"characters), or up to {LISTENERS_MAX} with commas, each name")
ENDPOINTS: Final = ValueRule(
    SettingType.LIST, partial(_parse_endpoints, are_ports_distinct=True),
    f"{_ONE_ENDPOINT} and each port once")
ADVERTISED_ENDPOINTS: Final = ValueRule(
    SettingType.LIST, partial(_parse_endpoints, are_ports_distinct=False), f"{_ONE_ENDPOINT} once")
LISTENER_PROTOCOLS: Final = ValueRule(
    SettingType.LIST, _parse_listener_protocols,
    f"a comma list of NAME:PROTOCOL, each name once, where PROTOCOL is "
    f"{_either(list(SecurityProtocol))}")
VOTERS: Final = ValueRule(
    SettingType.LIST, _parse_voters,
    f"a comma list of ID@HOST:PORT, or of IDs alone, each id once, {VOTERS_MAX} at most")
ADDRESS_LIMITS: Final = ValueRule(
    SettingType.LIST, _parse_address_limits,
    f"a comma list of IP:COUNT, each address once, {ADDRESS_LIMITS_MAX} at most")
MEMBER_NAME: Final = ValueRule(
    SettingType.STRING, _parse_member_name,
    "CHAIN-N: lower-case letters, digits and dashes, then a dash and a number, such as a-0")
