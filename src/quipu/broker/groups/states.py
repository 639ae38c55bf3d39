"""The states of a classic group as a table: which state may follow which.

                 a member joins              all have joined
        Empty ------------------> PreparingRebalance -------> CompletingRebalance
        |  ^                        |      ^   ^                 |          |
        |  |   the last one left    |      |   '-----------------'          | the leader
        |  '------------------------'      |     a join, a leave,           | sent the
        v                                  |     a time-out                 v assignment
       Dead                                '----------------------------- Stable

Names are Kafka's: clients and tools print them.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of a group."""

    EMPTY = "Empty"  # no members; offsets may be kept
    PREPARING_REBALANCE = "PreparingRebalance"  # members are awaited; their joins are parked
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader's assignment is awaited
    STABLE = "Stable"  # every member has its assignment
    DEAD = "Dead"  # deleted; requests that still have the object are refused


_NEXT: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE}),
    State.DEAD: frozenset(),
}
assert _NEXT.keys() == set(State)  # every state has a row


def advance(current: State, target: State) -> State:
    """Return `target`, which the table must allow: another step is a bug of ours."""
    assert target in _NEXT[current], f"a group cannot go from {current} to {target}"
    return target
