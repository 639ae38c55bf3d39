"""Finds the differences between two states of the metadata, and notifies listeners of them.

Invariants
    broker.cluster.N1  listeners are notified of a change after it is applied, all in the same order
    broker.cluster.N2  notifications follow from the difference of two states, so they are the same
                       whether records were applied one by one or as a snapshot
    broker.cluster.N3  notifications of many changes take turns with other work: a thousand new logs
                       do not block the node; `settled` returns when listeners have been notified of
                       everything applied so far

A listener that raises does not affect the others, nor the state.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from quipu.controller.members import BrokerState
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.ids import NodeId
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

TURN_MAX: Final = 8  # notifications, at most, before other work runs ...
TURN_SECONDS: Final = 0.005  # ... and how long they may take, except for the last of them
PARTITIONS_MAX: Final = 32  # in one notification; a topic with more has several


class MetadataListener(Protocol):
    """Acts on changes of the metadata; called after they are applied, in their order."""

    def on_topic_created(self, topic: Topic) -> None: ...
    def on_partitions_added(self, topic: Topic, first_new: int) -> None: ...

    def on_topic_deleted(self, topic: Topic) -> Iterator[None] | None:
        """May return the remaining work as steps, which take turns with other work.

        The next notification comes after the last step (broker.cluster.N3).
        """
        ...

    def on_config_changed(self, topic: Topic) -> None: ...

    def on_replicas_changed(self, topic: Topic) -> None:
        """Existing partitions of `topic` have other members, or another leader."""
        ...

    def on_brokers_changed(self) -> None:
        """A broker was registered, removed, fenced or unfenced, or has another address."""
        ...


class MetadataView(NamedTuple):
    """The parts of a state that are compared with a later one."""

    topics: Mapping[UUID, Topic]
    brokers: Mapping[NodeId, BrokerState]
    broker_configs: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, state: ClusterState) -> "MetadataView":
        return cls(dict(state.topics_by_id), dict(state.brokers), _copied(state.broker_configs))

    @classmethod
    def of_topics(cls, state: ClusterState, topic_ids: Iterable[UUID]) -> "MetadataView":
        """A view for changes of these topics only: its cost does not depend on the others."""
        found = ((topic_id, state.topics_by_id.get(topic_id)) for topic_id in topic_ids)
        return cls({topic_id: topic for topic_id, topic in found if topic is not None},
                   state.brokers, state.broker_configs)


def _copied(configs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(values) for name, values in configs.items()}


class MetadataChange(NamedTuple):
    """One notification, for every listener."""

    what: str  # the name of the listener's method
    arguments: tuple[Any, ...]


def differences(before: MetadataView, after: MetadataView) -> Iterator[MetadataChange]:
    """The notifications of a change; deletions first, because a new topic may have the name."""
    now = after.topics
    for topic_id, topic in before.topics.items():
        if topic_id not in now:
            yield MetadataChange("on_topic_deleted", (topic,))
    if before.brokers != after.brokers:
        yield MetadataChange("on_brokers_changed", ())
    defaults_changed = before.broker_configs != after.broker_configs
    for topic_id, topic in now.items():
        old = before.topics.get(topic_id)
        if old is None:
            yield from _created(topic)
        elif old is not topic or defaults_changed:
            yield from _topic_differences(old, topic, defaults_changed=defaults_changed)


def _topic_differences(
    old: Topic, new: Topic, *, defaults_changed: bool
) -> Iterator[MetadataChange]:
    had = len(old.partitions)
    yield from _added(new, had)
    if defaults_changed or old.configs != new.configs:
        yield MetadataChange("on_config_changed", (new,))
    if old.partitions != new.partitions[:had]:
        yield MetadataChange("on_replicas_changed", (new,))


def _created(topic: Topic) -> Iterator[MetadataChange]:
    """The notifications of a new topic, PARTITIONS_MAX partitions each (broker.cluster.N3)."""
    yield MetadataChange("on_topic_created", (_with_partitions(topic, PARTITIONS_MAX),))
    yield from _added(topic, PARTITIONS_MAX)


def _added(topic: Topic, had: int) -> Iterator[MetadataChange]:
    for first in range(had, len(topic.partitions), PARTITIONS_MAX):
        yield MetadataChange(
            "on_partitions_added", (_with_partitions(topic, first + PARTITIONS_MAX), first))


def _with_partitions(topic: Topic, count: int) -> Topic:
    """`topic` with at most its first `count` partitions."""
    if len(topic.partitions) <= count:
        return topic
    return dataclasses.replace(topic, partitions=topic.partitions[:count])


class MetadataListeners:
    """The listeners, and the notifications that are waiting (broker.cluster.N1)."""

    def __init__(self) -> None:
        self._listeners: list[MetadataListener] = []
        self._waiting: deque[MetadataChange | Iterator[None] | Callable[[], None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, listener: MetadataListener) -> None:
        self._listeners.append(listener)

    def notify(self, changes: Iterator[MetadataChange]) -> None:
        """Notify of the first few changes at once, of the others in turns (broker.cluster.N3)."""
        for change in changes:
            self._waiting.append(change)
        if self._task is None:
            self._notify_some()
            if self._waiting:
                self._task = spawn(self._notify_rest(), "notify metadata listeners")

    async def settled(self) -> None:
        """Return when listeners have been notified of all changes so far."""
        if self._waiting:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append(lambda: None if done.done() else done.set_result(None))
            await done

    async def _notify_rest(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            self._notify_some()
        self._task = None

    def _notify_some(self) -> None:
        time = asyncio.get_running_loop().time
        ends = time() + TURN_SECONDS
        for _ in range(TURN_MAX):
            if not self._waiting or time() >= ends:
                return
            change = self._waiting[0]
            if isinstance(change, Iterator):
                if not _step(change):
                    self._waiting.popleft()
                continue
            self._waiting.popleft()
            if isinstance(change, MetadataChange):
                self._waiting.extendleft(reversed(self._notify_all(change)))
            else:
                change()

    def _notify_all(self, change: MetadataChange) -> list[Iterator[None]]:
        """Call every listener; returns the steps that remain."""
        rest = []
        for listener in self._listeners:
            try:
                steps = getattr(listener, change.what)(*change.arguments)
            except Exception:  # noqa: BLE001 the other listeners must be called too
                _log.exception("a metadata listener failed: %s%s", change.what,
                               tuple(getattr(item, "name", item) for item in change.arguments))
            else:
                if steps is not None:
                    rest.append(steps)
        return rest


def _step(steps: Iterator[None]) -> bool:
    """Take the next step of a listener; False if there was none."""
    try:
        next(steps)
    except StopIteration:
        return False
    except Exception:  # noqa: BLE001 as above
        _log.exception("a metadata listener failed")
        return False
    return True
