"""Work for the disk's threads, for whoever can wait for it without holding up the loop."""

import asyncio
from collections.abc import Callable

from quipu.model.errors import QuipuError
from quipu.runtime.disk import Disk


async def off_loop(disk: Disk, work: Callable[[], None]) -> None:
    """Do `work` in a thread of the disk; raises what it raises."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(error: QuipuError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    disk.submit(work, tell)
    await done
