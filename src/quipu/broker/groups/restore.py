"""A group from what was kept of it.

After a restart a stable group goes on where it was: members that heartbeat with their generation
are welcome, nobody has to join anew.  How long the node was away is unknown and not the members'
fault, so each of them gets all of its time again.  A group that was kept in CompletingRebalance
awaits the syncs of its members once more: they ask again when their connection is back.
"""

from quipu.broker.groups.events import GroupImage, MonotonicMs
from quipu.broker.groups.group import Group
from quipu.broker.groups.limits import GroupLimits
from quipu.broker.groups.members import member_of
from quipu.broker.groups.states import State


def restore(image: GroupImage, limits: GroupLimits, now: MonotonicMs) -> Group:
    """The group that `image` was made of."""
    group = Group(
        image.group_id, limits, State(image.state), image.generation, image.protocol_type,
        image.protocol)
    for kept in image.members:
        group.members.add(member_of(kept))
    group.members.leader = image.leader
    welcome(group, now)
    return group


def welcome(group: Group, now: MonotonicMs) -> None:
    """Give every member all of its time, from `now` on."""
    for member in group.members:
        member.heard(now)
    if group.state is State.COMPLETING_REBALANCE:
        group.await_syncs(now)
