"""The table of a group's life."""

import pytest

from quipu.broker.groups.states import State, advance

ALLOWED = {
    (State.EMPTY, State.PREPARING_REBALANCE), (State.EMPTY, State.DEAD),
    (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE),
    (State.PREPARING_REBALANCE, State.EMPTY),
    (State.COMPLETING_REBALANCE, State.STABLE),
    (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE),
    (State.STABLE, State.PREPARING_REBALANCE),
}


@pytest.mark.parametrize("current", State)
@pytest.mark.parametrize("target", State)
def test_only_the_steps_of_the_table_are_taken(current: State, target: State) -> None:
    """K3: any other step is a bug, and stops there."""
    if (current, target) in ALLOWED:
        assert advance(current, target) is target
    else:
        with pytest.raises(AssertionError, match="cannot go from"):
            advance(current, target)
