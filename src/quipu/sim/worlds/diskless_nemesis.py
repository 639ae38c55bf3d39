"""Faults of a world of diskless topics: also of the control plane, and between store and commit."""

from collections.abc import Callable
from typing import Final

from quipu.sim.nemesis import Malice, Nemesis
from quipu.sim.twins.control_plane import NO_FAULTS, PLANE_HOST, PlaneFaults, SimDatabase
from quipu.sim.world import World

SLOW: Final = PlaneFaults(slow=0.4, slow_seconds_max=5.0)
REFUSING: Final = PlaneFaults(refuse=0.6)
FORGETFUL: Final = PlaneFaults(slow=0.1, refuse=0.1, lose_answer=0.4)
CLOCK_STEP_MS_MAX: Final = 3000  # either way: marks of the future are kept for so much longer
CRITICAL: Final = ("commit", "rewrite", "condemn_objects", "forget_objects", "delete_records")


class DisklessNemesis(Nemesis):
    """Injects all faults of one world of diskless topics."""

    def __init__(
        self, world: World, malice: Malice, database: SimDatabase, *, has_clock_steps: bool
    ) -> None:
        super().__init__(world, malice)
        self._database = database
        mine: list[Callable[[], None]] = []
        if malice.store_faults:
            mine += [self.fail_plane, self.fail_plane, self.restart_plane, self.cut_plane,
                     self.drop_listeners, self.fail_store]
        if malice.kills or malice.pauses:
            mine += [self.ambush_change] * 3
        if has_clock_steps:
            mine += [self.step_clock_a_little]
        self._faults += mine

    def heal(self) -> None:
        super().heal()
        self._database.faults = NO_FAULTS
        self._database.is_down = False
        for machine in self._world.machines.values():
            machine.clock.step_ms = 0

    def fail_plane(self) -> None:
        """Let the control plane be slow, refuse operations or lose responses for a while."""
        self._world.record("plane fails")
        self._database.faults = self._dice.choose([SLOW, REFUSING, FORGETFUL])

        def undo() -> None:
            self._database.faults = NO_FAULTS

        self._later(self._dice.between(0.5, 4.0), undo)

    def restart_plane(self) -> None:
        """Let the control plane be away for a moment, and lose all connections."""
        self._world.record("plane down")
        self._database.is_down = True
        self._database.drop_listeners()

        def undo() -> None:
            self._database.is_down = False

        self._later(self._dice.between(0.1, 2.0), undo)

    def drop_listeners(self) -> None:
        """Close the connections over which commits are announced."""
        self._world.record("drop")
        self._database.drop_listeners()

    def cut_plane(self) -> None:
        """Cut one machine off from the control plane, in one direction or in both."""
        name = self._dice.choose(sorted(self._world.machines))
        pairs = [(name, PLANE_HOST), (PLANE_HOST, name)]
        self._cut(self._dice.choose([pairs, pairs[:1], pairs[1:]]))

    def ambush_change(self) -> None:
        """Kill or pause a machine that is about to change something in the control plane."""
        kind = self._dice.choose(CRITICAL) if self._dice.flip(0.5) else "commit"
        loop = self._world.loop

        def spring(what: str, name: str) -> None:
            if what == kind and name in self._world.machines and self._dice.flip(0.5):
                self._world.trap = None
                self._world.record("ambush", f"{what} {name}")
                delay = self._dice.choose([0.0, self._dice.between(0, 0.02)])
                loop.universal_at(loop.now + delay, lambda: self._catch(name))

        self._world.trap = spring

    def _catch(self, name: str) -> None:
        machine = self._world.machines[name]
        if self._stopped or not machine.is_running or len(self._hit) >= self._malice.down_max:
            return
        if self._malice.pauses and self._dice.flip(0.5):
            machine.pause()
        else:
            machine.kill()
        self._down(machine, self._while())

    def step_clock_a_little(self) -> None:
        """Set the wall clock of a machine."""
        machine = self._dice.choose(list(self._world.machines.values()))
        step_ms = int(self._dice.between(-CLOCK_STEP_MS_MAX, CLOCK_STEP_MS_MAX))
        machine.record("clock", f"{step_ms - machine.clock.step_ms:+} ms")
        machine.clock.step_ms = step_ms
