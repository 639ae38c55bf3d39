"""Alter settings of resources: the whole set at once, or one by one.

Resources are topics, brokers, groups and subscriptions to client metrics; the last two need not
exist otherwise.

A change is accepted as a whole per resource: if one setting of it is wrong, none is changed.  What
is stored is the text that was given; a later version may allow less (model/settings.py).

Not here: the settings themselves (model/settings), how they are shown (describe).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, assert_never

from quipu.controller import internal_topics, migration
from quipu.controller.decision import Decision
from quipu.controller.records import ConfigChanged, Record
from quipu.controller.resources import NAME_SIZE_MAX, NAMES_MAX, ResourceType, named_configs
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState
from quipu.model.diskless_rules import DISKLESS, ENABLE, check_diskless, why_unavailable
from quipu.model.errors import Code, QuipuError, RequestError, SettingError
from quipu.model.resource_settings import CLIENT_METRICS, GROUP, VALUE_SIZE_MAX
from quipu.model.settings import (
    BROKER,
    TOPIC,
    BrokerSettings,
    check,
    find,
    find_known,
    inherited,
    names_without_effect,
    parse,
    topic_settings,
    value_of,
    with_dynamic,
)
from quipu.model.settings_types import Setting, SettingType, render
from quipu.model.tiering_rules import TIERING, check_tiering
from quipu.model.topics import check_topic_name

_ROWS: Final[Mapping[ResourceType, Mapping[str, Setting]]] = {
    ResourceType.TOPIC: TOPIC, ResourceType.BROKER: BROKER, ResourceType.GROUP: GROUP,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS}


class ConfigOperation(IntEnum):
    """What to do with one setting; Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OF_LISTS: Final = frozenset({ConfigOperation.APPEND, ConfigOperation.SUBTRACT})


class ConfigChange(NamedTuple):
    """One setting to change."""

    name: str
    operation: int
    value: str | None


class ConfigResource(NamedTuple):
    """What settings belong to, as a client names it."""

    kind: int
    name: str


class ConfigAlteration(NamedTuple):
    """Changes to one resource.  `whole`: settings that are not named are inherited again."""

    resource: ConfigResource
    changes: Sequence[ConfigChange]
    whole: bool = False


class AlterConfigsResult(NamedTuple):
    """What became of one resource's changes."""

    resource: ConfigResource
    code: Code = Code.NONE
    message: str | None = None


def repeated_resources(alterations: Iterable[ConfigAlteration]) -> frozenset[ConfigResource]:
    """Resources that are named several times."""
    named = Counter(alteration.resource for alteration in alterations)
    return frozenset(resource for resource, count in named.items() if count > 1)


def alter(
    state: ClusterState, alterations: Sequence[ConfigAlteration], settings: BrokerSettings, *,
    repeated: Collection[ConfigResource] | None = None,
) -> Decision[AlterConfigsResult]:
    """Change settings.  `settings` are this broker's static ones, which dynamic ones override.

    `repeated`, if given, are the resources that the whole request names more than once: this may be
    a part of it.
    """
    if repeated is None:
        repeated = repeated_resources(alterations)
    records: list[Record] = []
    results: list[AlterConfigsResult] = []
    for alteration in alterations:
        try:
            if alteration.resource in repeated:
                raise RequestError("a resource may be named once in a request",
                                   code=Code.INVALID_REQUEST)
            records += _plan(state, alteration, settings)
        except QuipuError as error:
            results.append(AlterConfigsResult(alteration.resource, error.code, str(error)))
        else:
            results.append(AlterConfigsResult(alteration.resource))
    assert len(results) == len(alterations), (len(results), len(alterations))
    return Decision(records, results)


def effective_settings(
    state: ClusterState, node_id: int, settings: BrokerSettings
) -> BrokerSettings:
    """A broker's static `settings`, overridden by the cluster's dynamic ones and by its own."""
    return with_dynamic(settings, {
        **state.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
        **state.configs(ResourceType.BROKER, str(node_id)),
    })


def check_resource(state: ClusterState, resource: ConfigResource) -> ResourceType:
    """The kind of a resource that exists; raises with Kafka's code if it does not."""
    if resource.kind == ResourceType.TOPIC:
        check_topic_name(resource.name)
        if resource.name not in state.topics:
            raise RequestError(f"topic {resource.name} does not exist",
                               code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        return ResourceType.TOPIC
    if resource.kind == ResourceType.BROKER:
        known = {CLUSTER_DEFAULT, *map(str, state.brokers)}
        if resource.name not in known:
            raise RequestError(
                f"no broker {resource.name[:20]!r}; name one of {sorted(known)}, "
                "where '' means all of them", code=Code.INVALID_REQUEST)
        return ResourceType.BROKER
    if resource.kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        if not 0 < len(resource.name) <= NAME_SIZE_MAX:
            raise RequestError(f"a name of {len(resource.name)} characters; it needs 1 to "
                               f"{NAME_SIZE_MAX}", code=Code.INVALID_REQUEST)
        return ResourceType(resource.kind)
    raise RequestError(
        f"resources of type {resource.kind} have no settings that a cluster stores; topics (2), "
        "brokers (4), client metrics (16) and groups (32) have", code=Code.INVALID_REQUEST)


def _check_room(state: ClusterState, kind: ResourceType, name: str) -> None:
    """Clients choose the names of groups and subscriptions, so their number is bounded."""
    if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        known = named_configs(state, kind)
        if name not in known and len(known) >= NAMES_MAX:
            raise RequestError(f"{NAMES_MAX} resources of type {int(kind)} have settings already; "
                               "remove the settings of some", code=Code.POLICY_VIOLATION)


def _check_named(state: ClusterState, alteration: ConfigAlteration) -> ResourceType:
    """The kind of a resource that may exist: faults of a topic's settings come before its absence,
    as in Kafka.
    """
    resource = alteration.resource
    if resource.kind != ResourceType.TOPIC:
        return check_resource(state, resource)
    for change in alteration.changes:
        row = TOPIC.get(change.name)
        if change.operation in _OF_LISTS and row is not None:
            _check_list(row)
    if not resource.name:
        raise RequestError("name a topic: there are no settings of all topics",
                           code=Code.INVALID_REQUEST)
    check_topic_name(resource.name)
    return ResourceType.TOPIC


def _plan(
    state: ClusterState, alteration: ConfigAlteration, settings: BrokerSettings
) -> Iterable[Record]:
    resource = alteration.resource
    check_changes(alteration.changes)
    kind = _check_named(state, alteration)
    is_there = kind is not ResourceType.TOPIC or resource.name in state.topics
    old = state.configs(kind, resource.name) if is_there else {}
    new = dict(old)
    if alteration.whole:  # who replaces all settings cannot mean the one that never changes
        new = {name: value for name, value in old.items() if name == ENABLE}
    for change in alteration.changes:
        _change(kind, new, change, settings)
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    if kind is ResourceType.BROKER:
        _check_dynamic(resource.name, changed)
    elif kind is ResourceType.TOPIC:
        internal_topics.check_changes(resource.name, changed)
    if new:
        _check_room(state, kind, resource.name)
    _check_values(kind, {name: new[name] for name in changed if name in new})
    check_resource(state, resource)
    if kind is ResourceType.TOPIC and not (TIERING | DISKLESS).isdisjoint(changed):
        defaults = with_dynamic(settings, state.configs(ResourceType.BROKER, CLUSTER_DEFAULT))
        before, after = topic_settings(old, defaults), topic_settings(new, defaults)
        check_diskless(after, before, unavailable=why_unavailable(settings))
        check_tiering(after, before, is_available=settings.remote_log_storage_system_enable)
        migration.check_changes(state.topics[resource.name], after, settings)
    assert len(changed) <= len(old) + len(alteration.changes), (resource, changed)
    assert all(name in old or name in new for name in changed), (resource, changed)
    return [
        ConfigChanged(resource_type=kind, resource_name=resource.name, name=name,
                      value=new.get(name))
        for name in changed
    ]


def settings_without_effect(alterations: Iterable[ConfigAlteration]) -> list[str]:
    """The settings of a request that are accepted and change nothing here (model.C1)."""
    given: dict[int, set[str]] = {ResourceType.TOPIC: set(), ResourceType.BROKER: set()}
    for resource, changes, _ in alterations:
        given.setdefault(resource.kind, set()).update(
            change.name for change in changes if change.operation != ConfigOperation.DELETE)
    return sorted({*names_without_effect(TOPIC, given[ResourceType.TOPIC]),
                   *names_without_effect(BROKER, given[ResourceType.BROKER])})


def _check_values(kind: ResourceType, values: Mapping[str, str]) -> None:
    if kind in (ResourceType.TOPIC, ResourceType.BROKER):
        check(_ROWS[kind], values)
        return
    for name, value in values.items():
        if len(value) > VALUE_SIZE_MAX:
            raise SettingError(f"{name}: the value has {len(value)} characters; at most "
                               f"{VALUE_SIZE_MAX} are allowed")
        parse(_ROWS[kind], name, value)


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise unless each setting is named once, with an operation and the value that it needs."""
    names = Counter(change.name for change in changes)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise RequestError(f"setting {repeated[0]} is changed twice in one request",
                           code=Code.INVALID_REQUEST)
    for change in changes:
        if change.operation not in list(ConfigOperation):
            raise RequestError(f"setting {change.name}: unknown operation {change.operation}",
                               code=Code.INVALID_REQUEST)
        if change.value is None and change.operation != ConfigOperation.DELETE:
            raise RequestError(f"setting {change.name} needs a value", code=Code.INVALID_REQUEST)


def _check_dynamic(broker: str, names: Iterable[str]) -> None:
    rows = [row for name in sorted(names) if (row := find_known(BROKER, name)) is not None]
    fixed = [row.name for row in rows if not row.dynamic]
    if fixed:
        raise RequestError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; "
            "set it in the broker's configuration and restart", code=Code.INVALID_REQUEST)
    own = [row.name for row in rows if row.is_per_broker]
    if own and broker == CLUSTER_DEFAULT:
        raise RequestError(
            f"{', '.join(own)} cannot be the default of all brokers; name a broker",
            code=Code.INVALID_REQUEST)


def _change(
    kind: ResourceType, configs: dict[str, str], change: ConfigChange, settings: BrokerSettings
) -> None:
    operation = ConfigOperation(change.operation)
    if operation is ConfigOperation.DELETE and change.name not in _ROWS[kind]:
        configs.pop(change.name, None)  # as Kafka does: what is unknown is not set
        return
    row = find(_ROWS[kind], change.name)
    assert change.value is not None or operation is ConfigOperation.DELETE, change
    value = change.value or ""
    match operation:
        case ConfigOperation.SET:
            configs[row.name] = value
        case ConfigOperation.DELETE:
            configs.pop(row.name, None)
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            items = [item for item in _items(row, configs, settings) if item]
            given = [item.strip() for item in value.split(",")]
            if operation is ConfigOperation.APPEND:
                items = list(dict.fromkeys([*items, *given]))
            else:
                items = [item for item in items if item not in given]
            configs[row.name] = ",".join(items)
        case _:
            assert_never(operation)
    assert (row.name in configs) == (operation is not ConfigOperation.DELETE), (row, change)


def _items(row: Setting, configs: Mapping[str, str], settings: BrokerSettings) -> list[str]:
    """The members of a list setting as it is now."""
    _check_list(row)
    if row.name in configs:
        return [item.strip() for item in configs[row.name].split(",")]
    value = inherited(row, settings) if row.broker else value_of(settings, row.name)
    return (render(value) or "").split(",")


def _check_list(row: Setting) -> None:
    if row.kind.type is not SettingType.LIST:
        raise RequestError(f"{row.name} is not a list: set it, rather than append or subtract",
                           code=Code.INVALID_CONFIG)
