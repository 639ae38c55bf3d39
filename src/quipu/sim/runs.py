"""Run worlds by name and seed, and tell how to see a failure again."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from quipu.sim.chain_world import ChainWorld
from quipu.sim.node_world import NodeWorld
from quipu.sim.raft_world import RaftWorld
from quipu.sim.trace import Trace

Tell = Callable[[str], None]
TAIL_LINES: Final = 60


class Simulation(Protocol):
    """A world with its machines, clients, faults and checkers."""

    @property
    def trace(self) -> Trace: ...
    @property
    def step_count(self) -> int: ...
    @property
    def now(self) -> float:
        """Of its own time, in its own unit."""
        ...

    def run(self) -> None:
        """Both phases; raises whatever is wrong."""
        ...


WORLDS: Final[dict[str, Callable[..., Simulation]]] = {
    "raft": RaftWorld,
    "chain": ChainWorld,
    "node": NodeWorld,
}


class Outcome(NamedTuple):
    """What there is to say of a run that went well."""

    name: str
    seed: int
    digest: str  # of the trace
    event_count: int
    step_count: int
    now: float  # virtual time


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
    try:
        simulation.run()
    except Exception as error:
        raise Broken(name, seed, error, simulation.trace.tail()) from error
    return Outcome(name, seed, simulation.trace.digest, simulation.trace.count,
                   simulation.step_count, simulation.now)
