"""Which chain a new topic is placed on (V8).

It is the chain of the lowest weight, drawn at random among equals.  Weight is the number of topics,
unless another measure is passed in.  Chains that can take writes come before those that cannot.
Partitions of one topic that are spread over chains go round them, from the lowest weight on.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from quipu.controller.members import Chain
from quipu.controller.state import ClusterState
from quipu.model.ids import NO_NODE

Chance = Callable[[], float]  # a number in [0, 1)


class ChainWeight(Protocol):
    """A measure of a chain's load."""

    def __call__(self, state: ClusterState, chain: Chain, planned: int) -> float:
        """`planned`: topics that the same decision places there; the state does not have them."""
        ...


def topic_count(state: ClusterState, chain: Chain, planned: int) -> float:
    """The number of topics."""
    return state.topic_count(chain.name) + planned


def no_chance() -> float:
    """The first among equals, always."""
    return 0.0


class ChainPlacer:
    """The placement of the topics of one decision."""

    def __init__(
        self, state: ClusterState, chance: Chance = no_chance, weigh: ChainWeight = topic_count
    ) -> None:
        self._state = state
        self.chance = chance
        self._weigh = weigh
        self._planned: Counter[str] = Counter()

    def choose(self, chains: Sequence[Chain]) -> Chain:
        """The chain, out of these, that a new topic is placed on."""
        assert chains, "there must be a chain to choose"
        ready = [chain for chain in chains if self._state.leader_of(chain) != NO_NODE] or chains
        weights = {chain.name: self._weigh(self._state, chain, self._planned[chain.name])
                   for chain in ready}
        lowest = min(weights.values())
        equals = sorted((chain for chain in ready if weights[chain.name] == lowest),
                        key=lambda chain: chain.name)
        assert equals, weights
        return equals[min(int(self.chance() * len(equals)), len(equals) - 1)]

    def rank(self, chains: Sequence[Chain]) -> list[Chain]:
        """Those of these chains that can take writes, all if none can, by weight."""
        rest = [chain for chain in chains if self._state.leader_of(chain) != NO_NODE] or [*chains]
        ranked = []
        while rest:
            ranked.append(self.choose(rest))
            rest.remove(ranked[-1])
        return ranked

    def planned(self, chain: Chain) -> int:
        """How many topics are on `chain`, with those that this decision places there."""
        return self._state.topic_count(chain.name) + self._planned[chain.name]

    def took(self, chains: Iterable[Chain]) -> None:
        """Count a topic of this decision on these chains, or those that they belong to."""
        parents = {self._state.chain_index.parent_of(chain) for chain in chains}
        self._planned.update(parent for parent in parents if parent is not None)
