"""Where a broker's settings come from: a properties file, the environment, the command line.

Each source overrides those before it: default, file, environment, `--set`.  Every value is kept
with where it was given, so that an error names the file and the line number; never the line itself,
which may hold a secret.  The caller reads the files: this module parses text.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from quipu.model.controller_listener import with_controller_listener
from quipu.model.errors import SettingError
from quipu.model.listeners import SERVED_PROTOCOLS, ListenerEndpoint
from quipu.model.settings import ALIASES, BROKER, OWN_BROKER, BrokerSettings, parse
from quipu.model.settings_types import Value, attribute_name

SECRET_SIZE_MIN: Final = 16  # characters of peer.secret, where other machines can connect
ENVIRONMENT_PREFIX: Final = "QUIPU_"
# Variables with the prefix that are no settings of a node: for commands, tools and tests.
ENVIRONMENT_OTHER: Final = frozenset({"QUIPU_BOOTSTRAP", "QUIPU_PURE"})
# Settings that name classes, and what the settings of these classes begin with.
METADATA_CLASSES: Final = (
    "remote.log.metadata.manager.class.name", "rlmm.config.metadata.storage.connector.class")
METADATA_PREFIX: Final = "rlmm.config."
STORAGE_CLASS: Final = "remote.log.storage.manager.class.name"
STORAGE_PREFIX: Final = "rsm.config."
PREFIX_NAME: Final = "remote.log.storage.manager.impl.prefix"
_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 only compared with
_ENTRY: Final = re.compile(r"\s*([^\s=:]+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)


class Given(NamedTuple):
    """The text of a value, and where it was given."""

    value: str
    where: str
    line: int | None = None  # of a file


_NOTHING: Final = Given("", "")


def from_properties(content: str, file: str) -> dict[str, Given]:
    """Entries of a Java properties file; a backslash at the end of a line continues it."""
    found: dict[str, Given] = {}
    for line, entry in properties_entries(content):
        add_entry(found, entry, file, line)
    return found


def properties_entries(content: str) -> Iterator[tuple[int, str]]:
    """The entries of a properties file, and the number of the line that each begins on."""
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
        yield entry_line, entry
        entry = ""
    if entry:
        yield entry_line, entry


def add_entry(found: dict[str, Given], entry: str, file: str, line: int) -> None:
    """Add the setting of an entry; SettingError if it is none, or contradicts an earlier one."""
    where = f"{file} line {line}"
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise SettingError(f"{where}: write KEY=VALUE")
    name, value = match.groups()
    _add(found, (name, Given(value.replace("\\\\", "\\").strip(), where, line)))


def from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """Settings from variables such as QUIPU_LOG_SEGMENT_BYTES."""
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
    """Settings from `sources`, each overriding those before it; SettingError if one is wrong."""
    given = merged(sources)
    of_classes = names_of_classes(given)
    values = {name: parse(BROKER, name, value, where)
              for name, (value, where, _) in given.items() if name not in of_classes}
    return checked(given, values)


def merged(sources: Iterable[Mapping[str, Given]]) -> dict[str, Given]:
    """The settings of all sources; of two values, the one of the later source."""
    given: dict[str, Given] = {}
    for source in sources:
        given.update(source)
    return given


def names_of_classes(given: Mapping[str, Given]) -> frozenset[str]:
    """The names in `given` that are settings of classes, which other settings name."""
    prefixes = _class_prefixes(given)
    return frozenset(
        name for name in given if name not in BROKER and name.startswith(prefixes))


def checked(given: Mapping[str, Given], values: Mapping[str, Value]) -> BrokerSettings:
    """Settings of the typed `values` of what was `given`; SettingError if they contradict."""
    settings = with_controller_listener(table_of(given, values))
    check_together(settings)
    return settings


def table_of(given: Mapping[str, Given], values: Mapping[str, Value]) -> BrokerSettings:
    """The table with the typed `values`; whether they go together is not checked."""
    of_classes = names_of_classes(given)
    return BrokerSettings(
        **{attribute_name(name): value for name, value in values.items()  # type: ignore[arg-type]
           if name in OWN_BROKER},
        explicit=frozenset(given),
        without_effect=tuple(sorted((name, given[name].value) for name in values
                                    if name not in OWN_BROKER)),
        of_classes=tuple(sorted((name, given[name].value) for name in of_classes)))


def may_be_of_class(name: str) -> bool:
    """Whether an unknown setting may be one of a class, which only `broker_settings` can tell."""
    return name not in BROKER and name.startswith((METADATA_PREFIX, STORAGE_PREFIX))


def _class_prefixes(given: Mapping[str, Given]) -> tuple[str, ...]:
    """What the settings of the classes begin with that are named in `given`."""
    found = []
    if any(given.get(name, _NOTHING).value for name in METADATA_CLASSES):
        found.append(METADATA_PREFIX)
    if given.get(STORAGE_CLASS, _NOTHING).value:
        prefix, where, _ = given.get(PREFIX_NAME, Given(STORAGE_PREFIX, ""))
        if not prefix.endswith(".") or any(name.startswith(prefix) for name in BROKER):
            raise SettingError(f"{PREFIX_NAME}={prefix[:100]!r} ({where}): must end with a dot, "
                               "and begin no name of another setting")
        found.append(prefix)
    return tuple(found)


def check_together(settings: BrokerSettings) -> None:
    """Raise `SettingError` if values that are allowed alone contradict each other."""
    for check_some in CHECKS:
        check_some(settings)


def _check_sessions(settings: BrokerSettings) -> None:
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise SettingError(
            f"group.min.session.timeout.ms={settings.group_min_session_timeout_ms} is more than "
            f"group.max.session.timeout.ms={settings.group_max_session_timeout_ms}")


def _check_listeners(settings: BrokerSettings) -> None:
    """Raise unless each listener has a supported protocol and an address that clients can use."""
    protocols = dict(settings.listener_security_protocol_map)
    advertised = {endpoint.listener: endpoint for endpoint in settings.advertised_listeners}
    for endpoint in settings.listeners:
        name = endpoint.listener
        protocol = protocols.get(name)
        if protocol is None:
            raise SettingError(
                f"listeners={endpoint}: no security protocol is given for {name}; add "
                f"{name}:PLAINTEXT to listener.security.protocol.map")
        if protocol not in SERVED_PROTOCOLS:
            raise SettingError(
                f"listeners={endpoint}: {protocol} is not supported yet: this version has no TLS "
                "and does not authenticate clients; use PLAINTEXT, on a network where only "
                "clients that you trust can connect")
        if endpoint.host in _EVERY_HOST and name not in advertised:
            raise SettingError(
                f"listeners={endpoint} accepts connections on every address, so clients must be "
                "given one: set advertised.listeners to a HOST:PORT that they can reach")
    _check_advertised(settings, advertised)
    wanted = settings.inter_broker_listener_name
    if wanted and wanted.upper() not in {each.listener for each in settings.listeners}:
        raise SettingError(
            f"inter.broker.listener.name={wanted}: is not one of listeners; name one of "
            f"{', '.join(each.listener for each in settings.listeners)}, or remove it")


def _check_advertised(
    settings: BrokerSettings, advertised: Mapping[str, ListenerEndpoint]
) -> None:
    """Raise unless every advertised address is one that clients can use, of a listener."""
    for name, endpoint in advertised.items():
        if endpoint.host in _EVERY_HOST or not endpoint.host:
            raise SettingError(
                f"advertised.listeners={endpoint}: clients cannot connect to {endpoint.host!r}; "
                "name a host that they can reach")
        if name not in {each.listener for each in settings.listeners}:
            raise SettingError(
                f"advertised.listeners={endpoint}: {name} is not one of listeners; give it an "
                "address there, or do not advertise it")


def _check_peers(settings: BrokerSettings) -> None:
    """Raise unless other nodes can reach this one, and timeouts leave room for heartbeats."""
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
    given_to_peers = advertised or listener
    if given_to_peers is not None and given_to_peers.host in _EVERY_HOST:
        raise SettingError(
            f"peer.listener={listener} accepts connections on every address, so other nodes must "
            "be given one: set advertised.peer.listener to a HOST:PORT that they can reach")
    _check_secret(settings)
    if settings.broker_session_timeout_ms < 2 * settings.broker_heartbeat_interval_ms:
        raise SettingError(
            f"broker.session.timeout.ms={settings.broker_session_timeout_ms} must be at least "
            f"twice broker.heartbeat.interval.ms={settings.broker_heartbeat_interval_ms}, or one "
            "late heartbeat makes the controller treat a node as dead")


def _check_tier(settings: BrokerSettings) -> None:
    """Raise if nodes of a cluster have a remote tier, and it is not said where it is."""
    if (settings.remote_log_storage_system_enable and settings.remote_log_storage_url is None
            and not settings.remote_log_storage_manager_class_name
            and settings.peer_listener is not None):
        raise SettingError(
            "remote.log.storage.system.enable=true needs an object store that all nodes of the "
            "cluster can reach: set remote.log.storage.url, for example to s3://BUCKET/PREFIX")
    backoff = settings.remote_log_manager_task_retry_backoff_ms
    if backoff > settings.remote_log_manager_task_retry_backoff_max_ms:
        raise SettingError(
            f"remote.log.manager.task.retry.backoff.ms={backoff} is more than "
            "remote.log.manager.task.retry.backoff.max.ms="
            f"{settings.remote_log_manager_task_retry_backoff_max_ms}")


def _check_secret(settings: BrokerSettings) -> None:
    """Raise if other machines can reach peer.listener and no long enough peer.secret is set."""
    secret, listener = settings.peer_secret or "", settings.peer_listener
    if listener is None or len(secret) >= SECRET_SIZE_MIN or all(
            is_loopback(address.host) for address in (listener, settings.advertised_peer_listener)
            if address is not None):
        return
    fault = "is not set" if not secret else f"has fewer than {SECRET_SIZE_MIN} characters"
    raise SettingError(
        f"peer.secret {fault}, and peer.listener={listener} can be reached from other machines: "
        "any process that connects could join the cluster, and destroy it. Write "
        f"peer.secret=TEXT with at least {SECRET_SIZE_MIN} random characters, the same for every "
        "node, into the file that --config names (or QUIPU_PEER_SECRET=TEXT into the environment); "
        "`openssl rand -hex 32` makes one")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`; False for any name but localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _goes_on(entry: str) -> bool:
    """Whether the line ends in an odd number of backslashes, so the next line continues it."""
    return (len(entry) - len(entry.rstrip("\\"))) % 2 == 1


def _add(found: dict[str, Given], entry: tuple[str, Given]) -> None:
    name, given = entry
    name = ALIASES.get(name, name)
    row = BROKER.get(name)
    earlier = found.get(name)
    if earlier is not None and earlier.value != given.value:
        first, second = (
            each.where if row is None or row.is_sensitive else f"{each.value!r} ({each.where})"
            for each in (earlier, given))
        raise SettingError(f"{name} is given twice: {first} and {second}; keep one")
    found[name] = given


# What `check_together` checks, one after the other.
CHECKS: Final[tuple[Callable[[BrokerSettings], None], ...]] = (
    _check_listeners, _check_peers, _check_tier, _check_sessions)
