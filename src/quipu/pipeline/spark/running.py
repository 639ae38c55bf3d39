"""Streaming queries that keep running: started again, later and later, when they fail.

A query ends when its broker is gone for long, a disk is full, an executor's answer is lost.  None
of these is a reason to give up, and all of them are worth seeing: `Keeper.error` has the last one
in a sentence, until a batch gets through again.
"""

import re
import threading
import time
from collections.abc import Callable
from enum import Enum

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

PAUSE_SECONDS_MIN = 0.5
PAUSE_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 60.0
ERROR_SIZE_MAX = 2_000

_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(?P<kind>[A-Z]\w+): (?P<text>.+)$", re.MULTILINE)


class State(Enum):
    """What a query is doing."""

    RUNNING = "running"
    WAITING = "waiting"  # it failed, and will be started again
    STOPPED = "stopped"


class Keeper:
    """One query that is kept running by a thread of its own.

    Invariant: at most one query of a keeper is active at a time.
    """

    def __init__(self, name: str, begin: Callable[[], StreamingQuery]) -> None:
        self.name = name
        self.error: str | None = None
        self.restarts = 0
        self._begin = begin
        self._query: StreamingQuery | None = None
        self._pause = PAUSE_SECONDS_MIN
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"keeper of {name}", daemon=True)

    def start(self) -> None:
        """Start the query, and start it again whenever it fails."""
        self._thread.start()

    def stop(self) -> None:
        """End the query between two batches, for good."""
        self._stopping.set()
        with self._lock:
            if self._query is not None:
                self._query.stop()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS_MAX)

    @property
    def state(self) -> State:
        """What the query is doing."""
        if self._stopping.is_set():
            return State.STOPPED
        return State.RUNNING if self.error is None else State.WAITING

    def succeeded(self) -> None:
        """A batch got through: what was wrong is over."""
        self.error = None
        self._pause = PAUSE_SECONDS_MIN

    def _keep(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._lock:
                    if self._stopping.is_set():
                        return
                    self._query = self._begin()
                self._query.awaitTermination()
                if not self._stopping.is_set():
                    self.error = "the query was stopped from outside"
            except Exception as error:  # noqa: BLE001 whatever it was, the query goes on
                self.error = summary(error)
            if not self._stopping.wait(self._pause):
                self.restarts += 1
                self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)


def summary(error: BaseException) -> str:
    """The sentence in an error that came through Spark, without the stacks around it.

    Errors of Python code on executors come as text, with the traceback of the worker.
    """
    if not isinstance(error, PySparkException):
        text = str(error)
        return f"{type(error).__name__}: {text}"[:ERROR_SIZE_MAX]
    text = str(error).split("\n\nJVM stacktrace:")[0]
    found = [match for match in _PYTHON_ERROR.finditer(text)
             if not match["kind"].startswith(("Py4J", "Caused"))]
    if found:
        return found[-1]["text"][:ERROR_SIZE_MAX]
    return text.split("\n")[0][:ERROR_SIZE_MAX]


def wait_until(reached: Callable[[], bool], seconds: float, *, pause: float = 0.02) -> bool:
    """Wait for something that another thread brings about; False if the time is up."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True
