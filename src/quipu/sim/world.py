"""A world: machines on one loop and one network, checked after every step, determined by one seed.

    World     the loop, the network, the object store, the machines, the checkers, the trace
    Machine   one computer: its disk and clock, which outlive processes, and the current process
    Program   what a process runs: a node, or a part of one

A world has two phases.  In the first, faults happen, and no checker may find a violation; then the
world heals, and must converge within a time limit.

Invariants
    sim.G1  a run depends only on the seed and on the program
    sim.G2  after every step every checker checks the machine that made it
"""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from quipu.model.errors import QuipuError
from quipu.model.ids import TimestampMs
from quipu.runtime import spawn
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.sim.dice import Dice
from quipu.sim.loop import OWNER, Life, Process, SimLoop
from quipu.sim.trace import Trace
from quipu.sim.twins.disk import DiskWorker
from quipu.sim.twins.net import Door, SimNet
from quipu.sim.twins.objects import SimBucket, SimStore

BEGAN_MS: Final = 1_700_000_000_000
ASK_SECONDS: Final = 0.1  # between two checks of the condition of `run_until`
DRIFT_MAX: Final = 0.002  # of monotonic clocks; real ones are a hundred times better


class Violation(AssertionError):
    """A checker found that an invariant does not hold."""


class Program(Protocol):
    """What a process runs."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Checker(Protocol):
    """Checks invariants."""

    def look(self, machine: "Machine | None") -> None:
        """Raise `Violation` with the invariant's name; only `machine` (None: the world) changed."""
        ...


class SimClock:
    """A machine's clocks: the wall clock may be set, the monotonic one drifts (sim/loop.py)."""

    def __init__(self, loop: SimLoop) -> None:
        self.step_ms = 0
        self._loop = loop

    def now_ms(self) -> TimestampMs:
        return TimestampMs(BEGAN_MS + self.step_ms + int(self._loop.time() * 1000))

    def monotonic(self) -> float:
        return self._loop.time()


class Machine:
    """One computer."""

    def __init__(self, world: "World", name: str, make: Callable[["Machine"], Program]) -> None:
        self.name = name
        self.world = world
        self.dice = world.dice.fork(f"machine/{name}")
        self.disk = SimDisk()
        self.worker = DiskWorker(world.dice.fork(f"disk/{name}"),
                                 lambda: world.happened("sync", name))
        self.disk.worker = self.worker
        self.clock = SimClock(world.loop)
        self.boots = 0
        self.is_up = False  # its program has started
        self.is_stopping = False
        self.is_corrupt = False  # a bit on its disk was flipped
        self.process: Process | None = None
        self.program: Program | None = None
        self.backup: SimDisk | None = None  # an earlier copy of the disk
        self.start_error: QuipuError | None = None  # why the program did not start
        self._make = make

    @property
    def door(self) -> Door:
        assert self.process is not None
        return self.world.net.door(self.process, self.name)

    @property
    def objects(self) -> SimStore:
        """The object store of the current process."""
        return self.world.bucket.store(self.door)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.life is Life.RUNNING

    @property
    def is_dead(self) -> bool:
        return self.process is None or self.process.life is Life.DEAD

    def record(self, what: str, about: object = "") -> None:
        self.world.trace.add(self.world.loop.now, self.name, what, about)

    def boot(self) -> None:
        """Start a process."""
        assert self.is_dead, self.name
        self.boots += 1
        self.record("boot", self.boots)
        drift = self.dice.between(-DRIFT_MAX, DRIFT_MAX)
        self.process = process = Process(self.world.loop, self.name, drift=drift)
        self.world.processes.append(process)
        self.is_up = self.is_stopping = False
        self.start_error = self.program = None
        process.run(self._start(), "start")

    async def _start(self) -> None:
        self.program = self._make(self)
        try:
            await self.program.start()
        except QuipuError as error:
            self.record("no start", error)
            self.start_error = error
            self.kill()
            return
        self.is_up = True
        self.record("started")

    def stop(self) -> None:
        """Stop the program cleanly; then the process ends."""
        assert self.process is not None
        self.record("stop")
        self.is_stopping = True
        self.process.run(self._stop(), "stop")

    async def _stop(self) -> None:
        assert self.program is not None
        await self.program.stop()
        self.kill()

    def kill(self) -> None:
        """End the process, as SIGKILL does; what it wrote stays."""
        self._end("kill")
        self.disk.kill()

    def lose_power(self) -> None:
        """End the process, and lose any part of what was not synced."""
        self._end("power off")
        self.disk.crash(self.dice)

    def lose_disk(self) -> None:
        """End the process, and replace its disk by an empty one."""
        self._end("lost disk")
        self.disk = SimDisk()
        self.disk.worker = self.worker
        self.is_corrupt = False

    def back_up(self) -> None:
        """Copy the disk while the machine is off."""
        assert self.is_dead, self.name
        self.backup = self.disk.copy_of_all()

    def restore(self) -> None:
        """End the process, and replace its disk by the last backup."""
        assert self.backup is not None
        self._end("old disk")
        self.disk = self.backup.copy_of_all()
        self.disk.worker = self.worker

    def corrupt(self) -> None:
        """Flip a stored bit while the machine is off."""
        assert self.is_dead, self.name
        path = self.dice.choose(self.disk.files())
        position = self.dice.below(self.disk.size(path))
        self.record("flip", f"{path} at {position}")
        self.disk.flip(path, position, 1 << self.dice.below(8))
        self.is_corrupt = True

    def _end(self, how: str) -> None:
        assert self.process is not None
        if self.process.life is not Life.DEAD:
            self.record(how)
        self.process.kill()
        self.is_up = False
        net = self.world.net
        for server in [each for each in net.clients_at.values() if each.door.host == self.name]:
            server.died()
            server.stop_accepting()
        for peers in [each for each in net.peers_at.values() if each.door.host == self.name]:
            peers.died(is_silent=how != "kill")

    def pause(self) -> None:
        assert self.process is not None
        self.record("pause")
        self.process.pause()

    def resume(self) -> None:
        assert self.process is not None
        self.record("resume")
        self.process.resume()


class World:
    """Machines, network, object store, checkers and trace of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.dice = Dice(seed)  # the only source of random values (sim.G1)
        self.loop = SimLoop()  # type: ignore[abstract]  # methods left out must not be called
        self.trace = Trace(echo=echo)
        self.net = SimNet(self.loop, self.dice.fork("net"), self.trace)
        self.bucket = SimBucket(  # the object store, which outlives every machine
            self.net, self.dice.fork("objects"),
            lambda: BEGAN_MS + int(self.loop.now * 1000))
        self.machines: dict[str, Machine] = {}
        self.checkers: list[Checker] = []
        self.processes: list[Process] = []
        self.allowed_errors: tuple[str, ...] = ()  # parts of error lines that faults may cause
        self.trap: Callable[[str, str], None] | None = None  # called by `happened`
        self.net.notify = self.happened
        self.outside = Process(self.loop, "outside")  # runs clients and faults; never ends
        self.processes.append(self.outside)
        self.loop.after_step = self._after_step
        self._failure: BaseException | None = None

    def machine(self, name: str, make: Callable[[Machine], Program]) -> Machine:
        """Add a machine; it is off."""
        self.machines[name] = machine = Machine(self, name, make)
        return machine

    def record(self, what: str, about: object = "") -> None:
        self.trace.add(self.loop.now, "world", what, about)

    def happened(self, what: str, name: str) -> None:
        """Notify the trap that machine `name` began a sync, sent a message or acknowledged."""
        if self.trap is not None:
            self.trap(what, name)

    def run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine outside of all machines; if it raises, the world fails."""
        self.outside.run(self._guarded(lambda: coroutine, name), name)

    def run_on(
        self, machine: Machine, work: Callable[[], Awaitable[None]], name: str
    ) -> asyncio.Task[None]:
        """Run `work` in the process of `machine`, unless the process ends before."""
        assert machine.process is not None
        return machine.process.run(self._guarded(work, name), name)

    async def _guarded(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 `_after_step` raises it again
            self.record("failed", f"{name}: {error!r}")
            self._failure = self._failure or error

    def run_for(self, seconds: float) -> None:
        self._run(self.loop.now + seconds)

    def run_until(self, done: Callable[[], bool], seconds_max: float, what: str) -> None:
        """Run until `done()`; raise `Violation` if that takes too long."""
        deadline = self.loop.now + seconds_max
        while not done():
            if self.loop.now >= deadline:
                raise Violation(f"not {what} within {seconds_max:g} s")
            self._run(self.loop.now + ASK_SECONDS)

    def _run(self, deadline: float) -> None:
        with self._watched_log():
            self.loop.run_until(deadline)

    def _after_step(self, owner: Process | None) -> None:
        if self._failure is not None:
            raise self._failure
        if self.loop.failures:
            failure = self.loop.failures[0]
            if isinstance(found := failure.get("exception"), Violation):
                raise found  # of a checker that the callback called
            raise Violation(f"a callback of {owner} failed: {failure['message']}") from (
                failure.get("exception"))
        machine = None if owner is None else self.machines.get(owner.name)
        for checker in self.checkers:
            checker.look(machine)  # sim.G2

    @contextmanager
    def _watched_log(self) -> Iterator[None]:
        """Add the log lines of nodes to the trace; a logged error is a violation."""
        logger = logging.getLogger("quipu")
        watch = _LogWatch(self)
        level, propagate = logger.level, logger.propagate
        logger.addHandler(watch)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(watch)
            logger.setLevel(level)
            logger.propagate = propagate

    def logged(self, record: logging.LogRecord) -> None:
        owner = OWNER.get()
        if owner is None or owner.life is Life.DEAD:
            return
        text = record.getMessage()
        self.trace.add(self.loop.now, owner.name, record.levelname.lower(), text)
        error = record.exc_info[1] if record.exc_info else None
        text_and_error = f"{text} {error!r}"
        machine = self.machines.get(owner.name)
        if machine is not None and machine.is_corrupt:
            return  # it may log any error; only serving damaged data is a violation
        if record.levelno >= logging.ERROR and not any(
                each in text_and_error for each in self.allowed_errors):
            self._failure = self._failure or Violation(f"{owner.name} logged: {text}: {error!r}")
            self._failure.__cause__ = error

    def end(self) -> None:
        """End all processes and release all resources."""
        for process in self.processes:
            process.kill()
        with self._watched_log(), warnings.catch_warnings():  # what their tasks say is of no use
            warnings.simplefilter("ignore", RuntimeWarning)
            for process in self.processes:
                spawn.disown(process.bury())
        self.loop.close()
        self.checkers.clear()
        for machine in self.machines.values():
            machine.program = None


class _LogWatch(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.logged(record)
