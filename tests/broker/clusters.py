"""A broker's metadata side on a real log in a temporary directory, and a way to ask it.

Requests and answers pass through their bytes in the version asked for, so a test sees what a
client of that version sees.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from quipu.broker import envelopes
from quipu.broker.answers import Answer, Answers
from quipu.broker.cluster import Cluster
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.context import Broker, Context
from quipu.broker.stats import Stats
from quipu.controller.state import Topic
from quipu.controller.topics import NewTopic
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import ManualClock
from quipu.runtime.disk import RealDisk
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.rng import SeededRng
from quipu.runtime.turns import Turns
from quipu.wire.messages import RESPONSES
from quipu.wire.schema import Request
from tests.broker.alone import Alone, CommandLog

DISK = RealDisk()


class MemoryLog:
    """A metadata log that keeps its promises, in memory."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.commands_size = 0
        self.snapshots = 0
        self.before_append: Callable[[], Awaitable[None]] | None = None

    def replay(self, apply: Callable[[bytes], None]) -> None:
        for command in self.commands:
            apply(command)

    async def append(self, commands: Sequence[bytes]) -> None:
        if self.before_append is not None:
            await self.before_append()
        self.commands.extend(commands)
        self.commands_size += sum(map(len, commands))

    async def snapshot(self, commands: Iterable[bytes]) -> None:
        self.commands = list(commands)
        self.commands_size = 0
        self.snapshots += 1


class FollowedPartitions:
    """Partitions that exist as soon as the cluster tells of them, and what it told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.failed: dict[tuple[str, int], QuipuError] = {}

    def find(self, topic: str, partition: int) -> SimpleNamespace:
        return SimpleNamespace(failed=self.failed.get((topic, partition)))

    def on_topic_created(self, topic: Topic) -> None:
        self.told.append(("created", topic.name, len(topic.partitions)))

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self.told.append(("added", topic.name, first_new, len(topic.partitions)))

    def on_topic_deleted(self, topic: Topic) -> None:
        self.told.append(("deleted", topic.name))

    def on_config_changed(self, topic: Topic) -> None:
        self.told.append(("changed", topic.name, dict(topic.configs)))

    def on_replicas_changed(self, topic: Topic) -> None:
        self.told.append(("replicas", topic.name))

    def on_brokers_changed(self) -> None:
        self.told.append(("brokers",))


@dataclass(kw_only=True)
class ABroker:
    """As much of a broker as the handlers of metadata use."""

    cluster: Cluster
    partitions: FollowedPartitions = field(default_factory=FollowedPartitions)
    limited: LimitedLog = field(default_factory=lambda: LimitedLog(logging.getLogger(__name__)))
    answers: Answers = field(default_factory=lambda: Answers(
        Turns(lambda: 0.0), lambda: 0.0, Stats(), size_max=1 << 25, total_max=1 << 27))

    @property
    def settings(self) -> BrokerSettings:
        return self.cluster.settings

    @property
    def node_id(self) -> int:
        return self.cluster.node_id


async def a_cluster(
    settings: BrokerSettings | None = None,
    *,
    log: CommandLog | None = None,
    seed: int = 1,
    port: int = 9092,
) -> Cluster:
    """A started broker 1 at kafka.test:9092, on a log in memory unless one is given."""
    kept = MemoryLog() if log is None else log
    cluster = Cluster(
        settings or BrokerSettings(), ManualClock(), SeededRng(seed),
        lambda machine: Alone(machine, kept, NodeId(1)))
    await cluster.start(Endpoints("kafka.test", port))
    return cluster


async def a_broker(*topics: NewTopic, settings: BrokerSettings | None = None) -> ABroker:
    broker = ABroker(cluster=await a_cluster(settings))
    broker.cluster.follow(broker.partitions)
    answers = await broker.cluster.create_topics(topics)
    assert all(answer.code is Code.NONE for answer in answers), answers
    return broker


async def ask(broker: ABroker, handler: ModuleType, request: Request, version: int) -> Any:
    """What a client of `version` gets."""
    answer = Answer(broker.answers, RESPONSES[request.KEY], version)
    context = Context(api_version=version, correlation_id=7, client_id="test", client_host="::1",
                      answer=answer)
    sent = envelopes.understood(
        cast("Broker", broker), request.KEY, request.encode(version), version)
    response = handler.handle(cast("Broker", broker), sent, context)
    if inspect.isawaitable(response):
        response = await response
    got = RESPONSES[request.KEY].decode(response.encode(version), version)
    assert type(got) is type(response)
    return got


def versions(request: type[Request]) -> list[int]:
    return list(request.VERSIONS)
