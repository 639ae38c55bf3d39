"""Alter settings of topics and brokers: the whole set at once, or one by one.

A change is accepted as a whole per resource: if one setting of it is wrong, none is changed.  What
is stored is the text that was given; a later version may allow less (model/settings.py).

Not here: the settings themselves (model/settings), how they are shown (describe).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, assert_never

from quipu.controller import migration
from quipu.controller.decision import Decision
from quipu.controller.internal_topics import check_changes
from quipu.controller.records import ConfigChanged, Record
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState, ResourceType
from quipu.model.diskless_rules import DISKLESS, ENABLE, check_diskless, why_unavailable
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.settings import (
    BROKER,
    TOPIC,
    BrokerSettings,
    check,
    find,
    inherited,
    topic_settings,
    value_of,
    with_dynamic,
)
from quipu.model.settings_types import Setting, SettingType, render
from quipu.model.tiering_rules import TIERING, check_tiering
from quipu.model.topics import check_topic_name


class ConfigOperation(IntEnum):
    """What to do with one setting; Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


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
    raise RequestError(f"resources of type {resource.kind} have no settings here; "
                       "topics (2) and brokers (4) have", code=Code.INVALID_REQUEST)


def _plan(
    state: ClusterState, alteration: ConfigAlteration, settings: BrokerSettings
) -> Iterable[Record]:
    resource = alteration.resource
    kind = check_resource(state, resource)
    old = state.configs(kind, resource.name)
    new = dict(old)
    if alteration.whole:  # who replaces all settings cannot mean the one that never changes
        new = {name: value for name, value in old.items() if name == ENABLE}
    _check_changes(alteration.changes)
    for change in alteration.changes:
        _change(kind, new, change, settings)
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    if kind is ResourceType.BROKER:
        _check_dynamic(changed)
    else:
        check_changes(resource.name, changed)
    check(TOPIC if kind is ResourceType.TOPIC else BROKER,
          {name: new[name] for name in changed if name in new})
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


def _check_changes(changes: Sequence[ConfigChange]) -> None:
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


def _check_dynamic(names: Iterable[str]) -> None:
    fixed = sorted(name for name in names if name in BROKER and not BROKER[name].dynamic)
    if fixed:
        raise RequestError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; "
            "set it in the broker's configuration and restart", code=Code.INVALID_REQUEST)


def _change(
    kind: ResourceType, configs: dict[str, str], change: ConfigChange, settings: BrokerSettings
) -> None:
    rows = TOPIC if kind is ResourceType.TOPIC else BROKER
    row = find(rows, change.name)
    operation = ConfigOperation(change.operation)
    assert change.value is not None or operation is ConfigOperation.DELETE, change
    value = change.value or ""
    match operation:
        case ConfigOperation.SET:
            configs[row.name] = value
        case ConfigOperation.DELETE:
            configs.pop(row.name, None)
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            items = _items(row, configs, settings)
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
    if row.kind.type is not SettingType.LIST:
        raise RequestError(f"{row.name} is not a list: set it, rather than append or subtract",
                           code=Code.INVALID_CONFIG)
    if row.name in configs:
        return [item.strip() for item in configs[row.name].split(",")]
    value = inherited(row, settings) if row.broker else value_of(settings, row.name)
    return (render(value) or "").split(",")
