"""A world: machines on one loop and one network, watched after every step, decided by one seed.

    World     the loop, the network, the machines, the checkers, the trace
    Machine   one computer: a disk and a clock that last, and the process that runs on it now
    Program   what a process runs: a node, or a part of one

A world has two phases.  First faults happen, and nothing may ever be wrong; then it heals, and
within a bound everything must work again.

Invariants
    G1  what happens depends on the seed and on the program alone
    G2  after every step every checker looks at the machine that made it
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from quipu.model.errors import QuipuError
from quipu.model.ids import TimestampMs
from quipu.runtime import spawn
from quipu.runtime.sim_disk import SimDisk
from quipu.sim.dice import Dice
from quipu.sim.disk import DiskWorker
from quipu.sim.loop import OWNER, Life, Process, SimLoop
from quipu.sim.net import Door, SimNet
from quipu.sim.trace import Trace

BEGAN_MS: Final = 1_700_000_000_000
ASK_SECONDS: Final = 0.1  # how often it is looked whether a world has come where it should
DRIFT_MAX: Final = 0.002  # of monotonic clocks; quartz is a hundred times better


class Violation(AssertionError):
    """Something that must never be so was so."""


class Program(Protocol):
    """What a process runs."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Checker(Protocol):
    """Looks for something that must never be so."""

    def look(self, machine: "Machine | None") -> None:
        """Raise `Violation`, naming the invariant; only `machine` (None: the world) has moved."""
        ...


class SimClock:
    """A machine's clock: the wall's may be set, the monotonic one drifts (sim/loop.py)."""

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
        self.is_corrupt = False  # what is on its disk is not what was written
        self.process: Process | None = None
        self.program: Program | None = None
        self.backup: SimDisk | None = None  # the disk as it once was
        self.start_error: QuipuError | None = None  # why it did not start, if the disk refused
        self._make = make

    @property
    def door(self) -> Door:
        assert self.process is not None
        return self.world.net.door(self.process, self.name)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.life is Life.RUNNING

    @property
    def is_dead(self) -> bool:
        return self.process is None or self.process.life is Life.DEAD

    def tell(self, what: str, about: object = "") -> None:
        self.world.trace.add(self.world.loop.now, self.name, what, about)

    def boot(self) -> None:
        """Start a process."""
        assert self.is_dead, self.name
        self.boots += 1
        self.tell("boot", self.boots)
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
            self.tell("no start", error)
            self.start_error = error
            self.kill()
            return
        self.is_up = True
        self.tell("started")

    def stop(self) -> None:
        """Stop in order; the machine is dead when the program has ended."""
        assert self.process is not None
        self.tell("stop")
        self.is_stopping = True
        self.process.run(self._stop(), "stop")

    async def _stop(self) -> None:
        assert self.program is not None
        await self.program.stop()
        self.kill()

    def kill(self) -> None:
        """SIGKILL: the process is gone, what it wrote is not."""
        self._end("kill")
        self.disk.kill()

    def lose_power(self) -> None:
        """The process is gone, and of what was not synced any part."""
        self._end("power off")
        self.disk.crash(self.dice)

    def lose_disk(self) -> None:
        """The process is gone, and so is everything that it ever wrote."""
        self._end("lost disk")
        self.disk = SimDisk()
        self.disk.worker = self.worker
        self.is_corrupt = False

    def back_up(self) -> None:
        """While it is off: somebody copies the disk."""
        assert self.is_dead, self.name
        self.backup = self.disk.copy_of_all()

    def restore(self) -> None:
        """The process is gone, and the disk is what it was when it was last backed up."""
        assert self.backup is not None
        self._end("old disk")
        self.disk = self.backup.copy_of_all()
        self.disk.worker = self.worker

    def corrupt(self) -> None:
        """While it is off: a bit of what is stored flips."""
        assert self.is_dead, self.name
        path = self.dice.choose(self.disk.files())
        position = self.dice.below(self.disk.size(path))
        self.tell("flip", f"{path} at {position}")
        self.disk.flip(path, position, 1 << self.dice.below(8))
        self.is_corrupt = True

    def _end(self, how: str) -> None:
        assert self.process is not None
        if self.process.life is not Life.DEAD:
            self.tell(how)
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
        self.tell("pause")
        self.process.pause()

    def resume(self) -> None:
        assert self.process is not None
        self.tell("resume")
        self.process.resume()


class World:
    """Everything that one seed decides."""

    def __init__(self, seed: int, *, tell: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.dice = Dice(seed)
        self.loop = SimLoop()  # type: ignore[abstract]  # what it leaves out is refused
        self.trace = Trace(tell=tell)
        self.net = SimNet(self.loop, self.dice.fork("net"), self.trace)
        self.machines: dict[str, Machine] = {}
        self.checkers: list[Checker] = []
        self.processes: list[Process] = []
        self.allowed_errors: tuple[str, ...] = ()  # parts of log lines that faults explain
        self.trap: Callable[[str, str], None] | None = None  # waits for something to happen
        self.net.notify = self.happened
        self.outside = Process(self.loop, "outside")  # clients and faults; it never dies
        self.processes.append(self.outside)
        self.loop.after_step = self._after_step
        self._failure: BaseException | None = None

    def machine(self, name: str, make: Callable[[Machine], Program]) -> Machine:
        """Add a computer; it is off."""
        self.machines[name] = machine = Machine(self, name, make)
        return machine

    def tell(self, what: str, about: object = "") -> None:
        self.trace.add(self.loop.now, "world", what, about)

    def happened(self, what: str, name: str) -> None:
        """A sync began, a message left, a client was answered: by machine `name`."""
        if self.trap is not None:
            self.trap(what, name)

    def run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run something outside of all machines; if it fails, so does the world."""
        self.outside.run(self._guarded(coroutine, name), name)

    def run_on(self, machine: Machine, coroutine: Coroutine[Any, Any, None], name: str
               ) -> asyncio.Task[None]:
        """Run something in the process of `machine`, as a part of it; it may vanish with it."""
        assert machine.process is not None
        return machine.process.run(self._guarded(coroutine, name), name)

    async def _guarded(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 it is raised again, by whoever runs the world
            self.tell("failed", f"{name}: {error!r}")
            self._failure = self._failure or error

    def run_for(self, seconds: float) -> None:
        self._run(self.loop.now + seconds)

    def run_until(self, done: Callable[[], bool], seconds_max: float, what: str) -> None:
        """Run until `done`, asked now and then; a `Violation` if that takes too long."""
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
            raise Violation(f"a callback of {owner} failed: {failure['message']}") from (
                failure.get("exception"))
        machine = None if owner is None else self.machines.get(owner.name)
        for checker in self.checkers:
            checker.look(machine)

    @contextmanager
    def _watched_log(self) -> Iterator[None]:
        """What nodes log is part of the trace; an error there is a violation."""
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
        told = f"{text} {error!r}"
        machine = self.machines.get(owner.name)
        if machine is not None and machine.is_corrupt:
            return  # it may say what it likes, and must not serve what it has
        if record.levelno >= logging.ERROR and not any(
                each in told for each in self.allowed_errors):
            self._failure = self._failure or Violation(f"{owner.name} logged: {text}: {error!r}")
            self._failure.__cause__ = error

    def end(self) -> None:
        """Let go of everything."""
        for process in self.processes:
            process.kill()
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
