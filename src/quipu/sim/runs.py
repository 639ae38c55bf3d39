"""Run worlds by name and seed, and tell how to see a failure again."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from quipu.sim.node_world import NodeWorld
from quipu.sim.world import World

Tell = Callable[[str], None]
TAIL_LINES: Final = 60


class Simulation(Protocol):
    """A world with its machines, clients, faults and checkers."""

    @property
    def world(self) -> World: ...
    def run(self) -> None:
        """Both phases; raises whatever is wrong."""
        ...


WORLDS: Final[dict[str, Callable[..., Simulation]]] = {
    "node": NodeWorld,
}


class Outcome(NamedTuple):
    """What there is to say of a run that went well."""

    name: str
    seed: int
    digest: str  # of the trace
    event_count: int
    step_count: int
    seconds: float  # of virtual time


@dataclass
class Broken(Exception):
    """A world in which something went wrong."""

    name: str
    seed: int
    why: BaseException
    tail: list[str]

    def __str__(self) -> str:
        return f"world {self.name}, seed {self.seed}: {type(self.why).__name__}: {self.why}"

    def report(self, commit: str, *, lines: int = TAIL_LINES) -> str:
        """The end of the trace, where it went wrong, and the line that repeats it."""
        trail = traceback.format_exception(self.why)
        return "\n".join([
            *self.tail[-lines:], "", "".join(trail).rstrip(), "", str(self),
            f"reproduce: make sim SEED={self.seed} (commit {commit})"])


def simulate(name: str, seed: int, *, tell: Tell | None = None) -> Outcome:
    """Run one world to its end; raises `Broken`."""
    simulation = WORLDS[name](seed, tell=tell)
    world = simulation.world
    try:
        simulation.run()
    except Exception as error:
        raise Broken(name, seed, error, world.trace.tail()) from error
    finally:
        world.end()
    return Outcome(name, seed, world.trace.digest, world.trace.count, world.loop.step_count,
                   world.loop.now)
