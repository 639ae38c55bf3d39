"""Short garbage collections, however many objects a node holds.

Python's cyclic collector looks at all long-lived objects in one go every now and then: with
thousands of partitions that takes a tenth of a second, in which nothing else is done.  So what
survives a collection that was long is left out of later ones (`gc.freeze`); it is still freed when
nothing refers to it, unless it is part of a cycle.  Cycles among it are found by looking at
everything once more whenever it has doubled.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FULL: Final = 2  # the generation that holds what lives for long
LONG_SECONDS: Final = 0.005
LOOK_AGAIN_MIN: Final = 500_000  # objects that were left out


def keep_collections_short() -> None:
    """For a process that serves; what it has loaded so far stays."""
    gc.freeze()
    gc.callbacks.append(_Collections().observe)


@contextmanager
def no_collections() -> Iterator[None]:
    """For a start, which makes much and drops little; later ones leave out what it made."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Collections:
    """Hears of every collection."""

    def __init__(self) -> None:
        self._started = 0.0
        self._looked_at = gc.get_freeze_count()  # when everything was looked at last
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
            gc.unfreeze()  # the next full collection looks at all of it
