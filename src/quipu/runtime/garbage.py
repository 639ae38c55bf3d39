"""Keeps garbage collections short, however many objects a node holds.

Python's cyclic collector now and then visits all long-lived objects at once: with thousands of
partitions that takes a tenth of a second, in which nothing else runs.  So objects that survive a
long collection are excluded from later ones (`gc.freeze`).  They are still freed when nothing
refers to them, unless they are part of a cycle.  To find such cycles, one collection visits all
objects again whenever the number of excluded ones has doubled.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FULL: Final = 2  # the generation of long-lived objects
LONG_SECONDS: Final = 0.005
LOOK_AGAIN_MIN: Final = 500_000  # excluded objects below which no collection visits all again


def keep_collections_short() -> None:
    """Start to limit collections in this process; exclude all objects that exist now."""
    gc.freeze()
    gc.callbacks.append(_Collections().observe)


@contextmanager
def no_collections() -> Iterator[None]:
    """Collect nothing within the block, then exclude the objects made in it.

    For the start of a node, which makes many objects and drops few.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Collections:
    """Is called before and after every collection, and freezes objects after a long one."""

    def __init__(self) -> None:
        self._started = 0.0
        self._looked_at = gc.get_freeze_count()  # excluded objects when all were last visited
        self._looks_at_all = False

    def observe(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._started = time.thread_time()
        elif self._looks_at_all or time.thread_time() - self._started >= LONG_SECONDS:
            self._freeze()

    def _freeze(self) -> None:
        gc.freeze()
        count = gc.get_freeze_count()
        if self._looks_at_all:
            self._looked_at, self._looks_at_all = count, False
        elif count > max(2 * self._looked_at, LOOK_AGAIN_MIN):
            self._looks_at_all = True
            gc.unfreeze()  # the next full collection visits all objects
