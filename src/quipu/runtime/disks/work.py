"""Runs work in a thread of the disk, for coroutines that wait for it."""

import asyncio
from collections.abc import Callable

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Disk


async def off_loop(disk: Disk, work: Callable[[], None]) -> None:
    """Run `work` in a thread of the disk; raise what it raises."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(error: QuipuError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    disk.submit(work, finish)
    await done
