"""Telling of changes: what differs between two states, and who hears of it.

Invariants
    N1  listeners hear of a change after the state has it, all in the same order
    N2  a change is told by what is different, so a listener hears the same whether records came
        one by one or all at once as a snapshot
    N3  telling of many changes takes turns with other work: a thousand new logs do not stall the
        node; `settled` returns when everything applied so far has been told

A listener that fails harms no other: state and log agree whatever becomes of it.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from quipu.controller.state import BrokerState, ClusterState, Topic
from quipu.model.ids import NodeId
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

TURN_MAX: Final = 8  # changes that are told before other work gets its turn, at most ...
TURN_SECONDS: Final = 0.005  # ... and how long that may take, but for the last of them
PARTITIONS_MAX: Final = 32  # of a change; a topic with more of them is told in steps


class ClusterListener(Protocol):
    """Someone who acts on changes.  Called after they are decided and applied, in their order."""

    def on_topic_created(self, topic: Topic) -> None: ...
    def on_partitions_added(self, topic: Topic, first_new: int) -> None: ...

    def on_topic_deleted(self, topic: Topic) -> Iterator[None] | None:
        """May give the rest of what is to be done, in steps that are done in turns (N3), before
        anything else is told.
        """
        ...

    def on_config_changed(self, topic: Topic) -> None: ...

    def on_replicas_changed(self, topic: Topic) -> None:
        """Partitions of `topic` that were there before have other members, or another leader."""
        ...

    def on_brokers_changed(self) -> None:
        """A broker came, went, moved, was fenced or is no longer."""
        ...


class Picture(NamedTuple):
    """What of a state is compared with a later one."""

    topics: Mapping[UUID, Topic]
    brokers: Mapping[NodeId, BrokerState]
    broker_configs: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, state: ClusterState) -> "Picture":
        return cls(dict(state.topics_by_id), dict(state.brokers), _copied(state.broker_configs))

    @classmethod
    def of_topics(cls, state: ClusterState, topic_ids: Iterable[UUID]) -> "Picture":
        """For changes that touch these topics alone: cheap, however many others there are."""
        found = ((topic_id, state.topics_by_id.get(topic_id)) for topic_id in topic_ids)
        return cls({topic_id: topic for topic_id, topic in found if topic is not None},
                   state.brokers, state.broker_configs)


def _copied(configs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(values) for name, values in configs.items()}


class Change(NamedTuple):
    """One thing to tell."""

    what: str  # the listener's method
    arguments: tuple[Any, ...]


def differences(before: Picture, after: Picture) -> Iterator[Change]:
    """What to tell of a change; what is gone comes first, for names may return."""
    now = after.topics
    for topic_id, topic in before.topics.items():
        if topic_id not in now:
            yield Change("on_topic_deleted", (topic,))
    if before.brokers != after.brokers:
        yield Change("on_brokers_changed", ())
    defaults_changed = before.broker_configs != after.broker_configs
    for topic_id, topic in now.items():
        old = before.topics.get(topic_id)
        if old is None:
            yield from _created(topic)
        elif old is not topic or defaults_changed:
            yield from _topic_differences(old, topic, defaults_changed=defaults_changed)


def _topic_differences(old: Topic, new: Topic, *, defaults_changed: bool) -> Iterator[Change]:
    had = len(old.partitions)
    yield from _added(new, had)
    if defaults_changed or old.configs != new.configs:
        yield Change("on_config_changed", (new,))
    if old.partitions != new.partitions[:had]:
        yield Change("on_replicas_changed", (new,))


def _created(topic: Topic) -> Iterator[Change]:
    """A topic that is new: first as if it had a few partitions, then as if it got more (N3)."""
    yield Change("on_topic_created", (_with_partitions(topic, PARTITIONS_MAX),))
    yield from _added(topic, PARTITIONS_MAX)


def _added(topic: Topic, had: int) -> Iterator[Change]:
    for first in range(had, len(topic.partitions), PARTITIONS_MAX):
        yield Change(
            "on_partitions_added", (_with_partitions(topic, first + PARTITIONS_MAX), first))


def _with_partitions(topic: Topic, count: int) -> Topic:
    """`topic` as if it had no more than `count` partitions."""
    if len(topic.partitions) <= count:
        return topic
    return dataclasses.replace(topic, partitions=topic.partitions[:count])


class Telling:
    """The listeners, and what they have not heard yet."""

    def __init__(self) -> None:
        self._listeners: list[ClusterListener] = []
        self._waiting: deque[Change | Iterator[None] | Callable[[], None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, listener: ClusterListener) -> None:
        self._listeners.append(listener)

    def tell(self, changes: Iterator[Change]) -> None:
        """The first few at once, the others in turns (N3)."""
        for change in changes:
            self._waiting.append(change)
        if self._task is None:
            self._tell_some()
            if self._waiting:
                self._task = spawn(self._tell_others(), "telling of changes")

    async def settled(self) -> None:
        """Return when everything that was to be told by now has been."""
        if self._waiting:
            told = asyncio.get_running_loop().create_future()
            self._waiting.append(lambda: None if told.done() else told.set_result(None))
            await told

    async def _tell_others(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            self._tell_some()
        self._task = None

    def _tell_some(self) -> None:
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
            if isinstance(change, Change):
                self._waiting.extendleft(reversed(self._tell_all(change)))
            else:
                change()

    def _tell_all(self, change: Change) -> list[Iterator[None]]:
        """Tell everybody; gives what they have left to do."""
        rest = []
        for listener in self._listeners:
            try:
                steps = getattr(listener, change.what)(*change.arguments)
            except Exception:  # noqa: BLE001 state and log agree; others must hear of it too
                _log.exception("a listener failed: %s%s", change.what,
                               tuple(getattr(item, "name", item) for item in change.arguments))
            else:
                if steps is not None:
                    rest.append(steps)
        return rest


def _step(steps: Iterator[None]) -> bool:
    """Do the next step of a listener; False if there is none."""
    try:
        next(steps)
    except StopIteration:
        return False
    except Exception:  # noqa: BLE001 as above
        _log.exception("a listener failed")
        return False
    return True
