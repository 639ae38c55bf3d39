"""The roles of a replica as a table: which role may follow which.

                       a new epoch, or a claim of a newer one that was wrong
          .-------------------.---------------------------.------------------.
          v                   v                           v                  |
        none <-> syncing   joining --> following      recovering --> leading |
          |         |         |            |              |             |    |
          '---------'---------'------------'--------------'-------------'----|--> fenced
                                                                             |
                    all that receive a log or recover one -------------------|--> halted

Row by row; what a new epoch makes of a replica is left out where it is (*) all of none, syncing,
joining and recovering:

    none        ->  fenced *
    syncing     ->  fenced, halted *
    joining     ->  following, fenced, halted *
    following   ->  fenced, halted *
    recovering  ->  leading, fenced, halted *
    leading     ->  fenced *
    fenced      ->  *
    halted      ->  fenced *

Invariants
    chain.T1  a replica changes its role only as the table says: it follows only after it has
              joined, leads only after it has recovered, and stays halted until its epoch ends

Names are those of the metric `quipu_chain_role`.
"""

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a replica does in the chain."""

    NONE = "none"  # not a member, or an offline one
    SYNCING = "syncing"  # a member that catches up
    JOINING = "joining"  # a serving member whose log lacks the epoch's configuration
    FOLLOWING = "following"  # a serving member that is not the head: a follower
    RECOVERING = "recovering"  # the head, before it leads: it looks for the longest log
    LEADING = "leading"  # the head: the leader
    FENCED = "fenced"  # a member claimed a newer epoch; waits for the metadata
    HALTED = "halted"  # going on would remove committed batches; a person must look


_FIRST: Final = frozenset({Role.NONE, Role.SYNCING, Role.JOINING, Role.RECOVERING})  # of an epoch

NEXT: Final[dict[Role, frozenset[Role]]] = {
    Role.NONE: _FIRST | {Role.FENCED},
    Role.SYNCING: _FIRST | {Role.FENCED, Role.HALTED},
    Role.JOINING: _FIRST | {Role.FOLLOWING, Role.FENCED, Role.HALTED},
    Role.FOLLOWING: _FIRST | {Role.FENCED, Role.HALTED},
    Role.RECOVERING: _FIRST | {Role.LEADING, Role.FENCED, Role.HALTED},
    Role.LEADING: _FIRST | {Role.FENCED},
    Role.FENCED: _FIRST,
    Role.HALTED: _FIRST | {Role.FENCED},
}
assert NEXT.keys() == set(Role)  # a role without a row is a role without a future

ACTIVE: Final = frozenset(Role) - {Role.NONE, Role.FENCED, Role.HALTED}  # handle events
SERVING: Final = frozenset({Role.FOLLOWING, Role.LEADING})  # clients may read


def advance(current: Role, target: Role) -> Role:
    """Return `target`, which the table must allow: any other step is a bug of this room.

    To keep the role is a retry, and always allowed.
    """
    assert target is current or target in NEXT[current], (
        f"a replica cannot go from {current} to {target}")  # chain.T1
    return target
