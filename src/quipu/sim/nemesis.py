"""Injects faults of machines, links, disks, clocks and stores in the first phase of a world.

Each fault is one method, called at a random time, and undone by itself after a while; `heal` undoes
all of them at once.  `Malice` says which faults a world has.

Random times rarely hit the critical moment, so there are ambushes: a fault that waits until a sync
is running, an acknowledgement reaches a client, or a message is sent, and then happens.  And half
of the faults of one machine happen to the one that matters most at that time: a leader.

A mishap is a loss that the cluster guarantees to survive on one machine at a time: of data that was
acknowledged and not flushed, of a whole disk, or of one bit, until the disk is replaced.  It
happens only while all machines are in sync, and until they are again no other machine is touched.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quipu.runtime.disks.disk import DiskError
from quipu.sim.dice import Dice
from quipu.sim.loop import Life
from quipu.sim.twins.net import CALM, Weather
from quipu.sim.twins.objects import NO_FAULTS, STORE_HOST, StoreFaults
from quipu.sim.world import Machine, World
from quipu.storage.directory.directory_names import is_log

SYNC_ERRORS_IN: Final = "data/t-"  # not the metadata: a node that cannot keep that must stop
CLOCK_STEP_MS_MAX: Final = 40 * 60_000  # beyond an hour records are refused for their time
BAD_WEATHER: Final = Weather(
    delay_min=0.0005, delay_max=0.03, loss=0.03, duplicate=0.03, reorder=0.05)
SLOW_LINKS: Final = Weather(delay_min=0.02, delay_max=0.2, bytes_per_second=40_000.0)
LONG_DELAYS: Final = Weather(delay_min=0.001, delay_max=0.4, reorder=0.2)
SLOW_STORE: Final = StoreFaults(slow=0.5, slow_seconds_max=6.0)
REFUSING_STORE: Final = StoreFaults(refuse=0.5)
FORGETFUL_STORE: Final = StoreFaults(slow=0.1, refuse=0.1, lose_answer=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Malice:
    """Which faults happen, and how often."""

    pause_min: float = 0.1  # seconds between two faults
    pause_max: float = 1.2
    haste: float = 1.0  # divides the duration of faults
    down_max: int = 1  # machines that the nemesis stops or pauses at the same time
    kills: bool = True
    power_losses: bool = True
    stops: bool = True
    pauses: bool = True
    cuts: bool = True
    storms: bool = True
    slow_disks: bool = True
    full_disks: bool = False
    failing_syncs: bool = False
    failing_logs: bool = False
    clock_steps: bool = True
    ambushes: bool = True
    outages: bool = False  # all machines at once
    mishaps: bool = False  # power losses where nothing is flushed
    lost_disks: bool = False
    voteless: tuple[str, ...] = ()  # nodes of a chain without voters
    old_disks: bool = False  # machines come back with an earlier copy of their disk
    store_faults: bool = False  # of the object store, and of the links to it


class Nemesis:
    """Injects all faults of one world."""

    def __init__(
        self, world: World, malice: Malice,
        favourite: Callable[[], Machine | None] = lambda: None,
        is_whole: Callable[[], bool] = lambda: False,
    ) -> None:
        self.count = 0
        self._favourite = favourite  # the machine that matters most at this time
        self._is_whole = is_whole  # whether all machines are in sync, so that one may be lost
        self._is_guarded = False  # the world is recovering from a mishap
        self._cut_count = 0  # cuts that are not undone yet
        self._world = world
        self._malice = malice
        self._dice: Dice = world.dice.fork("nemesis")
        self._stopped = False
        self._hit: dict[str, None] = {}  # machines that the nemesis has stopped or paused
        faults: list[tuple[bool, Callable[[], None]]] = [
            (malice.kills, self.kill), (malice.power_losses, self.power_off),
            (malice.stops, self.stop_in_order), (malice.pauses, self.pause),
            (malice.cuts, self.cut_two), (malice.cuts, self.isolate),
            (malice.cuts, self.cut_one_way), (malice.storms, self.storm),
            (malice.slow_disks, self.slow_disk), (malice.full_disks, self.fill_disk),
            (malice.failing_syncs, self.fail_syncs),
            (malice.clock_steps, self.step_clock), (malice.outages, self.outage),
            (malice.ambushes, self.ambush), (malice.ambushes, self.ambush),
            (malice.failing_logs, self.fail_log), (malice.failing_logs, self.fail_log),
            (malice.store_faults, self.fail_store), (malice.store_faults, self.cut_store),
            *[(malice.store_faults and malice.pauses, self.depose)] * 4,
        ]
        self._faults = [fault for is_on, fault in faults if is_on]
        has_mishaps = malice.mishaps or malice.lost_disks or malice.old_disks
        self._faults += [self.mishap] * (len(self._faults) // 3 if has_mishaps else 0)

    async def run(self) -> None:
        """Cause one fault after another, until `heal`."""
        malice, dice = self._malice, self._dice
        while not self._stopped:
            await asyncio.sleep(dice.between(malice.pause_min, malice.pause_max))
            if not self._stopped:
                self.count += 1
                if self._is_guarded and not self._hit and self._is_sound() and self._is_whole():
                    self._is_guarded = False
                dice.choose(self._faults)()

    def heal(self) -> None:
        """Undo all faults: all machines run, all links are open and fast."""
        self._stopped = True
        world = self._world
        world.trap = None
        world.record("heal")
        world.net.heal()
        world.net.climate = CALM
        world.net.set_weather(CALM)
        world.bucket.faults = NO_FAULTS
        for machine in world.machines.values():
            machine.worker.slowness = 1.0
            machine.disk.broken = None
            if machine.is_corrupt:
                machine.lose_disk()
            if machine.disk.capacity is not None or machine.disk.sync_error is not None:
                machine.disk.capacity = machine.disk.sync_error = None
                if not machine.is_dead:
                    machine.kill()  # logs that failed are opened again at a start
            self._revive(machine)

    def _revive(self, machine: Machine) -> None:
        self._hit.pop(machine.name, None)
        if machine.is_stopping and not machine.is_dead:
            machine.kill()  # it takes too long
        if machine.is_dead:
            machine.boot()
        elif machine.process is not None and machine.process.life is Life.PAUSED:
            machine.resume()

    # -- machines

    def _victim(self) -> Machine | None:
        """A running machine; None if enough are down already."""
        running = [each for each in self._world.machines.values()
                   if each.is_running and each.name not in self._hit]
        if not running or self._is_guarded or len(self._hit) >= self._malice.down_max:
            return None
        favourite = self._favourite()
        if favourite in running and self._dice.flip(0.5):
            return favourite
        return self._dice.choose(running)

    def _down(self, machine: Machine, seconds: float) -> None:
        self._hit[machine.name] = None
        self._later(seconds, lambda: self._revive(machine))

    def _while(self) -> float:
        """A random duration of a fault: often short, sometimes long."""
        return self._dice.choose([0.1, 0.5, 2.0, 6.0]) * self._dice.random()

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        loop = self._world.loop

        def unless_healed() -> None:
            if not self._stopped:
                undo()

        loop.universal_at(loop.now + seconds / self._malice.haste, unless_healed)

    def kill(self) -> None:
        if (machine := self._victim()) is not None:
            machine.kill()
            if self._malice.old_disks and self._dice.flip(0.5):
                machine.back_up()
            self._down(machine, self._while())

    def power_off(self) -> None:
        if (machine := self._victim()) is not None:
            machine.lose_power()
            self._down(machine, self._while())

    def stop_in_order(self) -> None:
        """Stop a machine cleanly; kill it if that takes too long."""
        machine = self._victim()
        if machine is None or not machine.is_up:
            return
        machine.stop()
        self._down(machine, self._dice.between(1.0, 12.0))

    def pause(self) -> None:
        if (machine := self._victim()) is not None:
            machine.pause()
            self._down(machine, self._while())

    def outage(self) -> None:
        """Every machine loses power, or its process is killed, at the same time."""
        if self._is_guarded:
            return
        for machine in self._world.machines.values():
            if not machine.is_dead:
                if self._malice.power_losses and self._dice.flip(0.5):
                    machine.lose_power()
                else:
                    machine.kill()
            self._down(machine, self._while())

    def ambush(self) -> None:
        """Wait for a critical moment, and cause a fault then."""
        kind = self._dice.choose(["sync", "ack", "send"])
        loop = self._world.loop

        def spring(what: str, name: str) -> None:
            if what == kind and name in self._world.machines and self._dice.flip(0.5):
                self._world.trap = None
                self._world.record("ambush", f"{what} {name}")
                delay = self._dice.choose([0.0, 0.0, self._dice.between(0, 0.003)])
                loop.universal_at(loop.now + delay, lambda: self._strike(name))

        self._world.trap = spring

    def _strike(self, name: str) -> None:
        machine = self._world.machines[name]
        if self._stopped or self._is_guarded:
            return
        if self._malice.outages and self._dice.flip(0.5):
            self.outage()
        elif machine.is_running and len(self._hit) < self._malice.down_max:
            if self._malice.power_losses and self._dice.flip(0.7):
                machine.lose_power()
            else:
                machine.kill()
            self._down(machine, self._while())
            if self._dice.flip(0.5):  # and another one, before the first is detected
                self._later(self._dice.between(0, 0.1), self._dice.choose([self.kill, self.pause]))

    def mishap(self) -> None:
        """One machine loses unflushed data or its disk, while all others are in sync."""
        if self._is_guarded or self._hit or self._cut_count or not self._is_whole():
            return
        self._is_guarded = True
        self._world.trap = None
        if self._malice.lost_disks and self._malice.voteless and self._dice.flip(0.3):
            self._outage_with_lost_disk(self._dice.choose(self._malice.voteless))
            return
        machine = self._dice.choose(list(self._world.machines.values()))
        if machine.backup is not None and self._dice.flip(0.7):
            machine.restore()
        elif not (self._malice.lost_disks or self._malice.mishaps):
            machine.kill()
            machine.back_up()
        elif self._malice.lost_disks and (not self._malice.mishaps or self._dice.flip(0.5)):
            if self._dice.flip(0.5):
                machine.lose_disk()
            else:
                machine.kill()
                machine.corrupt()
                self._later(self._dice.between(0.5, 4.0), lambda: self._replace_disk(machine))
        else:
            machine.lose_power()
        self._down(machine, self._while())

    def _outage_with_lost_disk(self, name: str) -> None:
        """Kill all processes; one comes back with an empty disk before the rest of its chain."""
        chain, _, _ = name.rpartition("-")
        for machine in self._world.machines.values():
            if machine.name == name:
                machine.lose_disk()
            else:
                machine.kill()
            is_late = machine.name != name and machine.name.startswith(f"{chain}-")
            self._down(machine, self._malice.haste * self._dice.between(2, 5) if is_late else 0.1)

    def _is_sound(self) -> bool:
        return not any(machine.is_corrupt for machine in self._world.machines.values())

    def _replace_disk(self, machine: Machine) -> None:
        machine.lose_disk()
        self._revive(machine)

    # -- links

    def _two(self) -> tuple[str, str]:
        names = self._dice.shuffled(sorted(self._world.machines))
        return names[0], names[1 % len(names)]

    def cut_two(self) -> None:
        """Cut both directions between two machines."""
        one, other = self._two()
        self._cut([(one, other), (other, one)])

    def cut_one_way(self) -> None:
        """Cut one direction between two machines."""
        self._cut([self._two()])

    def isolate(self) -> None:
        """Cut one machine off from the others; half of the time from clients, too."""
        alone = self._dice.choose(sorted(self._world.machines))
        others = [name for name in sorted(self._world.machines) if name != alone]
        if self._dice.flip(0.5):
            others = sorted({*others, *self._world.net.hosts()} - {alone})
        self._cut([pair for other in others for pair in ((alone, other), (other, alone))])

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        if self._is_guarded:
            return
        net = self._world.net
        self._cut_count += 1
        for source, target in pairs:
            net.cut(source, target)

        def undo() -> None:
            self._cut_count -= 1
            for source, target in pairs:
                net.mend(source, target)

        self._later(self._while(), undo)

    def depose(self) -> None:
        """Pause a machine that copies a segment, until others have taken over."""
        def spring(what: str, name: str) -> None:
            machine = self._world.machines.get(name)
            if what != "put" or machine is None or self._dice.flip(0.3):
                return
            self._world.trap = None
            if machine.is_running and not self._is_guarded and (
                    len(self._hit) < self._malice.down_max):
                machine.pause()
                self._down(machine, self._malice.haste * self._dice.between(1.0, 3.0))

        self._world.trap = spring

    def cut_store(self) -> None:
        """Cut one machine off from the object store, in one direction or in both."""
        name = self._dice.choose(sorted(self._world.machines))
        pairs = [(name, STORE_HOST), (STORE_HOST, name)]
        self._cut(self._dice.choose([pairs, pairs[:1], pairs[1:]]))

    def fail_store(self) -> None:
        """Let the object store be slow, refuse requests or lose responses for a while."""
        bucket = self._world.bucket
        self._world.record("store fails")
        bucket.faults = self._dice.choose([SLOW_STORE, REFUSING_STORE, FORGETFUL_STORE])

        def undo() -> None:
            bucket.faults = NO_FAULTS

        self._later(self._dice.between(0.5, 4.0), undo)

    def storm(self) -> None:
        """Make all links slow or lossy for a while."""
        net = self._world.net
        self._world.record("storm")
        net.set_weather(self._dice.choose([BAD_WEATHER, SLOW_LINKS, LONG_DELAYS]))
        self._later(self._dice.between(0.5, 3.0), lambda: net.set_weather(net.climate))

    # -- disks and clocks

    def slow_disk(self) -> None:
        worker = self._dice.choose(list(self._world.machines.values())).worker
        usual, worker.slowness = worker.slowness, self._dice.choose([10.0, 100.0, 400.0])

        def undo() -> None:
            worker.slowness = usual

        self._later(self._dice.between(0.5, 3.0), undo)

    def fill_disk(self) -> None:
        machine = self._dice.choose(list(self._world.machines.values()))
        machine.record("full disk")
        machine.disk.capacity = self._dice.below(4000)

    def fail_syncs(self) -> None:
        """Let syncs of one machine's logs fail, until it is restarted with a good disk."""
        if (machine := self._victim()) is not None:
            machine.record("failing syncs")
            machine.disk.sync_error = DiskError("a sync failed")
            machine.disk.sync_error_in = SYNC_ERRORS_IN
            self._hit[machine.name] = None
            self._later(self._dice.between(0.2, 3.0), lambda: self._mend(machine))

    def _mend(self, machine: Machine) -> None:
        machine.disk.sync_error = None
        if not machine.is_dead:
            machine.kill()
        self._revive(machine)

    def fail_log(self) -> None:
        """Let writes and syncs of one log's files fail for a while."""
        machine = self._dice.choose(list(self._world.machines.values()))
        disk = machine.disk
        found = [name for name in disk.list("data") if is_log(name)] if disk.exists("data") else []
        if self._dice.flip(0.8):  # mostly a topic's log, which is written to all the time
            found = [name for name in found if not name.startswith("__")]
        if not found or disk.broken is not None:
            return
        machine.record("log fails")
        broken = disk.broken = f"data/{self._dice.choose(found)}"

        def undo() -> None:
            if disk.broken == broken:
                disk.broken = None

        self._later(self._while(), undo)

    def step_clock(self) -> None:
        machine = self._dice.choose(list(self._world.machines.values()))
        step_ms = int(self._dice.between(-CLOCK_STEP_MS_MAX, CLOCK_STEP_MS_MAX))
        machine.record("clock", f"{step_ms - machine.clock.step_ms:+} ms")
        machine.clock.step_ms = step_ms
