"""Runs the engine's calls on a thread, shows a status line meanwhile, and cancels them at Ctrl-C.

One thread makes all calls, one after the other, so that connections to brokers and to Spark, which
belong to threads, are reused.  A second thread gets the status from the engine, which may take
long, too.  So the main thread can always write the status line, and Ctrl-C never interrupts a call
to Spark in the middle, which would break the connection to Spark.

A call that does not end soon after it was cancelled, for example because it waits for a broker's
response, is abandoned together with its thread; a new thread makes the next calls.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from queue import Empty, Queue
from typing import Final, Generic, Self, TypeVar

from quipu.cli.sql.engine import Engine
from quipu.cli.sql.status_line import StatusLine

T = TypeVar("T")
LOOK_SECONDS: Final = 0.1  # between two looks at the status
QUIET_SECONDS: Final = 0.3  # a call that takes less shows no status
CANCEL_SECONDS: Final = 0.5  # time for a cancelled call to end
BLOCKS_MAX: Final = 16  # that may wait in the queue


class Interrupted(Exception):
    """Ctrl-C ended a statement."""


class _Call(Generic[T]):
    """A call made on another thread; keeps its result, or what it raised."""

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


class EngineRunner:
    """Runs an engine's calls on a thread and waits for them; the thread ends with the block."""

    def __init__(self, engine: Engine, line: StatusLine | None = None) -> None:
        self.engine = engine
        self._line = line if line is not None else StatusLine()
        self._works: Queue[Callable[[], None] | None]
        self._looks: Queue[Callable[[], None] | None]

    def __enter__(self) -> Self:
        self._works = self._start_thread("statements")
        self._looks = self._start_thread("status")
        return self

    def __exit__(self, *_: object) -> None:
        self._works.put(None)
        self._looks.put(None)

    def wait_for(self, function: Callable[[], T], status: Callable[[], str]) -> T:
        """Call `function` and wait.  Ctrl-C cancels it and raises `Interrupted`."""
        begun = time.monotonic()
        work = _submit(self._works, function)
        look, status_text = None, ""
        try:
            while not work.is_done(LOOK_SECONDS):
                if (seconds := time.monotonic() - begun) <= QUIET_SECONDS:
                    continue
                if look is None or look.is_done(0):
                    status_text = status_text if look is None else look.result()
                    look = _submit(self._looks, status)
                self._line.show(f"{seconds:.1f} s  {status_text}")
        except KeyboardInterrupt:
            self._line.show("cancelling")
            self._cancel(work)
            raise Interrupted from None
        finally:
            self._line.clear()
        return work.result()

    def follow(self, blocks: Iterator[T], idle: T) -> Generator[T, None, None]:
        """The items of an iterator that may block; yields `idle` while it blocks."""
        queue: Queue[list[T]] = Queue(BLOCKS_MAX)  # lists of one item; an empty list at the end
        stopping = threading.Event()

        def make() -> None:
            for block in blocks:
                queue.put([block])
                if stopping.is_set():
                    break
            queue.put([])

        work = _submit(self._works, make)
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
                _drain(queue)  # else its next `put` would block for ever
                self._cancel(work)

    def _cancel(self, work: _Call[T]) -> None:
        """Cancel a call; abandon it with its thread if it does not end soon, or at a new Ctrl-C."""
        try:
            self.engine.cancel()
            ended = work.is_done(CANCEL_SECONDS)
        except KeyboardInterrupt:
            ended = work.is_done(0)
        if not ended:
            self._works.put(None)
            self._works = self._start_thread("statements")

    def _start_thread(self, name: str) -> "Queue[Callable[[], None] | None]":
        """Start a thread that makes the calls of a queue until it gets None."""
        works: Queue[Callable[[], None] | None] = Queue()

        def serve() -> None:
            while (work := works.get()) is not None:
                work()
            self.engine.close_thread_connections()

        threading.Thread(target=serve, name=name, daemon=True).start()
        return works


def _submit(works: "Queue[Callable[[], None] | None]", function: Callable[[], T]) -> _Call[T]:
    """Put a call into the queue of a thread."""
    work = _Call(function)
    works.put(work)
    return work


def _drain(queue: Queue[list[T]]) -> None:
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
