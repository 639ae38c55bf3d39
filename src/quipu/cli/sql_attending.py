"""Waiting for work that takes long, with a status line, and with Ctrl-C for that work alone.

Work is done by one thread, one piece after the other, so that connections to brokers and to Spark,
which belong to threads, are used again.  Another thread asks how it goes, which may take long, too.
So the thread that waits is always free to tell, and an interrupt never meets it in the middle of a
call to Spark, whose connection would be of no use afterwards.

Work that does not end soon after it was cancelled, because it waits for the answer of a broker say,
is left to itself, and its thread with it; a new thread does what comes next.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from queue import Empty, Queue
from typing import Final, Generic, Self, TypeVar

from quipu.cli.sql_answers import Engine
from quipu.cli.sql_status import StatusLine

T = TypeVar("T")
LOOK_SECONDS: Final = 0.1  # how often the status is looked at
QUIET_SECONDS: Final = 0.3  # what takes less shows no status
CANCEL_SECONDS: Final = 0.5  # that work gets to end once it is cancelled
BLOCKS_MAX: Final = 16  # made before they are taken


class Interrupted(Exception):
    """Ctrl-C ended a statement."""


class _Work(Generic[T]):
    """A function to be called by another thread; what it gave or raised is kept."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._over = threading.Event()

    def __call__(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 raised again where it is waited for
            self._error = error
        finally:
            self._over.set()

    def is_done(self, wait_seconds: float) -> bool:
        return self._over.wait(wait_seconds)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]


class Attendant:
    """Has an engine do work, and waits for it; its thread ends with the `with` block."""

    def __init__(self, engine: Engine, line: StatusLine | None = None) -> None:
        self.engine = engine
        self._line = line if line is not None else StatusLine()
        self._works: Queue[Callable[[], None] | None]
        self._looks: Queue[Callable[[], None] | None]

    def __enter__(self) -> Self:
        self._works = self._employ("statements")
        self._looks = self._employ("status")
        return self

    def __exit__(self, *_: object) -> None:
        self._works.put(None)
        self._looks.put(None)

    def wait_for(self, function: Callable[[], T], status: Callable[[], str]) -> T:
        """Call `function` and wait.  Ctrl-C cancels it and raises `Interrupted`."""
        begun = time.monotonic()
        work = _given(self._works, function)
        look, told = None, ""
        try:
            while not work.is_done(LOOK_SECONDS):
                if (seconds := time.monotonic() - begun) <= QUIET_SECONDS:
                    continue
                if look is None or look.is_done(0):
                    told = told if look is None else look.result()
                    look = _given(self._looks, status)
                self._line.show(f"{seconds:.1f} s  {told}")
        except KeyboardInterrupt:
            self._line.show("cancelling")
            self._cancel(work)
            raise Interrupted from None
        finally:
            self._line.clear()
        return work.result()

    def follow(self, blocks: Iterator[T], idle: T) -> Generator[T, None, None]:
        """What comes from an iterator that may have to wait; `idle` while it does."""
        queue: Queue[list[T]] = Queue(BLOCKS_MAX)  # one item each; none at the end
        stopping = threading.Event()

        def make() -> None:
            for block in blocks:
                queue.put([block])
                if stopping.is_set():
                    break
            queue.put([])

        work = _given(self._works, make)
        try:
            while True:
                try:
                    taken = queue.get(timeout=LOOK_SECONDS)
                except Empty:
                    if work.is_done(0) and queue.empty():
                        work.result()
                        return
                    yield idle
                    continue
                if not taken:
                    return
                yield taken[0]
        finally:
            stopping.set()
            if not work.is_done(0):
                _drain(queue)  # or it could not put what it has made
                self._cancel(work)

    def _cancel(self, work: _Work[T]) -> None:
        """End work, or leave it to itself; a second Ctrl-C does not wait at all."""
        try:
            self.engine.cancel()
            ended = work.is_done(CANCEL_SECONDS)
        except KeyboardInterrupt:
            ended = work.is_done(0)
        if not ended:
            self._works.put(None)
            self._works = self._employ("statements")

    def _employ(self, name: str) -> "Queue[Callable[[], None] | None]":
        """A thread that does what it is given, until it is given None."""
        works: Queue[Callable[[], None] | None] = Queue()

        def serve() -> None:
            while (work := works.get()) is not None:
                work()
            self.engine.leave()

        threading.Thread(target=serve, name=name, daemon=True).start()
        return works


def _given(works: "Queue[Callable[[], None] | None]", function: Callable[[], T]) -> _Work[T]:
    """Have the thread that takes from a queue call a function."""
    work = _Work(function)
    works.put(work)
    return work


def _drain(queue: Queue[list[T]]) -> None:
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
