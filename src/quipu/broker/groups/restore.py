"""Builds a group from its snapshot.

After a restart of the coordinator a stable group continues: members that send heartbeats with
their generation are served, and need not join again.  It is unknown how long the coordinator was
down, so each member gets a full session timeout again.  A group in CompletingRebalance waits for
the syncs of its members again: they send them when they are connected again.
"""

from quipu.broker.groups.events import GroupSnapshot, MonotonicMs
from quipu.broker.groups.group import Group
from quipu.broker.groups.limits import GroupLimits
from quipu.broker.groups.members import member_of
from quipu.broker.groups.states import State


def restore(snapshot: GroupSnapshot, limits: GroupLimits, now: MonotonicMs) -> Group:
    """The group of `snapshot`."""
    group = Group(
        snapshot.group_id, limits, State(snapshot.state), snapshot.generation,
        snapshot.protocol_type, snapshot.protocol)
    for kept in snapshot.members:
        group.members.add(member_of(kept))
    group.members.leader = snapshot.leader
    restart_sessions(group, now)
    return group


def restart_sessions(group: Group, now: MonotonicMs) -> None:
    """Give every member a full session timeout, from `now` on."""
    for member in group.members:
        member.heard(now)
    if group.state is State.COMPLETING_REBALANCE:
        group.await_syncs(now)
