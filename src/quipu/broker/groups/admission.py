"""Who may join a group, and what a group may take up: its limits, applied.

Not here: the limits themselves (limits.py), what a group does with those who may join (group.py).
"""

from typing import TYPE_CHECKING

from quipu.broker.groups.events import Join
from quipu.broker.groups.limits import (
    GROUP_MAX_BYTES,
    GROUP_MAX_SIZE,
    GROUP_MAX_TOTAL_BYTES,
    PROTOCOL_COUNT_MAX,
)
from quipu.broker.groups.members import Member, member_size
from quipu.broker.groups.states import State
from quipu.model.errors import Code

if TYPE_CHECKING:  # it asks here
    from quipu.broker.groups.group import Group


def why_not_join(group: "Group", event: Join, known: Member | None) -> Code:
    """Why this join cannot be; NONE if it can.  `known` is the member that it names."""
    if group.state is State.DEAD:
        return Code.COORDINATOR_NOT_AVAILABLE
    is_pending = event.member_id in group.pending
    if event.member_id and not is_pending:
        found = group.find_member(event.member_id, event.instance_id)
        if isinstance(found, Code):
            return found
    if is_pending and event.instance_id is not None:
        return Code.INVALID_REQUEST  # static members are never sent away for an id
    code = _why_no_place(group, event, known)
    if code is not Code.NONE:
        return code
    same_type = event.protocol_type == group.protocol_type or not len(group.members)
    if event.protocol_type and same_type and group.members.can_agree(event.protocols, known):
        return Code.NONE
    return Code.INCONSISTENT_GROUP_PROTOCOL


def _why_no_place(group: "Group", event: Join, known: Member | None) -> Code:
    limits = group.limits
    places = limits.member_count_max - len(group.members)
    if known is None and places <= (0 if event.member_id in group.pending else len(group.pending)):
        limits.refused(GROUP_MAX_SIZE, group.group_id)
        return Code.GROUP_MAX_SIZE_REACHED  # the pending have been promised theirs
    is_many = len(event.protocols) > PROTOCOL_COUNT_MAX
    if is_many or (size := member_size(event)) > limits.member_size_max:
        limits.refused(GROUP_MAX_BYTES, group.group_id)
        return Code.INVALID_REQUEST
    is_room = has_room(group, size - (known.size if known is not None else 0))
    return Code.NONE if is_room else Code.GROUP_MAX_SIZE_REACHED


def has_room(group: "Group", growth: int) -> bool:
    """Whether the group may take up so much more; who takes no more is never refused."""
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
