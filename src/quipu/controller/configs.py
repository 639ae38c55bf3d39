"""Alter settings of topics and brokers: the whole set at once, or one by one.

A change is accepted as a whole per resource: if one setting of it is wrong, none is changed.  What
is stored is the text that was given; a later version may allow less (model/settings, C4).

Not here: the settings themselves (model/settings), how they are shown (describe).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, assert_never

from quipu.controller.decision import Decision
from quipu.controller.internal_topics import check_changes
from quipu.controller.records import ConfigChanged, Record
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState, ResourceType
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.settings import (
    BROKER,
    TOPIC,
    BrokerSettings,
    check,
    find,
    inherited,
    value_of,
    with_dynamic,
)
from quipu.model.settings_types import Setting, SettingType, render
from quipu.model.topics import check_topic_name


class Operation(IntEnum):
    """What to do with one setting; Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One setting to change."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """What settings belong to, as a client names it."""

    kind: int
    name: str


class Alteration(NamedTuple):
    """Changes to one resource.  `whole`: settings that are not named are inherited again."""

    resource: Resource
    changes: Sequence[Change]
    whole: bool = False


class AlterAnswer(NamedTuple):
    """What became of one resource's changes."""

    resource: Resource
    code: Code = Code.NONE
    message: str | None = None


def repeated_resources(alterations: Iterable[Alteration]) -> frozenset[Resource]:
    """Resources that are named several times."""
    named = Counter(alteration.resource for alteration in alterations)
    return frozenset(resource for resource, count in named.items() if count > 1)


def alter(
    state: ClusterState, alterations: Sequence[Alteration], settings: BrokerSettings, *,
    repeated: Collection[Resource] | None = None,
) -> Decision[AlterAnswer]:
    """Change settings.  `settings` are this broker's static ones, which dynamic ones cover.

    `repeated`, if given, are the resources that the request of which this is a part names twice.
    """
    if repeated is None:
        repeated = repeated_resources(alterations)
    records: list[Record] = []
    answers: list[AlterAnswer] = []
    for alteration in alterations:
        try:
            if alteration.resource in repeated:
                raise RequestError("a resource may be named once in a request",
                                   code=Code.INVALID_REQUEST)
            records += _plan(state, alteration, settings)
        except QuipuError as error:
            answers.append(AlterAnswer(alteration.resource, error.code, str(error)))
        else:
            answers.append(AlterAnswer(alteration.resource))
    return Decision(records, answers)


def effective_settings(
    state: ClusterState, node_id: int, settings: BrokerSettings
) -> BrokerSettings:
    """A broker's static `settings`, covered by the cluster's dynamic ones and by its own."""
    return with_dynamic(settings, {
        **state.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
        **state.configs(ResourceType.BROKER, str(node_id)),
    })


def check_resource(state: ClusterState, resource: Resource) -> ResourceType:
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
                "where '' stands for all of them", code=Code.INVALID_REQUEST)
        return ResourceType.BROKER
    raise RequestError(f"resources of type {resource.kind} have no settings here; "
                       "topics (2) and brokers (4) have", code=Code.INVALID_REQUEST)


def _plan(
    state: ClusterState, alteration: Alteration, settings: BrokerSettings
) -> Iterable[Record]:
    resource = alteration.resource
    kind = check_resource(state, resource)
    old = state.configs(kind, resource.name)
    new = {} if alteration.whole else dict(old)
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
    return [
        ConfigChanged(resource_type=kind, resource_name=resource.name, name=name,
                      value=new.get(name))
        for name in changed
    ]


def _check_changes(changes: Sequence[Change]) -> None:
    names = Counter(change.name for change in changes)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise RequestError(f"setting {repeated[0]} is changed twice in one request",
                           code=Code.INVALID_REQUEST)
    for change in changes:
        if change.operation not in list(Operation):
            raise RequestError(f"setting {change.name}: unknown operation {change.operation}",
                               code=Code.INVALID_REQUEST)
        if change.value is None and change.operation != Operation.DELETE:
            raise RequestError(f"setting {change.name} needs a value", code=Code.INVALID_REQUEST)


def _check_dynamic(names: Iterable[str]) -> None:
    fixed = sorted(name for name in names if name in BROKER and not BROKER[name].dynamic)
    if fixed:
        raise RequestError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; "
            "set it in the broker's configuration and restart", code=Code.INVALID_REQUEST)


def _change(
    kind: ResourceType, configs: dict[str, str], change: Change, settings: BrokerSettings
) -> None:
    rows = TOPIC if kind is ResourceType.TOPIC else BROKER
    row = find(rows, change.name)
    operation = Operation(change.operation)
    value = change.value or ""
    match operation:
        case Operation.SET:
            configs[row.name] = value
        case Operation.DELETE:
            configs.pop(row.name, None)
        case Operation.APPEND | Operation.SUBTRACT:
            items = _items(row, configs, settings)
            given = [item.strip() for item in value.split(",")]
            if operation is Operation.APPEND:
                items = list(dict.fromkeys([*items, *given]))
            else:
                items = [item for item in items if item not in given]
            configs[row.name] = ",".join(items)
        case _:
            assert_never(operation)


def _items(row: Setting, configs: Mapping[str, str], settings: BrokerSettings) -> list[str]:
    """The members of a list setting as it is now."""
    if row.kind.type is not SettingType.LIST:
        raise RequestError(f"{row.name} is not a list: set it, rather than append or subtract",
                           code=Code.INVALID_CONFIG)
    if row.name in configs:
        return [item.strip() for item in configs[row.name].split(",")]
    value = inherited(row, settings) if row.broker else value_of(settings, row.name)
    return (render(value) or "").split(",")
