"""Work that a node does again and again in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from quipu.model.errors import QuipuError

_log = logging.getLogger(__name__)


async def every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work` again and again; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except QuipuError as error:
            _log.error("background work failed, and will be tried again: %s", error)
        except Exception:  # noqa: BLE001 the next time may go well
            _log.exception("background work failed")
