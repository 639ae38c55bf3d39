"""A broker's metadata side on a real log in a temporary directory, and a way to ask it.

Requests and responses pass through their bytes in the given version, so a test sees what a
client of that version sees.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from quipu.broker.cluster import ClusterDriver
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.observing.stats import Stats
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.response_budget import ResponseBudget, ResponseBudgets
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import RealDisk
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.rng import Rng, SeededRng
from quipu.runtime.turns import Turns
from quipu.wire.messages import RESPONSES
from quipu.wire.schema import Request
from tests.broker.alone import Alone, CommandLog

DISK = RealDisk()


class MemoryLog:
    """A log of commands that keeps its promises, in memory."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.commands_size = 0
        self.snapshots = 0
        self.before_append: Callable[[], Awaitable[None]] | None = None

    def replay(self, apply: Callable[[Any], None]) -> None:
        for command in self.commands:
            apply(command)

    async def append(self, commands: Sequence[Any]) -> None:
        if self.before_append is not None:
            await self.before_append()
        self.commands.extend(commands)
        self.commands_size += sum(map(len, commands))

    async def snapshot(self, commands: Iterable[Any]) -> None:
        self.commands = list(commands)
        self.commands_size = 0
        self.snapshots += 1


class FollowedPartitions:
    """Partitions that exist as soon as the cluster notifies of them, and all notifications."""

    def __init__(self) -> None:
        self.notifications: list[tuple[Any, ...]] = []
        self.failed: dict[tuple[str, int], QuipuError] = {}

    def find(self, topic: str, partition: int) -> SimpleNamespace:
        return SimpleNamespace(failure=self.failed.get((topic, partition)))

    def on_topic_created(self, topic: Topic) -> None:
        self.notifications.append(("created", topic.name, len(topic.partitions)))

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self.notifications.append(("added", topic.name, first_new, len(topic.partitions)))

    def on_topic_deleted(self, topic: Topic) -> None:
        self.notifications.append(("deleted", topic.name))

    def on_config_changed(self, topic: Topic) -> None:
        self.notifications.append(("changed", topic.name, dict(topic.configs)))

    def on_replicas_changed(self, topic: Topic) -> None:
        self.notifications.append(("replicas", topic.name))

    def on_brokers_changed(self) -> None:
        self.notifications.append(("brokers",))


@dataclass(kw_only=True)
class ABroker:
    """As much of a broker as the handlers of metadata use."""

    cluster: ClusterDriver
    rng: Rng = field(default_factory=lambda: SeededRng(1))
    partitions: FollowedPartitions = field(default_factory=FollowedPartitions)
    limited: LimitedLog = field(default_factory=lambda: LimitedLog(logging.getLogger(__name__)))
    response_budgets: ResponseBudgets = field(default_factory=lambda: ResponseBudgets(
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
) -> ClusterDriver:
    """A started broker 1 at kafka.test:9092, on a log in memory unless one is given."""
    kept = MemoryLog() if log is None else log
    cluster = ClusterDriver(
        settings or BrokerSettings(), ManualClock(), SeededRng(seed),
        lambda machine: Alone(machine, kept, NodeId(1)))
    await cluster.start(Endpoints("kafka.test", port))
    return cluster


async def a_broker(*topics: NewTopic, settings: BrokerSettings | None = None) -> ABroker:
    broker = ABroker(cluster=await a_cluster(settings))
    forwarding.serve(cast("Broker", broker))
    broker.cluster.follow(broker.partitions)
    responses = await broker.cluster.controller.create_topics(topics)
    assert all(response.code is Code.NONE for response in responses), responses
    return broker


async def ask(broker: ABroker, handler: ModuleType, request: Request, version: int) -> Any:
    """What a client of `version` gets."""
    budget = ResponseBudget(broker.response_budgets, RESPONSES[request.KEY], version)
    context = Context(api_version=version, correlation_id=7, client_id="test", client_host="::1",
                      budget=budget)
    sent = forwarding.decode_request(
        cast("Broker", broker), request.KEY, request.encode(version), version)
    response = handler.handle(cast("Broker", broker), sent, context)
    if inspect.isawaitable(response):
        response = await response
    got = RESPONSES[request.KEY].decode(response.encode(version), version)
    assert type(got) is type(response)
    return got


def versions(request: type[Request]) -> list[int]:
    return list(request.VERSIONS)
