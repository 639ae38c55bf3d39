"""Which values a setting allows: its type, and how its text is parsed.

A parser raises ValueError; `settings.parse` makes it a SettingError with the setting's name, where
it was given and what is allowed.

Not here: what a setting is, and the functions that declare one (settings_types).
"""

import math
import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

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
LIST_SIZE_MAX: Final = 4096
HOST_SIZE_MAX: Final = 255  # a DNS name has at most 253
ROLES_OF_NODES: Final = ("broker", "controller")
_GZIP_OWN_LEVEL: Final = -1
_GZIP_LEVEL_MAX: Final = 9
_MEMBER_NAME_SIZE_MAX: Final = 63  # as a DNS label
_MEMBER_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?-(?:0|[1-9][0-9]{0,8})")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")  # an int64; int() of many digits is slow
_TEXT: Final = re.compile(r"[^\x00\ud800-\udfff]+")  # a lone surrogate was a byte that is no UTF-8
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_DOUBLE: Final = re.compile(r"[+-]?[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE][+-]?[0-9]{1,3})?")
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
    CLASS = 8
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


class ValueRule(NamedTuple):
    """The type of a setting, its parser, and which values it allows."""

    type: SettingType
    parse: Callable[[str], Value]  # raises ValueError
    allowed: str  # for people: continues "must be ..."
    low: int | None = None  # minimum and maximum of an integer
    high: int | None = None


def render(value: Value) -> str | None:
    """The text that parses to `value`; None for a setting that has no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(str, value))
    return str(value)


def boolean_rule() -> ValueRule:
    """True or false; case does not matter."""
    return ValueRule(SettingType.BOOLEAN, _parse_boolean, "true or false")


def ratio_rule() -> ValueRule:
    """A fraction, both bounds included."""
    return ValueRule(SettingType.DOUBLE, _parse_ratio, "a number from 0 to 1")


def decimal_rule(low: float = -math.inf) -> ValueRule:
    """A number as Java writes a double, from `low` on."""

    def parse(value: str) -> float:
        number = _parse_decimal(value)
        if number < low:
            raise ValueError
        return number

    at_least = "" if low == -math.inf else f" of at least {low:g}"
    return ValueRule(SettingType.DOUBLE, parse, f"a number{at_least}")


def list_rule() -> ValueRule:
    """Words with commas between them; there may be none."""
    return ValueRule(SettingType.LIST, _parse_list,
                     f"a comma list on one line, {LIST_SIZE_MAX} bytes at most")


def choice_rule(among: Sequence[str]) -> ValueRule:
    """One of the words in `among`; case matters."""

    def parse(value: str) -> str:
        if value not in among:
            raise ValueError
        return value

    return ValueRule(SettingType.STRING, parse, _either(among))


def choices_rule(among: Sequence[str]) -> ValueRule:
    """One or more of the words in `among`, separated by commas."""

    def parse(value: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in value.split(","))
        if not set(words) <= set(among):
            raise ValueError
        return tuple(dict.fromkeys(words))

    return ValueRule(SettingType.LIST, parse, f"a comma list of {_either(among)}")


def integer_rule(kind: SettingType, low: int, high: int) -> ValueRule:
    """An integer from `low` to `high`, which are within the bounds of its type."""
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


def text_rule(kind: SettingType) -> ValueRule:
    """Text of several lines, such as a certificate."""
    return ValueRule(kind, partial(_parse_text, _TEXT, TEXT_SIZE_MAX),
                f"some text in UTF-8, {TEXT_SIZE_MAX} bytes at most")


def optional_text_rule(kind: SettingType) -> ValueRule:
    """Text that may be empty, as Kafka allows it for settings that it has no value for."""
    rule = text_rule(kind)
    return rule._replace(parse=lambda value: rule.parse(value) if value else "")


def line_rule(size_max: int) -> ValueRule:
    """Text of one line."""
    return ValueRule(SettingType.STRING, partial(_parse_text, _LINE, size_max),
                f"one line of UTF-8, {size_max} bytes at most")


def _parse_decimal(value: str) -> float:
    if _DOUBLE.fullmatch(value) is None:
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _parse_list(value: str) -> tuple[str, ...]:
    if value:
        _parse_text(_LINE, LIST_SIZE_MAX, value)
    return tuple(word.strip() for word in value.split(",")) if value else ()


def _parse_text(pattern: re.Pattern[str], size_max: int, value: str) -> str:
    if pattern.fullmatch(value) is None or len(value.encode()) > size_max:
        raise ValueError
    return value


def _parse_gzip_level(value: str) -> int:
    number = whole_number(value)
    if number != _GZIP_OWN_LEVEL and not 1 <= number <= _GZIP_LEVEL_MAX:
        raise ValueError
    return number


def _parse_directory(value: str) -> str:
    """One directory; Kafka separates several by commas."""
    if "," in value:
        raise ValueError
    return _parse_text(_LINE, PATH_SIZE_MAX, value)


def _parse_roles(value: str) -> tuple[str, ...]:
    words = _parse_list(value)
    if not set(words) <= set(ROLES_OF_NODES) or len(set(words)) < len(words):
        raise ValueError
    return words


def _parse_listener_names(value: str) -> tuple[str, ...]:
    names = tuple(name.upper() for name in _parse_list(value))
    if not all(map(is_listener_name, names)) or len(set(names)) < len(names):
        raise ValueError
    return names


def _parse_servers(value: str) -> tuple[str, ...]:
    return tuple(str(_parse_address(each)) for each in _parse_list(value))


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
    """`NAME://host:port`; without a name the listener is PLAINTEXT.  Case does not matter.

    A host that is left out stays empty: all interfaces, and this machine's name for clients.
    """
    name, separator, address = value.rpartition("://")
    name = name.upper() if separator else DEFAULT.name
    if not is_listener_name(name):
        raise ValueError
    found = ListenerEndpoint(name, *_parse_address(address))
    return found._replace(host="") if address.startswith(":") else found


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


GZIP_LEVELS: Final = ValueRule(
    SettingType.INT, _parse_gzip_level, f"{_GZIP_OWN_LEVEL}, or an integer from 1 to "
    f"{_GZIP_LEVEL_MAX}", _GZIP_OWN_LEVEL, _GZIP_LEVEL_MAX)
DIRECTORY: Final = ValueRule(
    SettingType.STRING, _parse_directory,
    f"one directory, {PATH_SIZE_MAX} bytes at most: a node has one, so run a node for each disk, "
    "or join the disks to one volume")
ROLES: Final = ValueRule(
    SettingType.LIST, _parse_roles, f"a comma list of {_either(ROLES_OF_NODES)}, each once")
LISTENER_NAMES: Final = ValueRule(
    SettingType.LIST, _parse_listener_names, "a comma list of names of listeners, each once")
SERVERS: Final = ValueRule(SettingType.LIST, _parse_servers, "a comma list of HOST:PORT")
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
