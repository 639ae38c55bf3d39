"""What a node does for the tier of a partition ends with its leadership, in the epoch of that."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleted_partitions import DeletedPartitions
from quipu.broker.tiering.led_partition import LedPartition
from quipu.broker.tiering.orphan_sweep import OrphanSweeper
from quipu.broker.tiering.remote_log import RemoteLog, TaskTimes
from quipu.model.ids import TopicPartition
from quipu.model.partition_log import PartitionLog
from quipu.runtime.rng import SystemRng
from quipu.runtime.slots import Slots
from tests.broker.tiering.world_parts import TOPIC_ID
from tests.looped import LoopClock, looped

TIMES = TaskTimes(interval=0.01, retry=0.01, retry_max=0.01, jitter=0.0)


class Roles:
    """The epochs in which the metadata was to be led."""

    def __init__(self) -> None:
        self.led: list[int] = []

    async def lead(self, _partition: object, epoch: int) -> None:
        self.led.append(epoch)

    async def stop(self, _partition: object) -> None:
        """Do nothing."""

    def leads(self, _partition: object) -> bool:
        return False


def a_log(epoch: int) -> PartitionLog:
    return cast("PartitionLog", SimpleNamespace(
        topic_id=TOPIC_ID, topic_partition=TopicPartition("t", 0), leader_epoch=epoch,
        check_leader=lambda: None, tier=SimpleNamespace(is_enabled=True)))


@looped
async def test_the_metadata_is_led_in_the_epoch_in_which_leading_began() -> None:
    """R2: broker.tiering.P5: not in the next leader's, of which a deposed one has heard."""
    async def deleted(_partition: object) -> None:
        """Do nothing."""

    roles, log = Roles(), a_log(6)
    led = LedPartition(log, cast("Any", SimpleNamespace(
        roles=roles, deletions=Slots(1),
        deleter=SimpleNamespace(delete_partition=deleted))))
    log.leader_epoch = 7  # type: ignore[misc,assignment]
    await led.delete()
    assert roles.led == [6]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@looped
async def test_a_step_and_a_search_end_with_the_leadership() -> None:
    """R2: broker.tiering.L1: nothing goes on for a partition that another node leads."""
    events: list[str] = []

    async def forever(name: str) -> None:
        events.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            events.append(f"{name} ended")

    sweeper = SimpleNamespace(
        interval_seconds=0.01, sweep_partition=lambda _: forever("search"),
        sweep_deleted_topics=lambda: forever("deleted topics"))
    deleted = SimpleNamespace(interval_seconds=1000.0)  # its time does not come
    remote_log = RemoteLog(
        cast("Any", SimpleNamespace(roles=Roles())), TIMES, cast("DeletedPartitions", deleted),
        cast("OrphanSweeper", sweeper), clock=LoopClock(), rng=SystemRng(), stats=Stats())
    log = a_log(6)
    remote_log.leading_began(log)
    (led,) = remote_log.led()
    led.step = lambda: forever("step")  # type: ignore[method-assign,assignment]
    running = asyncio.ensure_future(remote_log.run())
    await until(lambda: {"search", "step"} <= set(events))
    remote_log.leading_ended(log)
    await until(lambda: {"search ended", "step ended", "deleted topics"} <= set(events))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert events[-1] == "deleted topics ended"


@looped
async def test_nothing_expires_after_a_step_was_cancelled() -> None:
    """R2: broker.tiering.L1: the next leader may be copying what would be deleted."""
    led, events = LedPartition(a_log(6), cast("Any", None)), []

    async def copy() -> bool:
        await asyncio.Event().wait()
        return False

    async def expire() -> None:
        events.append("expired")

    led._is_caught_up = True
    led._copy_due, led._expire = copy, expire  # type: ignore[method-assign]
    step = asyncio.ensure_future(led.step())
    await asyncio.sleep(0)
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    assert step.cancelled()
    assert events == []
