"""Tasks that are neither lost nor silent: the only way to start one."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

_log = logging.getLogger(__name__)
_running: set[asyncio.Task[Any]] = set()  # asyncio itself holds tasks only weakly


def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Run `coroutine` in the background; an exception that nobody awaits is logged."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task %s failed", task.get_name(), exc_info=error)


def disown(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Keep `tasks` no longer: they belong to a simulated process that is gone."""
    _running.difference_update(tasks)
