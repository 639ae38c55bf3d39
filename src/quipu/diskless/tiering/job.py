"""Moves old records of many logs in rounds: the driver claims, plans and registers; others copy.

    report = await run_job(services, topics, copy_all, ...)

In a round, the logs that could be claimed are planned, all of their segments are copied by
`copy_all`, wherever that runs them, and then each log's segments are finished in order.  A log
takes part in rounds until nothing of it is due.

Invariant
    diskless.J1  an error of one log or one segment does not keep the others; segments of a log that
                 follow a failed one wait for the next job

Not here: Spark (pipeline/spark/tiering).  A job that ends early leaves what the next one, or a
broker, goes on from (steps.py).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from quipu.diskless.tiering.executor import CopyResult, CopyTask, in_thread
from quipu.diskless.tiering.plan import PlanRules
from quipu.diskless.tiering.steps import LogStep, PlannedSegment, StepServices
from quipu.diskless.values import LogKey
from quipu.model.errors import QuipuError
from quipu.runtime.spawn import spawn

LOGS_MAX: Final = 64  # in one round
CLAIM_PAUSE_SECONDS: Final = 0.25
RENEWALS: Final = 3  # of a claim, within its lease

CopyAll = Callable[[Sequence[CopyTask]], Sequence[CopyResult]]  # blocks; results in any order


class TieredTopic(NamedTuple):
    """A topic, and when its records are moved."""

    topic_id: UUID
    topic: str
    partition_count: int
    local_retention_ms: int  # records that are older are moved
    segment_size: int
    segment_ms: int  # how much older they are before they become a segment that is not full


class JobTarget(NamedTuple):
    """Where segments are read from and written to, by whoever copies them."""

    objects_url: str
    segments_url: str
    chunk_size: int
    compress: bool


@dataclass(slots=True)
class JobReport:
    """What a job has done."""

    segments: int = 0
    taken_over: int = 0  # of these, copied by an earlier job
    size: int = 0  # bytes
    logs: int = 0  # that were looked at
    busy: list[LogKey] = field(default_factory=list)  # another owner has them
    errors: list[str] = field(default_factory=list)


class _Job:
    def __init__(
        self, services: StepServices, target: JobTarget, copy_all: CopyAll, wait_ms: int
    ) -> None:
        self._services = services
        self._target = target
        self._copy_all = copy_all
        self._wait_seconds = wait_ms / 1000
        self.report = JobReport()

    async def run(self, wanted: Sequence[tuple[LogKey, TieredTopic]]) -> None:
        left, first, clock = list(wanted), True, self._services.clock
        deadline = clock.monotonic() + self._wait_seconds
        while left:
            busy: list[tuple[LogKey, TieredTopic]] = []
            for at in range(0, len(left), LOGS_MAX):
                busy += await self._logs(left[at : at + LOGS_MAX])
            if first:
                self.report.logs, first = len(left) - len(busy), False
            left = busy
            if left and clock.monotonic() >= deadline:
                self.report.busy = [log for log, _ in left]
                return
            if left:
                await asyncio.sleep(CLAIM_PAUSE_SECONDS)

    async def _logs(
        self, wanted: Sequence[tuple[LogKey, TieredTopic]]
    ) -> list[tuple[LogKey, TieredTopic]]:
        """Move what is due of some logs; returns those that another owner has."""
        steps: dict[LogStep, TieredTopic] = {}
        busy = []
        for log, topic in wanted:
            try:
                step = await LogStep.claimed(self._services, log, topic.topic)
            except QuipuError as error:
                self._failed(log, error)
                continue
            if step is None:
                busy.append((log, topic))
            else:
                steps[step] = topic
        renewing = spawn(self._renew(list(steps)), "renew claims")
        try:
            left = list(steps)
            while left:
                left = await self._round({step: steps[step] for step in left})
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            for step in steps:
                with suppress(QuipuError):  # then the claim runs out by itself
                    await step.end()
        return busy

    async def _round(self, steps: dict[LogStep, TieredTopic]) -> list[LogStep]:
        """Plan, copy, finish; returns the steps of which more may be due."""
        planned: dict[LogStep, list[PlannedSegment]] = {}
        now_ms = self._services.clock.now_ms()
        for step, topic in steps.items():
            before = now_ms - topic.local_retention_ms
            try:
                found = await step.planned(
                    PlanRules(topic.segment_size, before - topic.segment_ms), before)
            except QuipuError as error:
                self._failed(step.log, error)
                continue
            if found:
                planned[step] = found
        tasks = [CopyTask(each.plan, *self._target) for found in planned.values() for each in found
                 if each.custom_metadata is None]
        results = {result.plan.segment_id: result
                   for result in (await in_thread(lambda: self._copy_all(tasks)) if tasks else ())}
        return [step for step, found in planned.items()
                if await self._finish(step, found, results)]

    async def _finish(
        self, step: LogStep, planned: Sequence[PlannedSegment], results: dict[UUID, CopyResult]
    ) -> bool:
        """Finish the segments of a log up to the first that failed (diskless.J1)."""
        for plan, custom in planned:
            copied = custom
            if copied is None:
                result = results[plan.segment_id]
                copied = result.custom_metadata
                if copied is None:
                    self.report.errors.append(f"{step.partition}: {result.error}")
                    return False
            try:
                await step.finish(plan, copied)
            except QuipuError as error:
                self._failed(step.log, error)
                return False
            self.report.segments += 1
            self.report.taken_over += custom is not None
            self.report.size += plan.size
        return True

    async def _renew(self, steps: Sequence[LogStep]) -> None:
        """Keep the claims while executors work; one that is lost is noticed when it is used."""
        while True:
            await asyncio.sleep(self._services.lease_ms / 1000 / RENEWALS)
            for step in steps:
                with suppress(QuipuError):
                    await step.renew()

    def _failed(self, log: LogKey, error: QuipuError) -> None:
        self.report.errors.append(f"{log}: {error}")


async def run_job(
    services: StepServices, topics: Sequence[TieredTopic], target: JobTarget, copy_all: CopyAll, *,
    wait_ms: int = 0,
) -> JobReport:
    """Move what is due of all partitions of `topics`.

    Logs that another owner has are waited for, for `wait_ms` in all; then they are left to it.
    """
    job = _Job(services, target, copy_all, wait_ms)
    await job.run([(LogKey(topic.topic_id, partition), topic) for topic in topics
                   for partition in range(topic.partition_count)])
    return job.report
