"""The delays of simulated disks: syncs that complete later, or much later.

`SimDisk` (runtime) holds the bytes and loses them; `DiskWorker` simulates its thread.  Work runs at
some time between its submission and its completion, so that bytes appended meanwhile may or may not
be part of it, as with a real thread.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Done, Wait, Work
from quipu.runtime.disks.sim_disk import outcome_of
from quipu.sim.dice import Dice

SYNC_SECONDS_MIN: Final = 0.0001
SYNC_SECONDS_MAX: Final = 0.004


@dataclass(slots=True, eq=False)
class _Job:
    work: Work
    done: Done
    is_run: bool = False
    outcome: QuipuError | None = None

    def run(self) -> None:
        if not self.is_run:
            self.is_run = True
            self.outcome = outcome_of(self.work)

    def end(self) -> None:
        self.run()
        self.done(self.outcome)


class DiskWorker:
    """Runs the work submitted to one node's disk, on the loop of the world."""

    def __init__(self, dice: Dice, notify: Callable[[], None]) -> None:
        self.slowness = 1.0  # multiplies all delays
        self._dice = dice
        self._notify = notify  # called when a piece of work is submitted

    def __call__(self, work: Work, done: Done) -> Wait:
        loop = asyncio.get_running_loop()
        job = _Job(work, done)
        self._notify()
        seconds = self._dice.between(SYNC_SECONDS_MIN, SYNC_SECONDS_MAX) * self.slowness
        loop.call_later(seconds * self._dice.random(), job.run)
        loop.call_later(seconds, job.end)
        return job.run
