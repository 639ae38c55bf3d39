"""Which chain a new topic is placed on (V8).

It is the chain of the lowest weight, drawn at random among equals.  Weight is the number of topics,
unless another measure is passed in.  Chains that can take writes come before those that cannot.
The cluster's own topics are spread over all chains, partition by partition.
"""

from collections import Counter
from collections.abc import Callable, Sequence
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

    def took(self, chains: set[str]) -> None:
        """Count a topic of this decision on these chains."""
        assert chains, "a topic on no chain"
        self._planned.update(chains)


def spread(chains: Sequence[Chain], count: int) -> list[Chain]:
    """The chains of `count` partitions of one of the cluster's own topics."""
    assert chains, "there must be a chain to spread over"
    assert count >= 0, count
    ordered = sorted(chains, key=lambda chain: chain.name)
    return [ordered[index % len(ordered)] for index in range(count)]
