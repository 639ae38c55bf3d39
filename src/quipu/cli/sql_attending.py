"""Waiting for work that takes long, with a status line, and with Ctrl-C for that work alone.

Work is done by one thread, one piece after the other, so that connections to brokers and to Spark,
which belong to threads, are used again.  The thread that waits is free to tell how it goes, and an
interrupt meets it between two calls and never in the middle of one to Spark.
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
        self._works: Queue[Callable[[], None] | None] = Queue()

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, name="statements", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._works.put(None)

    def wait_for(self, function: Callable[[], T], status: Callable[[], str]) -> T:
        """Call `function` and wait.  Ctrl-C cancels it and raises `Interrupted`; a second Ctrl-C
        does not wait for it to end.
        """
        begun = time.monotonic()
        work = self._begin(function)
        try:
            while not work.is_done(LOOK_SECONDS):
                if (seconds := time.monotonic() - begun) > QUIET_SECONDS:
                    self._line.show(f"{seconds:.1f} s  {status()}")
        except KeyboardInterrupt:
            self.engine.cancel()
            self._line.show("cancelling")
            while not work.is_done(LOOK_SECONDS):
                pass
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

        work = self._begin(make)
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
            self.engine.cancel()
            while not work.is_done(LOOK_SECONDS):
                _drain(queue)

    def _begin(self, function: Callable[[], T]) -> _Work[T]:
        work = _Work(function)
        self._works.put(work)
        return work

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            work()
        self.engine.leave()


def _drain(queue: Queue[list[T]]) -> None:
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
