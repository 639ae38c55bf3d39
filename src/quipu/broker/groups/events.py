"""What a group is told (events), what it asks for (effects), and what members are answered.

A request that has to wait is known to the group by its ticket, a number that the driver gives.
Times are milliseconds of a clock that never steps back; ids are made by the driver.
"""

from typing import NamedTuple, NewType, TypeAlias

from quipu.model.errors import Code

Ticket = NewType("Ticket", int)  # a request that waits for its answer; never used twice
MonotonicMs = NewType("MonotonicMs", int)  # milliseconds since some fixed moment

NO_GENERATION = -1  # in a request: the sender is no member


class Protocol(NamedTuple):
    """A way to assign partitions that a member knows, and what it says about itself for that."""

    name: str
    metadata: bytes


# -- events


class Join(NamedTuple):
    """A member wants to be part of the next generation."""

    ticket: Ticket
    member_id: str  # empty: it has none yet
    new_member_id: str  # the one to give it if it has none
    instance_id: str | None  # of a static member
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_known_id: bool = True  # a new dynamic member is sent away to come back with its id
    may_skip_assignment: bool = True  # the client knows a leader that need not assign


class Sync(NamedTuple):
    """A member asks for its assignment; the leader brings everybody's."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None  # None: older clients do not say
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]  # member id, what is its own


class Heartbeat(NamedTuple):
    """A member is alive."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """One of those who leave; a static member may leave by its instance id alone."""

    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """Members go, of their own will or an operator's."""

    ticket: Ticket
    leavers: tuple[Leaver, ...]


class Gone(NamedTuple):
    """Who sent a request that waits is gone: nobody is there to be answered."""

    ticket: Ticket


class Tick(NamedTuple):
    """Time has passed."""


class PersistFailed(NamedTuple):
    """What the group asked to persist is not on disk."""


Event: TypeAlias = Join | Sync | Heartbeat | Leave | Gone | Tick | PersistFailed


# -- answers


class JoinedMember(NamedTuple):
    """A member as the leader gets to know it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a join."""

    code: Code
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()  # for the leader alone
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The answer to a sync."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heard(NamedTuple):
    """The answer to a heartbeat."""

    code: Code


class Left(NamedTuple):
    """The answer to a leave: one code for each leaver."""

    codes: tuple[Code, ...]


Answer: TypeAlias = Joined | Synced | Heard | Left


# -- effects


class MemberImage(NamedTuple):
    """What is kept of a member across a restart."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes


class GroupImage(NamedTuple):
    """What is kept of a group across a restart; members in the order in which they came."""

    group_id: str
    state: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberImage, ...]


class Reply(NamedTuple):
    """Answer a request."""

    ticket: Ticket
    answer: Answer


class Persist(NamedTuple):
    """Make this durable before any effect that comes after it."""

    image: GroupImage


Effect: TypeAlias = Reply | Persist
