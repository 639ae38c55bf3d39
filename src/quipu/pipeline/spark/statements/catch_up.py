"""Waits until a view has processed the present messages of its topics, while it makes progress.

A view under load lags behind, and publishes nothing while it starts or while a batch runs.  So a
new version, a new job of Spark and a completed task all count as progress.  The wait ends with an
error if a failing view makes no progress for `quipu.wait.ms`; for a view that does not fail, it is
HEALTHY_FACTOR times as long.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quipu.client.errors import ClientError
from quipu.model.errors import ErrorKind, QuipuError
from quipu.pipeline.reading.positions import NOWHERE, Reached, lag
from quipu.pipeline.spark.session.supervisor import RunState
from quipu.pipeline.spark.statements.live_catalog import LiveCatalog, MaintainedView
from quipu.pipeline.spark.views.view import View
from quipu.pipeline.views.versions import Version

POLL_SECONDS: Final = 0.02
JOBS_SECONDS: Final = 1.0  # between two looks at Spark's jobs
HEALTHY_FACTOR: Final = 10


class NotCaughtUp(QuipuError):
    """A view has not processed the messages that were there when the wait began, and hangs."""

    kind = ErrorKind.RETRY


class Cancelled(QuipuError):
    """The wait was ended by `WaitControl.stopping`."""


def _ignore(line: str) -> None:
    del line


@dataclass(frozen=True)
class WaitControl:
    """Reports the progress of a wait, and lets another thread end it."""

    stopping: threading.Event = field(default_factory=threading.Event)  # set: raise Cancelled
    report: Callable[[str], None] = _ignore  # called with lines of progress; at last with ""


class _WorkDone(NamedTuple):
    """The work of a view's streaming query so far; if it changes, there is progress."""

    version: int
    jobs: int
    tasks: int


def wait_until_caught_up(
    live: LiveCatalog, maintained: MaintainedView, control: WaitControl,
) -> Version:
    """Wait until a view has processed all present messages; returns its newest version, held."""
    view, supervisor = maintained.view, maintained.supervisor
    if supervisor.state is not RunState.STOPPED:
        wanted = _ends(live, maintained)
        try:
            _wait(live, maintained, control, wanted)
        finally:
            control.report("")
    version = view.files.latest()
    view.files.hold(version.number)
    return version


def _wait(
    live: LiveCatalog, maintained: MaintainedView, control: WaitControl, wanted: Sequence[Reached]
) -> None:
    view, supervisor = maintained.view, maintained.supervisor
    now = last_look = since = time.monotonic()
    done = _WorkDone(view.files.latest().number, 0, 0)
    while not view.files.has_seen(wanted):
        now = time.monotonic()
        if now - last_look >= JOBS_SECONDS:
            last_look = now
            control.report(_line(supervisor.name, view, wanted))
            if (found := _work_done(view)) != done:
                done, since = found, now
        elif view.files.latest().number != done.version:
            done, since = done._replace(version=view.files.latest().number), now
        wait_ms = live.settings.wait_ms * (1 if supervisor.error else HEALTHY_FACTOR)
        if (now - since) * 1000 >= wait_ms:
            raise late(maintained, wait_ms, supervisor.error)
        if control.stopping.wait(POLL_SECONDS):
            raise Cancelled(f"the wait for view {supervisor.name} was cancelled")


def _work_done(view: View) -> _WorkDone:
    """The work of a view's streaming query, from Spark's status tracker."""
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
    return _WorkDone(view.files.latest().number, max(jobs, default=0), tasks)


def _line(name: str, view: View, wanted: Sequence[Reached]) -> str:
    seen = view.files.latest().positions or [NOWHERE] * len(wanted)
    left = sum(lag(mine.positions, ends.positions)
               for mine, ends in zip(seen, wanted, strict=True))
    return f"view {name} has {left:,} messages to go"


def _ends(live: LiveCatalog, maintained: MaintainedView) -> list[Reached]:
    """The ends of the topics of a view's sources."""
    view = maintained.view
    try:
        return [live.ends(view.plan.sources[name]) for name in view.names]
    except ClientError as error:
        raise late(maintained, live.settings.wait_ms, str(error)) from error


def late(maintained: MaintainedView, wait_ms: int, why: str | None) -> NotCaughtUp:
    """The error for a view that makes no progress."""
    return NotCaughtUp(
        f"view {maintained.supervisor.name} has not caught up with its sources, and did nothing "
        f"for {wait_ms} ms (see quipu.wait.ms){f': {why}' if why else ''}")
