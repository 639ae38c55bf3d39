"""Following a view in the background, for tests."""

import threading
import time
from collections.abc import Callable
from typing import Any

from quipu.pipeline.spark.pipeline import Pipeline
from quipu.pipeline.spark.subscribing import Change

WAIT_SECONDS_MAX = 60.0

Row = tuple[Any, ...]


def until(reached: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait for something that comes by itself; `what` is shown if it does not."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not reached():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


class Follower:
    """SUBSCRIBE in a thread of its own."""

    def __init__(self, pipeline: Pipeline, view: str, *, snapshot: bool = True) -> None:
        self.changes: list[Change] = []
        self.error: Exception | None = None
        self._subscription = pipeline.subscribe(view, snapshot=snapshot)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for change in self._subscription:
                self.changes.append(change)
        except Exception as error:  # noqa: BLE001 the test looks at it
            self.error = error

    def take(self, count: int) -> list[tuple[int, Row]]:
        """The next so many changes, without their versions, sorted."""
        until(lambda: len(self.changes) >= count or self.error is not None,
              lambda: (count, self.changes))
        assert self.error is None, self.error
        taken, self.changes[:count] = self.changes[:count], []
        return sorted((each.diff, tuple(each.row.values())) for each in taken)

    def close(self) -> None:
        """Let it end; nothing may be left that was not taken."""
        self._subscription.close()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()
        assert self.changes == []
