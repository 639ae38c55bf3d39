"""Metadata listeners: their notifications give the state, however it was applied."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from quipu.broker.cluster.metadata_listeners import TURN_MAX
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.controller import brokers, chains, configs, topics
from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigOperation, ConfigResource
from quipu.controller.decision import Decision
from quipu.controller.records import encode_record
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topic_state import Topic
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId, RaftIndex
from quipu.model.settings import BrokerSettings
from quipu.model.topics import check_topic_name
from tests.broker.clusters import FollowedPartitions
from tests.looped import looped

SETTINGS = BrokerSettings()


class Mirror:
    """A listener that checks its notifications against each other."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Any]] = {}
        self.brokers_changed = 0
        self.defaults_seen = 0

    def on_topic_created(self, topic: Topic) -> None:
        assert topic.name not in self.topics
        self.topics[topic.name] = [topic.topic_id, list(topic.partitions), dict(topic.configs)]

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        known = self.topics[topic.name][1]
        assert len(known) == first_new < len(topic.partitions)
        known.extend(topic.partitions[first_new:])

    def on_topic_deleted(self, topic: Topic) -> None:
        assert self.topics.pop(topic.name)[0] == topic.topic_id

    def on_config_changed(self, topic: Topic) -> None:
        self.topics[topic.name][2] = dict(topic.configs)
        self.defaults_seen += 1

    def on_replicas_changed(self, topic: Topic) -> None:
        known = self.topics[topic.name][1]
        known[:] = topic.partitions[: len(known)]

    def on_brokers_changed(self) -> None:
        self.brokers_changed += 1


def seen(state: ClusterState) -> dict[str, list[Any]]:
    return {topic.name: [topic.topic_id, list(topic.partitions), dict(topic.configs)]
            for topic in state.topics.values()}


class History:
    """DecisionQueue drawn by chance, applied to a machine."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.machine = MetadataStateMachine(SETTINGS, on_leadership=lambda _is_leader: None)
        self._index = 0
        for number in (1, 2, 3):
            self.carry_out(brokers.register(self.state, brokers.Registration(
                NodeId(number), f"a-{number}", UUID(int=number), "h", 1), quiet=False))
            self.unfence(number)
        self.carry_out(chains.create(self.state, "a"))

    @property
    def state(self) -> ClusterState:
        return self.machine.state

    def carry_out(self, decision: Decision[Any]) -> None:
        if decision.records:
            self._index += 1
            self.machine.apply(
                RaftIndex(self._index), [encode_record(record) for record in decision.records])

    def unfence(self, number: int) -> None:
        node_id = NodeId(number)
        self.carry_out(brokers.unfence(self.state, node_id, self.state.brokers[node_id].epoch))

    def step(self) -> None:
        """One decision."""
        name = self.dice.choice("tuvw")
        alteration = ConfigAlteration(
            ConfigResource(*self.dice.choice([(2, name), (4, "")])),
            [ConfigChange("retention.ms", ConfigOperation.SET, str(self.dice.randrange(1, 5)))])
        number = self.dice.randrange(1, 4)
        self.carry_out(self.dice.choice([
            lambda: topics.create_topics(self.state, [NewTopic(name, 2)], SETTINGS, self._uuid),
            lambda: topics.delete_topics(self.state, [(name, UUID(int=0))], SETTINGS),
            lambda: topics.create_partitions(
                self.state, [NewPartitions(name, 4)], SETTINGS),
            lambda: configs.alter(self.state, [alteration], SETTINGS),
            lambda: brokers.fence(self.state, [NodeId(number)]),
            lambda: Decision([], self.unfence(number) or []),
        ])())

    def _uuid(self) -> UUID:
        return UUID(int=self.dice.getrandbits(100) + 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_listener_knows_the_state(seed: int) -> None:
    """T7: record by record, and after images in between, which replace the whole state."""

    @looped
    async def run() -> None:
        history, mirror = History(seed), Mirror()
        history.machine.listeners.add(mirror)
        for _ in range(60):
            history.step()
            await history.machine.listeners.settled()
            assert mirror.topics == seen(history.state)

    run()


@pytest.mark.parametrize("seed", range(20))
def test_an_image_tells_what_its_history_would_have(seed: int) -> None:
    """T7, broker.cluster.N2: a node that was away hears the differences, whatever happened
    meanwhile.
    """

    @looped
    async def run() -> None:
        ahead, behind, mirror = History(seed), History(seed), Mirror()
        behind.machine.listeners.add(mirror)
        for _ in range(20):
            for _ in range(10):
                ahead.step()
            behind.machine.restore(ahead.machine.snapshot())
            await behind.machine.listeners.settled()
            assert behind.state == ahead.state
            assert mirror.topics == seen(ahead.state)
            assert behind.machine.settings == ahead.machine.settings

    run()


class SlowToForget(FollowedPartitions):
    """A listener that has much to do about a topic that is deleted."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self._fails = fails

    def on_topic_deleted(self, topic: Topic) -> Iterator[None]:  # type: ignore[override]
        self.notifications.append(("deleted", topic.name))
        return self._rest(topic.name)

    def _rest(self, name: str) -> Iterator[None]:
        for number in range(5 * TURN_MAX):
            self.notifications.append(("step", name, number))
            if self._fails and number == 3:
                raise QuipuError("a disk, say")
            yield


@looped
async def test_what_is_left_to_do_about_a_deleted_topic_comes_before_the_next_change() -> None:
    """K5: in turns with other work; one listener that fails on the way stops no other."""
    history, slow, fails = History(1), SlowToForget(), SlowToForget(fails=True)
    listeners = history.machine.listeners
    history.carry_out(topics.create_topics(
        history.state, [NewTopic("old")], SETTINGS, history._uuid))
    await listeners.settled()
    listeners.add(fails)
    listeners.add(slow)
    history.carry_out(topics.delete_topics(history.state, [("old", UUID(int=0))], SETTINGS))
    history.carry_out(topics.create_topics(
        history.state, [NewTopic("old")], SETTINGS, history._uuid))
    assert len(slow.notifications) < 2 * TURN_MAX
    await listeners.settled()
    steps = [("step", "old", number) for number in range(5 * TURN_MAX)]
    assert slow.notifications == [("deleted", "old"), *steps, ("created", "old", 1)]
    assert fails.notifications == [("deleted", "old"), *steps[:4], ("created", "old", 1)]


@looped
async def test_many_changes_take_turns_with_other_work() -> None:
    """K5, broker.cluster.N3: a thousand logs are opened without the node standing still; and all in
    their order.
    """
    history, heard = History(1), FollowedPartitions()
    history.machine.listeners.add(heard)
    names = [f"t{number}" for number in range(20 * TURN_MAX)]
    for name in names:
        check_topic_name(name)
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(other_work())
    history.carry_out(topics.create_topics(
        history.state, [NewTopic(name) for name in names], SETTINGS, history._uuid))
    assert len(heard.notifications) == TURN_MAX
    history.carry_out(topics.delete_topics(history.state, [("t0", UUID(int=0))], SETTINGS))
    await history.machine.listeners.settled()
    other.cancel()

    assert heard.notifications == [*(("created", name, 1) for name in names), ("deleted", "t0")]
    assert turns >= 19
