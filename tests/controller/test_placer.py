"""Placement: the lowest weight, at random among equals."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quipu.controller.members import Chain
from quipu.controller.placer import ChainPlacer
from quipu.controller.state import ClusterState
from tests.controller.states import state_with

STATE = state_with(a=1, b=1, c=1, d=1)
CHAINS = list(STATE.chains.values())


def test_equals_are_drawn_at_random() -> None:
    """V8: every number that chance gives picks one, and all are picked as often."""
    draws = iter(step / 100 for step in range(100))
    placer = ChainPlacer(STATE, lambda: next(draws))

    chosen = Counter(placer.choose(CHAINS).name for _ in range(100))

    assert chosen == {"a": 25, "b": 25, "c": 25, "d": 25}


@given(weights=st.lists(st.integers(0, 3), min_size=4, max_size=4), chance=st.floats(0, 1))
def test_the_lowest_weight_wins(weights: list[int], chance: float) -> None:
    """V8: by whatever measure is passed in."""
    by_name = dict(zip("abcd", weights, strict=True))

    def weigh(_: ClusterState, chain: Chain, planned: int) -> float:
        return by_name[chain.name] + planned

    chosen = ChainPlacer(STATE, lambda: chance, weigh).choose(CHAINS)

    assert by_name[chosen.name] == min(weights)


@given(chances=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40))
def test_chains_never_differ_by_more_than_one_topic(chances: list[float]) -> None:
    """V8: with the number of topics as weight."""
    draws = iter(chances)
    placer, taken = ChainPlacer(STATE, lambda: next(draws)), Counter(a=0, b=0, c=0, d=0)
    for _ in chances:
        chosen = placer.choose(CHAINS)
        placer.took([chosen])
        taken[chosen.name] += 1

    assert max(taken.values()) - min(taken.values()) <= 1


def test_all_chains_are_ranked_by_weight() -> None:
    """V8: partitions that are spread go round all chains, from that of the lowest weight on."""
    weights = {"a": 3.0, "b": 1.0, "c": 2.0, "d": 1.0}

    def weigh(state: ClusterState, chain: Chain, planned: int) -> float:
        del state, planned
        return weights[chain.name]

    placer = ChainPlacer(STATE, lambda: 0.99, weigh)

    assert [chain.name for chain in placer.rank(CHAINS)] == ["d", "b", "c", "a"]
