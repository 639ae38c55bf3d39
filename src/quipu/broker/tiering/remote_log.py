"""All partitions that this node leads: copies and deletes their segments in the background.

Every partition with a tier is looked at once in `remote.log.manager.task.interval.ms`; after a
failure sooner, and less and less often while it goes on failing.  Now and then orphans are looked
for, one partition after the other.

Invariants
    broker.tiering.L1  at most one step of a partition is under way, and neither a step nor a search
                       for orphans once this node leads it no longer: they are cancelled, and the
                       next leader goes on
    broker.tiering.L2  what a deleted topic has in the tier is deleted by the node that led the
                       partition, in the background; if that node ends before, by the controller's
                       node, which looks for partitions and objects of topics that do not exist
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleted_partitions import DeletedPartitions
from quipu.broker.tiering.led_partition import LedPartition, TierServices
from quipu.broker.tiering.orphan_sweep import OrphanSweeper
from quipu.broker.tiering.roles import partition_of
from quipu.model.errors import QuipuError
from quipu.model.partition_log import PartitionLog
from quipu.remote.metadata.errors import FencedLeader
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

if TYPE_CHECKING:
    from quipu.controller.topic_state import Topic

TICK_SECONDS_MAX: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """How often a partition is looked at, in seconds."""

    interval: float
    retry: float  # after the first failure; doubled for each further one
    retry_max: float
    jitter: float  # fraction by which a pause varies


@dataclass(slots=True, kw_only=True)
class _Task:
    """The work for one partition, and when it is due."""

    led: LedPartition
    due_at: float = 0.0
    failures: int = 0
    trouble: str = ""  # why the last step failed
    running: "asyncio.Task[None] | None" = None
    sweeping: "asyncio.Task[None] | None" = None  # the search for its orphans
    is_deleting: bool = False


class RemoteLog:
    """Takes the steps of all led partitions; follows leadership and the cluster's metadata."""

    def __init__(
        self, services: TierServices, times: TaskTimes, deleted: DeletedPartitions,
        sweeper: OrphanSweeper | None, *, clock: Clock, rng: Rng, stats: Stats,
    ) -> None:
        self._services = services
        self._deleted = deleted
        self._sweeper = sweeper
        self._times = times
        self._clock = clock
        self._rng = rng
        self._stats = stats
        self._limited = LimitedLog(_log, clock.monotonic)
        self._tasks: dict[TopicIdPartition, _Task] = {}

    # -- leadership

    def leading_began(self, partition: PartitionLog) -> None:
        """Work for `partition` from now on, if it has a tier."""
        led = LedPartition(partition, self._services)
        self._tasks[led.partition] = _Task(led=led)

    def leading_ended(self, partition: PartitionLog) -> None:
        """Stop to work for `partition` (broker.tiering.L1)."""
        key = partition_of(partition)
        task = self._tasks.get(key)
        if task is None or task.is_deleting:
            return
        del self._tasks[key]
        for running in (task.running, task.sweeping):
            if running is not None:
                running.cancel()
        if self._services.roles.leads(key):
            spawn(self._follow(key), f"follow {key}")

    def look_soon(self, partition: PartitionLog) -> str:
        """Take the next step of `partition` soon; returns why the last one failed, if it did."""
        task = self._tasks.get(partition_of(partition))
        if task is None:
            return ""
        pause = self._times.retry if task.failures else 0.0
        task.due_at = min(task.due_at, self._clock.monotonic() + pause)
        return task.trouble

    async def _follow(self, key: TopicIdPartition) -> None:
        with suppress(QuipuError):  # the first read tries again
            await self._services.roles.follow(key, though_leading=True)

    # -- changes of the metadata

    def on_topic_created(self, topic: "Topic") -> None:
        """Do nothing: `leading_began` notifies of leadership."""

    def on_partitions_added(self, topic: "Topic", first_new: int) -> None:
        """Do nothing: `leading_began` notifies of leadership."""

    def on_replicas_changed(self, topic: "Topic") -> None:
        """Do nothing: `leading_began` and `leading_ended` notify of leadership."""

    def on_brokers_changed(self) -> None:
        """Do nothing: the tier does not depend on other nodes."""

    def on_config_changed(self, topic: "Topic") -> None:
        """Look at the topic's partitions soon: it may have got a tier, or lost it."""
        for key, task in self._tasks.items():
            if key.topic_id == topic.topic_id:
                task.due_at = 0.0

    def on_topic_deleted(self, topic: "Topic") -> Iterator[None]:
        """Delete what the tier has of it (broker.tiering.L2)."""
        for key, task in list(self._tasks.items()):
            if key.topic_id == topic.topic_id and task.led.has_work:
                task.is_deleting = True
                task.due_at = 0.0
                task.failures = 0
                if task.running is not None:
                    task.running.cancel()
            yield

    # -- the loop

    async def run(self) -> None:
        """Take steps as they are due, until cancelled."""
        tick = min(TICK_SECONDS_MAX, self._times.interval / 2)
        background = [spawn(self._finish_often(), "deletions in the tier")]
        if self._sweeper is not None:
            background.append(spawn(self._sweep_often(self._sweeper), "orphans of the tier"))
        try:
            while True:
                self._start_due()
                await asyncio.sleep(tick)
        finally:
            running = [*background,
                       *(task.running for task in self._tasks.values() if task.running)]
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for key, task in list(self._tasks.items()):
            if task.running is None and task.due_at <= now and (
                    task.is_deleting or task.led.has_work):
                task.running = spawn(self._step(key, task), f"tier of {key}")

    async def _step(self, key: TopicIdPartition, task: _Task) -> None:
        try:
            is_more_due = False
            if task.is_deleting:
                with suppress(FencedLeader):  # another node has taken over the deletion
                    await task.led.delete()
                self._tasks.pop(key, None)
            else:
                is_more_due = await task.led.step()
            task.failures, task.trouble = 0, ""
            pause = 0.0 if is_more_due else self._varied(self._times.interval)
            task.due_at = self._clock.monotonic() + pause
        except QuipuError as error:
            self._failed(key, task, error)
        except Exception as error:  # noqa: BLE001 a bug in one partition must not stop the others
            _log.exception("%s: the tier's work failed", key)
            self._failed(key, task, error)
        finally:
            task.running = None

    def _failed(self, key: TopicIdPartition, task: _Task, error: Exception) -> None:
        """Note a failure, and take the step again after a pause."""
        task.failures += 1
        task.trouble = str(error)
        pause = min(self._times.retry * 2 ** min(task.failures - 1, 30), self._times.retry_max)
        task.due_at = self._clock.monotonic() + self._varied(pause)
        self._stats.remote.task_errors += 1
        self._limited.warning(
            f"tier {key}", "%s: the tier's work failed, and is tried again in %.1f s: %s", key,
            pause, error)

    async def _finish_often(self) -> None:
        """Finish interrupted deletions again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._varied(self._deleted.interval_seconds))
            await self._swept("partitions of deleted topics", self._deleted.finish)

    async def _sweep_often(self, sweeper: OrphanSweeper) -> None:
        """Look for orphans again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._varied(sweeper.interval_seconds))
            for key, task in list(self._tasks.items()):
                if not task.is_deleting and self._tasks.get(key) is task:
                    await self._sweep(sweeper, key, task)
            await self._swept("deleted topics", sweeper.sweep_deleted_topics)

    async def _sweep(self, sweeper: OrphanSweeper, key: TopicIdPartition, task: _Task) -> None:
        """Look for the orphans of one partition, in a task that can be cancelled alone."""
        sweeping = task.sweeping = spawn(
            self._swept(str(key), partial(sweeper.sweep_partition, task.led)),
            f"orphans of {key}")
        try:
            await asyncio.wait([sweeping])
        finally:
            sweeping.cancel()
            task.sweeping = None

    async def _swept(self, subject: str, sweep: Callable[[], Awaitable[None]]) -> None:
        try:
            await sweep()
        except QuipuError as error:
            self._stats.remote.task_errors += 1
            self._limited.warning(
                f"orphans {subject}", "%s: what is left in the tier is looked for later, because "
                "that failed: %s", subject, error)
        except Exception:  # noqa: BLE001 a bug in one partition must not stop the others
            self._stats.remote.task_errors += 1
            _log.exception("%s: the search for what is left in the tier failed", subject)

    def _varied(self, seconds: float) -> float:
        return seconds * (1 + self._times.jitter * (2 * self._rng.random() - 1))

    # -- metrics

    @property
    def remote_bytes(self) -> int:
        """Bytes in the tier of all partitions that this node leads."""
        return sum(task.led.remote_bytes for task in self._tasks.values())

    def led(self) -> list[LedPartition]:
        """The partitions with a tier that this node leads."""
        return [task.led for task in self._tasks.values() if task.led.has_work]
