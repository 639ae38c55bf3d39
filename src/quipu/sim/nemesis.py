"""Faults: what happens to machines, links, disks and clocks while the first phase lasts.

Each fault is one method, begun at a moment that chance decides and undone by itself after a while;
`heal` undoes all of them at once.  How bad a world gets is its `Malice`.

Chance alone rarely hits the moment that matters, so there are ambushes: a fault that waits for a
sync to be under way, for an acknowledgement to arrive at a client, or for a message to leave, and
strikes then.  And half of the faults that hit one machine hit the one that the world says matters
most just now: whoever leads.

A mishap is a loss that is promised to be borne by one machine at a time: of what was acknowledged
and not flushed, of a whole disk, or of a bit of it, until somebody replaces the disk.  It happens
only while the world is whole, and until it is whole again no other machine is touched.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quipu.runtime.disk import DiskError
from quipu.sim.dice import Dice
from quipu.sim.loop import Life
from quipu.sim.net import CALM, Weather
from quipu.sim.world import Machine, World
from quipu.storage.directory_names import is_log

SYNC_ERRORS_IN: Final = "data/t-"  # not the metadata: a node that cannot keep that must stop
CLOCK_STEP_MS_MAX: Final = 40 * 60_000  # beyond an hour records are refused for their time
BAD_WEATHER: Final = Weather(
    delay_min=0.0005, delay_max=0.03, loss=0.03, duplicate=0.03, reorder=0.05)
SLOW_LINKS: Final = Weather(delay_min=0.02, delay_max=0.2, bytes_per_second=40_000.0)
LONG_DELAYS: Final = Weather(delay_min=0.001, delay_max=0.4, reorder=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Malice:
    """What may happen, and how much of it."""

    pause_min: float = 0.1  # seconds between two faults
    pause_max: float = 1.2
    haste: float = 1.0  # how much shorter than usual faults last
    down_max: int = 1  # machines that are down or paused at once, by our hand
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
    outages: bool = False  # everything at once
    mishaps: bool = False  # power losses where nothing is flushed
    lost_disks: bool = False
    voteless: tuple[str, ...] = ()  # no voters: the quorum can do without their chain
    old_disks: bool = False  # machines come back with what they had some time ago


class Nemesis:
    """The source of all faults of one world."""

    def __init__(
        self, world: World, malice: Malice,
        favourite: Callable[[], Machine | None] = lambda: None,
        is_whole: Callable[[], bool] = lambda: False,
    ) -> None:
        self.count = 0
        self._favourite = favourite  # the machine that matters most just now
        self._is_whole = is_whole  # does every machine serve, and could any of them be lost?
        self._is_guarded = False  # a mishap is being overcome
        self._cut_count = 0  # cuts that last
        self._world = world
        self._malice = malice
        self._dice: Dice = world.dice.fork("nemesis")
        self._stopped = False
        self._hit: dict[str, None] = {}  # machines that are down or paused by our hand
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
        ]
        self._faults = [fault for is_on, fault in faults if is_on]
        has_mishaps = malice.mishaps or malice.lost_disks or malice.old_disks
        self._faults += [self.mishap] * (len(self._faults) // 3 if has_mishaps else 0)

    async def run(self) -> None:
        """One fault after another, until `heal`."""
        malice, dice = self._malice, self._dice
        while not self._stopped:
            await asyncio.sleep(dice.between(malice.pause_min, malice.pause_max))
            if not self._stopped:
                self.count += 1
                if self._is_guarded and not self._hit and self._is_sound() and self._is_whole():
                    self._is_guarded = False
                dice.choose(self._faults)()

    def heal(self) -> None:
        """Undo everything: all machines run, all links are open, the weather is fine."""
        self._stopped = True
        world = self._world
        world.trap = None
        world.tell("heal")
        world.net.heal()
        world.net.climate = CALM
        world.net.set_weather(CALM)
        for machine in world.machines.values():
            machine.worker.slowness = 1.0
            machine.disk.broken = None
            if machine.is_corrupt:
                machine.lose_disk()
            if machine.disk.capacity is not None or machine.disk.sync_error is not None:
                machine.disk.capacity = machine.disk.sync_error = None
                if not machine.is_dead:
                    machine.kill()  # what a bad disk has failed is good again after a start
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
        """A machine that runs, unless enough are down already."""
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
        """How long a fault lasts: often short, sometimes long."""
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
        """A clean stop; whoever takes too long for it is killed."""
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
        """Every machine loses power, or its process, at one moment."""
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
        """Wait for a moment that matters, and strike then."""
        kind = self._dice.choose(["sync", "ack", "send"])
        loop = self._world.loop

        def spring(what: str, name: str) -> None:
            if what == kind and name in self._world.machines and self._dice.flip(0.5):
                self._world.trap = None
                self._world.tell("ambush", f"{what} {name}")
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
            if self._dice.flip(0.5):  # and the next one, before anybody has noticed
                self._later(self._dice.between(0, 0.1), self._dice.choose([self.kill, self.pause]))

    def mishap(self) -> None:
        """One machine loses what it had not flushed, or its whole disk; the others have it all."""
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
        """Every process ends; one machine comes back with another disk, its chain's others late."""
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
        """Two machines no longer hear each other."""
        one, other = self._two()
        self._cut([(one, other), (other, one)])

    def cut_one_way(self) -> None:
        """One no longer hears the other, who hears it."""
        self._cut([self._two()])

    def isolate(self) -> None:
        """One machine is alone; half of the time clients do not reach it either."""
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

    def storm(self) -> None:
        """Bad weather on all links for a while."""
        net = self._world.net
        self._world.tell("storm")
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
        machine.tell("full disk")
        machine.disk.capacity = self._dice.below(4000)

    def fail_syncs(self) -> None:
        """The logs of one machine cannot be made durable; a start with a sound disk mends it."""
        if (machine := self._victim()) is not None:
            machine.tell("failing syncs")
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
        """The files of one log can neither be written nor synced, for a while."""
        machine = self._dice.choose(list(self._world.machines.values()))
        disk = machine.disk
        found = [name for name in disk.list("data") if is_log(name)] if disk.exists("data") else []
        if self._dice.flip(0.8):  # of those that are written to all the time
            found = [name for name in found if not name.startswith("__")]
        if not found or disk.broken is not None:
            return
        machine.tell("log fails")
        broken = disk.broken = f"data/{self._dice.choose(found)}"

        def undo() -> None:
            if disk.broken == broken:
                disk.broken = None

        self._later(self._while(), undo)

    def step_clock(self) -> None:
        machine = self._dice.choose(list(self._world.machines.values()))
        step_ms = int(self._dice.between(-CLOCK_STEP_MS_MAX, CLOCK_STEP_MS_MAX))
        machine.tell("clock", f"{step_ms - machine.clock.step_ms:+} ms")
        machine.clock.step_ms = step_ms
