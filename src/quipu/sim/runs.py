"""Runs worlds by name and seed, and reports how to reproduce a failure."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from quipu.sim.trace import Trace
from quipu.sim.worlds.chain import ChainWorld
from quipu.sim.worlds.diskless import DisklessWorld
from quipu.sim.worlds.moving_node import MovingNodeWorld
from quipu.sim.worlds.node import NodeWorld
from quipu.sim.worlds.ordered_node import OrderedNodeWorld
from quipu.sim.worlds.placement import PlacementWorld
from quipu.sim.worlds.raft import RaftWorld
from quipu.sim.worlds.tiered_chain import TieredChainWorld
from quipu.sim.worlds.tiered_node import TieredNodeWorld

Echo = Callable[[str], None]
TAIL_LINES: Final = 60


class Simulation(Protocol):
    """A world with its machines, clients, faults and checkers."""

    @property
    def trace(self) -> Trace: ...
    @property
    def step_count(self) -> int: ...
    @property
    def now(self) -> float:
        """The world's virtual time, in its own unit."""
        ...

    def run(self) -> None:
        """Run both phases; raise if a checker finds a violation."""
        ...


WORLDS: Final[dict[str, Callable[..., Simulation]]] = {
    "raft": RaftWorld,
    "chain": ChainWorld,
    "tiered-chain": TieredChainWorld,
    "node": NodeWorld,
    "moving-node": MovingNodeWorld,
    "tiered-node": TieredNodeWorld,
    "ordered-node": OrderedNodeWorld,
    "diskless": DisklessWorld,
    "placement": PlacementWorld,
}


class Outcome(NamedTuple):
    """The result of a run without a failure."""

    name: str
    seed: int
    digest: str  # of the trace
    event_count: int
    step_count: int
    now: float  # virtual time


@dataclass
class Broken(Exception):
    """A failed run of a world."""

    name: str
    seed: int
    why: BaseException
    tail: list[str]

    def __str__(self) -> str:
        return f"world {self.name}, seed {self.seed}: {type(self.why).__name__}: {self.why}"

    def report(self, commit: str, *, lines: int = TAIL_LINES) -> str:
        """The end of the trace, the traceback, and the command that reproduces the failure."""
        trail = traceback.format_exception(self.why)
        return "\n".join([
            *self.tail[-lines:], "", "".join(trail).rstrip(), "", str(self),
            f"reproduce: make sim SEED={self.seed} (commit {commit})"])


def simulate(name: str, seed: int, *, echo: Echo | None = None) -> Outcome:
    """Run one world to its end; raises `Broken`."""
    simulation = WORLDS[name](seed, echo=echo)
    try:
        simulation.run()
    except Exception as error:
        raise Broken(name, seed, error, simulation.trace.tail()) from error
    return Outcome(name, seed, simulation.trace.digest, simulation.trace.count,
                   simulation.step_count, simulation.now)
