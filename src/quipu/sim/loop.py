"""An asyncio loop in virtual time, whose work belongs to processes that can crash and pause.

    SimLoop   runs one callback at a time; when nothing is ready, time jumps to the next timer
    Process   one process of a simulated machine, with its own callbacks, tasks and timers

A callback belongs to the process in whose context it was scheduled; what it schedules belongs to
the same process.  The world's own callbacks (network, faults, checkers) belong to no process.

Invariants
    sim.L1  callbacks run in the order of their time, and at one time in the order in which they
            were scheduled: the same calls give the same run
    sim.L2  no callback of a dead process runs; those of a paused process wait
    sim.L3  no real socket and no real thread is used while the loop runs
    sim.L4  at one point of virtual time at most `STEPS_AT_ONCE_MAX` callbacks run

A process has its own time: `time()` and timers drift with its clock.
"""

import asyncio
import heapq
import math
import socket
import sys
import threading  # noqa: TID251 only to forbid it
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from itertools import count
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_AT_ONCE_MAX: Final = 100_000
EXECUTOR_SECONDS: Final = 0.001  # duration of work that real nodes run in a thread
TASKS_KEPT_MIN: Final = 64


class Livelock(AssertionError):
    """Callbacks run without end and time does not advance (sim.L4)."""


class Life(Enum):
    """The state of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One process of one simulated machine."""

    def __init__(self, loop: "SimLoop", name: str, *, drift: float = 0.0) -> None:
        self.name = name
        self.life = Life.RUNNING
        self.drift = drift  # how much faster its clock runs: 0.01 is one percent
        self.context = copy_context()
        self.context.run(OWNER.set, self)
        self.held: list[SimHandle] = []  # callbacks that wait for the end of a pause
        self._loop = loop
        self._began = loop.now
        self._tasks: list[asyncio.Task[Any]] = []  # references: they must not be collected
        self._tasks_max = TASKS_KEPT_MIN

    def __repr__(self) -> str:
        return f"<{self.name} {self.life.value}>"

    def local(self, now: float) -> float:
        """The time of this process's monotonic clock at `now`."""
        return now + (now - self._began) * self.drift

    def universal(self, local: float) -> float:
        """The first world time at which this process's clock shows `local` or more."""
        when = (local + self._began * self.drift) / (1.0 + self.drift)
        while self.local(when) < local:  # by rounding, a timer would fire slightly too early
            when = math.nextafter(when, math.inf)
        return when

    def run(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task that belongs to this process."""
        return self._loop.create_task(coroutine, name=name, context=self.context.copy())

    def pause(self) -> None:
        """Stop running callbacks, as SIGSTOP does; time advances."""
        assert self.life is Life.RUNNING, self
        self.life = Life.PAUSED

    def resume(self) -> None:
        assert self.life is Life.PAUSED, self
        self.life = Life.RUNNING
        held, self.held = self.held, []
        self._loop.take_back(held)

    def kill(self) -> None:
        """End the process, as SIGKILL does: none of its callbacks runs again (sim.L2)."""
        self.life = Life.DEAD
        self.held = []

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it is done, or until the world ends."""
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tasks_max = max(TASKS_KEPT_MIN, 2 * len(self._tasks))

    def bury(self) -> list[asyncio.Task[Any]]:
        """Release the tasks of a dead process; return those that never ended."""
        assert self.life is Life.DEAD, self
        tasks = [task for task in self._tasks if not task.done()]
        self._tasks = []
        hook, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            for task in tasks:
                # Its process was ended on purpose.
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                with suppress(BaseException):
                    task.get_coro().close()
        finally:
            sys.unraisablehook = hook
        return tasks


OWNER: ContextVar[Process | None] = ContextVar("OWNER", default=None)
NOBODYS: Final = Context()  # of the world's own callbacks: belongs to no process


class SimHandle(asyncio.TimerHandle):
    """A callback, and the process that it belongs to."""

    __slots__ = ("owner",)

    owner: Process | None

    def __lt__(self, other: object) -> bool:
        raise TypeError("handles are ordered by the loop's heap, never by themselves")


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds, of the world; `time` is that of the current process
        self.step_count = 0
        self.after_step: Callable[[Process | None], None] = _no_step
        self.failures: list[dict[str, Any]] = []  # uncaught exceptions of callbacks
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._number = count()
        self._is_closed = False
        self._steps_at_once = 0

    # -- running

    def run_until(self, deadline: float, *, done: Callable[[], bool] | None = None) -> bool:
        """Run until `deadline`, or until `done()`; return whether it was done."""
        asyncio._set_running_loop(self)  # noqa: SLF001 as every loop does
        try:
            with _no_real_world():
                while done is None or not done():
                    if not self._step(deadline):
                        self.now = max(self.now, deadline)
                        return done is not None and done()
            return True
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def _step(self, deadline: float) -> bool:
        """Run one callback that is due by `deadline`, if there is one."""
        ready = self._ready
        while True:
            if not ready and not self._jump(deadline):
                return False
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001 the loop's own business
                continue
            owner = handle.owner
            if owner is not None and owner.life is not Life.RUNNING:
                if owner.life is Life.PAUSED:
                    owner.held.append(handle)
                continue  # sim.L2
            self._steps_at_once += 1
            if self._steps_at_once > STEPS_AT_ONCE_MAX:
                raise Livelock(f"{owner} at {self.now:.6f}: {handle}")
            self.step_count += 1
            handle._run()  # noqa: SLF001
            self.after_step(owner)
            return True

    def _jump(self, deadline: float) -> bool:
        """Advance time to the next timers; False if none is due by `deadline`."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # noqa: SLF001
            heapq.heappop(timers)
        if not timers or timers[0][0] > deadline:
            return False
        when = timers[0][0]
        if when > self.now:
            self.now = when
            self._steps_at_once = 0
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])
        return True

    def take_back(self, handles: list[SimHandle]) -> None:
        """Make callbacks ready that waited for the end of a pause."""
        self._ready.extend(handles)

    # -- scheduling

    def time(self) -> float:
        owner = OWNER.get()
        return self.now if owner is None else owner.local(self.now)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        handle = self._handle(self.now, callback, args, context)
        if handle.owner is None or handle.owner.life is not Life.DEAD:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts,
        context: Context | None = None,
    ) -> SimHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts,
        context: Context | None = None,
    ) -> SimHandle:
        caller = OWNER.get()  # `when` is on the caller's clock, not on that of `context`
        handle = self._handle(when, callback, args, context)
        self._push(when if caller is None else caller.universal(when), handle)
        return handle

    def universal_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts,
        context: Context | None = None,
    ) -> SimHandle:
        """`call_at` in the world's time; without a context the callback is the world's own."""
        handle = self._handle(when, callback, args, NOBODYS if context is None else context)
        self._push(when, handle)
        return handle

    def _push(self, when: float, handle: SimHandle) -> None:
        if handle.owner is None or handle.owner.life is not Life.DEAD:
            # Timers of the same time run in the order in which they were set (sim.L1).
            heapq.heappush(self._timers, (max(when, self.now), next(self._number), handle))

    def _handle(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...],
        context: Context | None,
    ) -> SimHandle:
        assert not self._is_closed, "the world has ended"
        if context is None:
            context = copy_context()
        handle = SimHandle(when, callback, args, self, context)
        handle.owner = context.get(OWNER)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers stay in the heap until their time."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # the standard library's stubs differ by version
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.keep(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` a moment later on the loop, not in a thread (sim.L3)."""
        del executor
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if not future.cancelled():
                try:
                    future.set_result(func(*args))
                except Exception as error:  # noqa: BLE001 the future raises it
                    future.set_exception(error)

        self.call_later(EXECUTOR_SECONDS, work)
        return future

    async def create_server(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        """A server without connections, for a node's metrics page."""
        del args, kwargs
        return NoServer()

    # -- other methods that asyncio calls

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: there are no async generators to close."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)


class NoServer:
    """Replaces an HTTP server: it has an address, and gets no connections."""

    def __init__(self) -> None:
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return "sim", 80

    def close(self) -> None:
        """Do nothing: no socket is open."""

    def close_clients(self) -> None:
        """Do nothing: there are no clients."""

    async def wait_closed(self) -> None:
        """Return at once."""


def _no_step(owner: Process | None) -> None:
    """The default of `after_step`: do nothing."""


def _ignore(unraisable: object) -> None:
    """Ignore exceptions that coroutines of dead processes raise when they are closed."""


def _forbidden(*args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise RuntimeError("a simulated node used a socket or a thread of the real world (sim.L3)")


@contextmanager
def _no_real_world() -> Iterator[None]:
    """Refuse to open sockets and to start threads (sim.L3)."""
    start, connect, bind = threading.Thread.start, socket.socket.connect, socket.socket.bind
    threading.Thread.start = _forbidden  # type: ignore[method-assign]
    socket.socket.connect = _forbidden  # type: ignore[method-assign]
    socket.socket.bind = _forbidden  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        socket.socket.connect = connect  # type: ignore[method-assign]
        socket.socket.bind = bind  # type: ignore[method-assign]
