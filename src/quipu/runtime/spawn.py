"""Starts tasks: holds a reference to each until it ends, and logs those that fail."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from quipu.model.errors import QuipuError

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_running: set[asyncio.Task[Any]] = set()  # asyncio itself holds tasks only weakly


def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Run `coroutine` in the background; an exception is logged."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task %s failed", task.get_name(), exc_info=error)


async def run_to_end(work: Coroutine[Any, Any, Result], name: str) -> Result:
    """Run `work`, also to its end if the caller is cancelled; return its result or raise."""
    outcome: Result | QuipuError = await asyncio.shield(spawn(_outcome(work), name))
    if isinstance(outcome, QuipuError):
        try:
            raise outcome
        finally:
            del outcome  # its traceback refers to this frame: no cycle may be left
    return outcome


async def _outcome(work: Coroutine[Any, Any, Result]) -> Result | QuipuError:
    """The result or the error, as a value: if the caller is cancelled, nobody awaits the task."""
    try:
        return await work
    except QuipuError as error:
        return error


def disown(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Drop the references to `tasks`: they belong to a simulated process that has ended."""
    _running.difference_update(tasks)
