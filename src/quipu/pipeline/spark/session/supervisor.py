"""Runs a function in a thread, and restarts it with growing pauses when it fails, until stopped.

    supervisor = Supervisor("orders_by_day", work)   # work(stop) returns once `stop` is set
    supervisor.start()
    supervisor.state, supervisor.error               # the last error, as one sentence
    supervisor.stop()

A streaming query fails if its broker is down for long, a disk is full, or an executor's result is
lost.  After each of these it is restarted, and the error is shown: `error` is kept until the work
calls `succeeded`.

Invariants
    pipeline.Q1  a supervisor's work is never run by two threads at a time, nor after `stop` has
                 returned
"""

import re
import threading
from collections.abc import Callable
from enum import Enum

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from quipu.pipeline.spark.session.threads import close_thread_connections
from quipu.pipeline.sql.secrets import mask_addresses

PAUSE_SECONDS_MIN = 0.5
PAUSE_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 60.0
POLL_SECONDS = 0.2
ERROR_SIZE_MAX = 2_000

_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AFTER_THE_ERROR = ("\n\nJVM stacktrace:", "=== Streaming Query ===")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(?P<kind>[A-Z]\w+): (?P<text>.+)$", re.MULTILINE)


class RunState(Enum):
    """The state of supervised work."""

    RUNNING = "running"
    WAITING = "waiting"  # it failed, and is restarted
    STOPPED = "stopped"


class Supervisor:
    """Runs some work in a thread of its own, and restarts it when it fails."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        self.name = name
        self.error: str | None = None
        self.restarts = 0
        self._work = work
        self._pause = PAUSE_SECONDS_MIN
        self._stopping = threading.Event()
        self._thread = threading.Thread(  # one and no other, which starts once: pipeline.Q1
            target=self._run, name=f"supervisor of {name}", daemon=True)

    def start(self) -> None:
        """Start the thread; a supervisor that was stopped cannot be started again."""
        self._thread.start()

    def stop(self) -> None:
        """Set the work's `stop`, and wait up to `STOP_SECONDS_MAX` for it to return."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS_MAX)

    @property
    def state(self) -> RunState:
        """The state of the work."""
        if self._stopping.is_set() or self._thread.ident is None:
            return RunState.STOPPED
        return RunState.RUNNING if self.error is None else RunState.WAITING

    def succeeded(self) -> None:
        """Forget the last error, because the work has made progress since."""
        self.error = None
        self._pause = PAUSE_SECONDS_MIN

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work(self._stopping)
            except Exception as error:  # noqa: BLE001 whatever it was, the work is restarted
                self.error = summary(error)
                if not self._stopping.wait(self._pause):
                    self.restarts += 1
                    self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        close_thread_connections()


class QueryEnded(RuntimeError):
    """A streaming query of the pipeline was stopped from outside."""


def await_termination(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until a query fails, which is raised, or `stop` is set; then stop the query."""
    try:
        while query.isActive:
            if stop.wait(POLL_SECONDS):
                return
        raise query.exception() or QueryEnded("the streaming query was stopped from outside")
    finally:
        query.stop()


def summary(error: BaseException) -> str:
    """The sentence of an error that came through Spark, without stacks and without passwords.

    Errors of Python code on executors come as text, with the traceback of the worker.  Control
    characters for terminals, which a peer may have put into an error, are removed.
    """
    plain = _TERMINAL_CODES.sub("", mask_addresses(_sentence(error)))
    return "".join(each if each.isprintable() or each == "\n" else " " for each in plain)


def _sentence(error: BaseException) -> str:
    text = str(error)
    if not isinstance(error, PySparkException):
        return (text or type(error).__name__)[:ERROR_SIZE_MAX]
    for end in _AFTER_THE_ERROR:
        text = text.split(end, maxsplit=1)[0]
    if found := _PYTHON_ERROR.findall(text):
        return str(found[-1][1])[:ERROR_SIZE_MAX]
    return text.split("\n", maxsplit=1)[0][:ERROR_SIZE_MAX]
