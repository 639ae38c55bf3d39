"""Work that goes on until it is told to stop: begun again, later and later, when it fails.

    keeper = Keeper("orders_by_day", work)     # work(stop) returns once `stop` is set, or raises
    keeper.start()
    keeper.state, keeper.error                 # the last thing that went wrong, in a sentence
    keeper.stop()

A streaming query ends when its broker is gone for long, a disk is full, an executor's answer is
lost.  None of these is a reason to give up, and all of them are worth seeing: `error` stays until
the work says that it got on (`succeeded`).
"""

import re
import threading
import time
from collections.abc import Callable
from enum import Enum

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from quipu.pipeline.spark.threads import leave
from quipu.pipeline.sql.secrecy import mask_addresses

PAUSE_SECONDS_MIN = 0.5
PAUSE_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.2
ERROR_SIZE_MAX = 2_000

_ORDERS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AFTER_THE_ERROR = ("\n\nJVM stacktrace:", "=== Streaming Query ===")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(?P<kind>[A-Z]\w+): (?P<text>.+)$", re.MULTILINE)


class State(Enum):
    """What a keeper's work is doing."""

    RUNNING = "running"
    WAITING = "waiting"  # it failed, and is begun again
    STOPPED = "stopped"


class Keeper:
    """Some work, in a thread of its own.  Invariant: it is never done twice at a time."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        self.name = name
        self.error: str | None = None
        self.restarts = 0
        self._work = work
        self._pause = PAUSE_SECONDS_MIN
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keeper of {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the work, for good, where it says that it may be ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS_MAX)

    @property
    def state(self) -> State:
        """What the work is doing."""
        if self._stopping.is_set() or self._thread.ident is None:
            return State.STOPPED
        return State.RUNNING if self.error is None else State.WAITING

    def succeeded(self) -> None:
        """The work got on: what was wrong is over."""
        self.error = None
        self._pause = PAUSE_SECONDS_MIN

    def _keep(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work(self._stopping)
            except Exception as error:  # noqa: BLE001 whatever it was, the work goes on
                self.error = summary(error)
                if not self._stopping.wait(self._pause):
                    self.restarts += 1
                    self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        leave()


class QueryEnded(RuntimeError):
    """Somebody else has stopped a query of ours."""


def attend(query: StreamingQuery, stop: threading.Event) -> None:
    """Stay with a query until it fails, or `stop` is set; then end it between two batches."""
    try:
        while query.isActive:
            if stop.wait(LOOK_SECONDS):
                return
        raise query.exception() or QueryEnded("the streaming query was stopped from outside")
    finally:
        query.stop()


def summary(error: BaseException) -> str:
    """The sentence in an error that came through Spark, without stacks and without passwords.

    Errors of Python code on executors come as text, with the traceback of the worker.  Whatever
    a peer has put into one, colours and other orders to a terminal are left out.
    """
    plain = _ORDERS.sub("", mask_addresses(_sentence(error)))
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


def wait_until(reached: Callable[[], bool], seconds: float, *, pause: float = 0.02) -> bool:
    """Wait for something that another thread brings about; False if the time is up."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True
