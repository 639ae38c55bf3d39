"""Where a broker's settings come from: a properties file, the environment, the command line.

The later of these wins: default, file, environment, `--set`.  Every value remembers where it was
written, so that a mistake is reported with its file and line; never with the line itself, which may
be that of a secret.  Reading is left to the caller: this module sees text.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from quipu.model.errors import SettingError
from quipu.model.settings import ALIASES, BROKER, BrokerSettings, find, parse
from quipu.model.settings_types import Value, attribute_name

SECRET_SIZE_MIN: Final = 16  # characters of peer.secret, where other machines can connect
ENVIRONMENT_PREFIX: Final = "QUIPU_"
# Variables with the prefix that steer tools and tests, and are no settings.
ENVIRONMENT_OTHER: Final = frozenset({"QUIPU_PURE"})
_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 named to be refused
_ENTRY: Final = re.compile(r"\s*([^\s=:]+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)


class Given(NamedTuple):
    """A value as it was written, and where."""

    value: str
    where: str


def from_properties(content: str, file: str) -> dict[str, Given]:
    """Entries of a Java properties file; a backslash at the end of a line continues it."""
    found: dict[str, Given] = {}
    entry, entry_line = "", 0
    for number, line in enumerate(content.splitlines(), start=1):
        stripped = line.lstrip()
        if not entry and (not stripped or stripped[0] in "#!"):
            continue
        entry_line = number if not entry else entry_line
        entry += stripped
        if _goes_on(entry):
            entry = entry[:-1]
            continue
        _add(found, _split(entry, f"{file} line {entry_line}"))
        entry = ""
    if entry:
        _add(found, _split(entry, f"{file} line {entry_line}"))
    return found


def from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """Variables such as QUIPU_LOG_SEGMENT_BYTES; the unknown ones are refused."""
    found: dict[str, Given] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_OTHER:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        _add(found, (name, Given(environment[variable], f"environment variable {variable}")))
    return found


def from_assignments(assignments: Iterable[str]) -> dict[str, Given]:
    """`KEY=VALUE` as given to --set; a later one replaces an earlier one."""
    found: dict[str, Given] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise SettingError("--set: write --set KEY=VALUE")
        found[ALIASES.get(name.strip(), name.strip())] = Given(value, f"--set {name.strip()}")
    return found


def broker_settings(*sources: Mapping[str, Given]) -> BrokerSettings:
    """Settings from `sources`, the weakest first; a `SettingError` tells what is wrong where."""
    given: dict[str, Given] = {}
    for source in sources:
        given.update(source)
    values: dict[str, Value] = {}
    for name, (value, where) in given.items():
        values[attribute_name(name)] = parse(BROKER, name, value, where)
    settings = BrokerSettings(**values, explicit=frozenset(given))  # type: ignore[arg-type]
    check_together(settings)
    return settings


def check_together(settings: BrokerSettings) -> None:
    """Refuse values that are fine alone but not with each other."""
    if settings.listeners.host in _EVERY_HOST and settings.advertised_listeners is None:
        raise SettingError(
            f"listeners={settings.listeners} accepts connections on every address, so clients "
            "must be told one: set advertised.listeners to a HOST:PORT that they can reach")
    advertised = settings.advertised_listeners
    if advertised is not None and advertised.host in _EVERY_HOST:
        raise SettingError(
            f"advertised.listeners={advertised}: clients cannot connect to {advertised.host}; "
            "name a host that they can reach")
    _check_peers(settings)
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise SettingError(
            f"group.min.session.timeout.ms={settings.group_min_session_timeout_ms} is more than "
            f"group.max.session.timeout.ms={settings.group_max_session_timeout_ms}")


def _check_peers(settings: BrokerSettings) -> None:
    """The same for what other nodes are told."""
    listener, advertised = settings.peer_listener, settings.advertised_peer_listener
    if listener is None and settings.controller_quorum_voters:
        raise SettingError(
            "controller.quorum.voters names other nodes, so they must be able to reach this one: "
            "set peer.listener to a HOST:PORT")
    nowhere = [voter for voter in settings.controller_quorum_voters
               if voter.address is None and voter.node_id != settings.own_id]
    if nowhere and settings.peer_discovery is None:
        raise SettingError(
            f"controller.quorum.voters has voters without an address ({nowhere[0]}), so they have "
            "to be found: set peer.discovery, or write ID@HOST:PORT")
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_lease_ms:
        raise SettingError(
            f"broker.lease.ms={settings.broker_lease_ms} is less than two heartbeats of "
            f"broker.heartbeat.interval.ms={settings.broker_heartbeat_interval_ms}: a node would "
            "lose its lease between them")
    told = advertised or listener
    if told is not None and told.host in _EVERY_HOST:
        raise SettingError(
            f"peer.listener={listener} accepts connections on every address, so other nodes must "
            "be told one: set advertised.peer.listener to a HOST:PORT that they can reach")
    _check_secret(settings)
    if settings.broker_session_timeout_ms < 2 * settings.broker_heartbeat_interval_ms:
        raise SettingError(
            f"broker.session.timeout.ms={settings.broker_session_timeout_ms} must be twice "
            f"broker.heartbeat.interval.ms={settings.broker_heartbeat_interval_ms} at least, or "
            "one late heartbeat takes a node for dead")


def _check_secret(settings: BrokerSettings) -> None:
    """Nodes that can be reached from other machines must prove that they belong together."""
    secret, listener = settings.peer_secret or "", settings.peer_listener
    if listener is None or len(secret) >= SECRET_SIZE_MIN or all(
            is_loopback(address.host) for address in (listener, settings.advertised_peer_listener)
            if address is not None):
        return
    fault = "is not set" if not secret else f"has fewer than {SECRET_SIZE_MIN} characters"
    raise SettingError(
        f"peer.secret {fault}, and peer.listener={listener} can be reached from other machines: "
        "whoever connects could join the cluster, and destroy it. Write "
        f"peer.secret=TEXT with {SECRET_SIZE_MIN} random characters at least, the same for every "
        "node, into the file that --config names (or QUIPU_PEER_SECRET=TEXT into the environment); "
        "`openssl rand -hex 32` makes one")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`; a name other than localhost may be any."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _goes_on(entry: str) -> bool:
    """Whether the line ends in an odd number of backslashes."""
    return (len(entry) - len(entry.rstrip("\\"))) % 2 == 1


def _split(entry: str, where: str) -> tuple[str, Given]:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise SettingError(f"{where}: write KEY=VALUE")
    name, value = match.groups()
    return name, Given(value.replace("\\\\", "\\").strip(), where)


def _add(found: dict[str, Given], entry: tuple[str, Given]) -> None:
    name, given = entry
    name = ALIASES.get(name, name)
    row = find(BROKER, name, given.where)
    earlier = found.get(name)
    if earlier is not None and earlier.value != given.value:
        first, second = (
            each.where if row.is_sensitive else f"{each.value!r} ({each.where})"
            for each in (earlier, given))
        raise SettingError(f"{name} is given twice: {first} and {second}; keep one")
    found[name] = given
