"""The events of a group, its effects, and the results of its members' requests.

A group knows a waiting request by its ticket, a number that the driver gives.  Times are
milliseconds of a monotonic clock; member ids are made by the driver.
"""

from typing import NamedTuple, NewType, TypeAlias

from quipu.model.errors import Code

Ticket = NewType("Ticket", int)  # a request that waits for its result; never used twice
MonotonicMs = NewType("MonotonicMs", int)  # milliseconds since some fixed moment

NO_GENERATION = -1  # in a request: the sender is no member


class GroupProtocol(NamedTuple):
    """A protocol to assign partitions that a member supports, and its metadata for it."""

    name: str
    metadata: bytes


# -- events


class Join(NamedTuple):
    """A member asks to be part of the next generation."""

    ticket: Ticket
    member_id: str  # empty: it has no id yet
    new_member_id: str  # the one to give it if it has none
    instance_id: str | None  # of a static member
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    needs_known_id: bool = True  # a new dynamic member gets its id, and must join again with it
    may_skip_assignment: bool = True  # the client supports skip_assignment


class Sync(NamedTuple):
    """A member asks for its assignment; the leader sends the assignments of all."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None  # None: older clients do not send it
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]  # member id, its assignment


class MemberHeartbeat(NamedTuple):
    """A member is alive."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """A member that leaves; a static member may be named by its instance id alone."""

    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """Members leave, by themselves or because an operator removes them."""

    ticket: Ticket
    leavers: tuple[Leaver, ...]


class MemberDisconnected(NamedTuple):
    """The client of a waiting request has disconnected."""

    ticket: Ticket


class ClockTick(NamedTuple):
    """Time has passed."""


class PersistFailed(NamedTuple):
    """The snapshot of a `Persist` could not be written."""


Event: TypeAlias = (
    Join | Sync | MemberHeartbeat | Leave | MemberDisconnected | ClockTick | PersistFailed)


# -- results


class JoinedMember(NamedTuple):
    """A member, as in the leader's result."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The result of a join."""

    code: Code
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()  # for the leader alone
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The result of a sync."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat."""

    code: Code


class LeaveResult(NamedTuple):
    """The result of a leave: one code for each leaver."""

    codes: tuple[Code, ...]


GroupResult: TypeAlias = JoinResult | SyncResult | HeartbeatResult | LeaveResult


# -- effects


class MemberSnapshot(NamedTuple):
    """The durable state of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """The durable state of a group; members in the order in which they joined."""

    group_id: str
    state: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberSnapshot, ...]


class Respond(NamedTuple):
    """Respond to a request."""

    ticket: Ticket
    result: GroupResult


class Persist(NamedTuple):
    """Make this durable before any effect that comes after it."""

    snapshot: GroupSnapshot


Effect: TypeAlias = Respond | Persist
