"""Following a view in the background, for tests."""

import threading
from typing import Any

from quipu.pipeline.spark.statements.pipeline import Pipeline
from quipu.pipeline.spark.statements.subscribe import RowChange
from tests.harness.progress import wait_for

Row = tuple[Any, ...]


class Follower:
    """SUBSCRIBE in a thread of its own."""

    def __init__(self, pipeline: Pipeline, view: str, *, snapshot: bool = True) -> None:
        self.changes: list[RowChange] = []
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
        wait_for(lambda: len(self.changes) >= count or self.error is not None,
                 progress=lambda: len(self.changes), what=lambda: (count, self.changes))
        assert self.error is None, self.error
        taken, self.changes[:count] = self.changes[:count], []
        return sorted((each.diff, tuple(each.row.values())) for each in taken)

    def close(self) -> None:
        """Let it end; nothing may be left that was not taken."""
        self._subscription.close()
        wait_for(lambda: not self._thread.is_alive())
        assert self.changes == []
