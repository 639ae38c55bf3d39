"""Checks whether a member may join a group, and whether a group may grow.

Not here: the limits themselves (limits.py), what a group does with a join (group.py).
"""

from typing import TYPE_CHECKING

from quipu.broker.groups.events import Join
from quipu.broker.groups.limits import (
    GROUP_MAX_BYTES,
    GROUP_MAX_SIZE,
    GROUP_MAX_TOTAL_BYTES,
    PROTOCOL_COUNT_MAX,
)
from quipu.broker.groups.members import GroupMember, member_size
from quipu.broker.groups.states import State
from quipu.model.errors import Code

if TYPE_CHECKING:  # it asks here
    from quipu.broker.groups.group import Group


def why_not_join(group: "Group", event: Join, known: GroupMember | None) -> Code:
    """The error code of a join; NONE if it is allowed.  `known` is the member that it names."""
    if group.state is State.DEAD:
        return Code.COORDINATOR_NOT_AVAILABLE
    is_pending = event.member_id in group.pending
    if not event.protocol_type or not event.protocols:  # before the member, as in Kafka
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if event.member_id and not is_pending:
        found = group.find_member(event.member_id, event.instance_id)
        if isinstance(found, Code):
            return found
    if is_pending and event.instance_id is not None:
        return Code.INVALID_REQUEST  # static members need not get an id first
    code = _why_no_place(group, event, known)
    if code is not Code.NONE:
        return code
    same_type = event.protocol_type == group.protocol_type or not len(group.members)
    if event.protocol_type and same_type and group.members.can_agree(event.protocols, known):
        return Code.NONE
    return Code.INCONSISTENT_GROUP_PROTOCOL


def _why_no_place(group: "Group", event: Join, known: GroupMember | None) -> Code:
    limits = group.limits
    places = limits.member_count_max - len(group.members)
    if known is None and places <= (0 if event.member_id in group.pending else len(group.pending)):
        limits.refused(GROUP_MAX_SIZE, group.group_id)
        return Code.GROUP_MAX_SIZE_REACHED  # places are reserved for pending members
    is_many = len(event.protocols) > PROTOCOL_COUNT_MAX
    if is_many or (size := member_size(event)) > limits.member_size_max:
        limits.refused(GROUP_MAX_BYTES, group.group_id)
        return Code.INVALID_REQUEST
    is_room = has_room(group, size - (known.size if known is not None else 0))
    return Code.NONE if is_room else Code.GROUP_MAX_SIZE_REACHED


def has_room(group: "Group", growth: int) -> bool:
    """Whether the group may grow by `growth` bytes; a group that shrinks always may."""
    if growth <= 0:
        return True
    size, limits = group.size + growth, group.limits
    if size > limits.group_size_max:
        limits.refused(GROUP_MAX_BYTES, group.group_id)
        return False
    if not limits.has_room(size, growth):
        limits.refused(GROUP_MAX_TOTAL_BYTES, group.group_id)
        return False
    return True
