"""Waiting for a view to have seen what its topics held: as long as it gets on, and no longer.

A view under load is behind, and says nothing while it starts or while one batch of it runs.  So
what counts is whether it gets on: a new version, another job, a task that is done.  A view that
fails, and begins again, without getting on for `quipu.wait.ms` is given up; one that does not fail
has HEALTHY_FACTOR times as long for each step.

Whoever waits sets `stopping`, from another thread, when he does not want to any longer; `tell` is
called with a line about how far the view is.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quipu.client.errors import ClientError
from quipu.model.errors import Kind, QuipuError
from quipu.pipeline.reading.positions import NOWHERE, Reached, lag
from quipu.pipeline.spark.objects import Objects, Running
from quipu.pipeline.spark.running import State
from quipu.pipeline.spark.versions import Version
from quipu.pipeline.spark.views import View

LOOK_SECONDS: Final = 0.02
JOBS_SECONDS: Final = 1.0  # between two looks at Spark's jobs
HEALTHY_FACTOR: Final = 10


class NotCaughtUp(QuipuError):
    """A view does not get on, and has not seen what its sources had when it was asked."""

    kind = Kind.RETRY


class Cancelled(QuipuError):
    """Somebody did not want to wait any longer."""


def _say_nothing(line: str) -> None:
    del line


@dataclass(frozen=True)
class Waiting:
    """Somebody who waits; see above."""

    stopping: threading.Event = field(default_factory=threading.Event)
    tell: Callable[[str], None] = _say_nothing


class _Done(NamedTuple):
    """What was done so far; another value: it gets on."""

    version: int
    jobs: int
    tasks: int


def caught_up(objects: Objects, running: Running, waiting: Waiting) -> Version:
    """The newest version of a view, once it has seen what its sources have now."""
    view, keeper = running.view, running.keeper
    if keeper.state is not State.STOPPED:
        wanted = _ends(objects, running)
        try:
            _wait(objects, running, waiting, wanted)
        finally:
            waiting.tell("")
    version = view.latest()
    view.hold(version.number)
    return version


def _wait(
    objects: Objects, running: Running, waiting: Waiting, wanted: Sequence[Reached]
) -> None:
    view, keeper = running.view, running.keeper
    now = last_look = since = time.monotonic()
    done = _Done(view.latest().number, 0, 0)
    while not view.has_seen(wanted):
        now = time.monotonic()
        if now - last_look >= JOBS_SECONDS:
            last_look = now
            waiting.tell(_line(keeper.name, view, wanted))
            if (found := _done(view)) != done:
                done, since = found, now
        elif view.latest().number != done.version:
            done, since = done._replace(version=view.latest().number), now
        wait_ms = objects.settings.wait_ms * (1 if keeper.error else HEALTHY_FACTOR)
        if (now - since) * 1000 >= wait_ms:
            raise late(running, wait_ms, keeper.error)
        if waiting.stopping.wait(LOOK_SECONDS):
            raise Cancelled(f"view {keeper.name} is not waited for any longer")


def _done(view: View) -> _Done:
    """What the view's stream has done, by Spark's own count."""
    tracker = view.spark.sparkContext.statusTracker()
    jobs = list(tracker.getJobIdsForGroup(view.job_group)) if view.job_group else []
    tasks = 0
    for job in sorted(jobs)[-20:]:
        found = tracker.getJobInfo(job)
        if found is None:
            continue
        for number in found.stageIds:
            stage = tracker.getStageInfo(number)
            tasks += 0 if stage is None else stage.numCompletedTasks
    return _Done(view.latest().number, max(jobs, default=0), tasks)


def _line(name: str, view: View, wanted: Sequence[Reached]) -> str:
    seen = view.latest().places or [NOWHERE] * len(wanted)
    left = sum(lag(mine.positions, ends.positions)
               for mine, ends in zip(seen, wanted, strict=True))
    return f"view {name} has {left:,} messages to go"


def _ends(objects: Objects, running: Running) -> list[Reached]:
    """What a view has to see: where the topics of its sources end now."""
    view = running.view
    try:
        return [objects.ends(view.plan.sources[name]) for name in view.names]
    except ClientError as error:
        raise late(running, objects.settings.wait_ms, str(error)) from error


def late(running: Running, wait_ms: int, why: str | None) -> NotCaughtUp:
    """The error for a view that does not get on."""
    return NotCaughtUp(
        f"view {running.keeper.name} has not caught up with its sources, and did nothing for "
        f"{wait_ms} ms (see quipu.wait.ms){f': {why}' if why else ''}")
