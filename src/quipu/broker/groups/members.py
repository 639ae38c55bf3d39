"""The members of one group, their leader, and the protocol that they have in common.

Invariants
    broker.groups.P1  an instance id belongs to one member at a time
    broker.groups.P2  the members have at least one protocol in common
    broker.groups.P3  members are kept in the order in which they joined, so that every choice among
                      them is deterministic

Not here: when members come and go (group.py).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from quipu.broker.groups.events import (
    GroupProtocol,
    Join,
    JoinedMember,
    MemberSnapshot,
    MonotonicMs,
    Ticket,
)
from quipu.broker.groups.limits import MEMBER_SIZE, protocols_size, text_size
from quipu.broker.groups.subscription import find_topics

BEGINNING: Final = MonotonicMs(0)


@dataclass(slots=True, kw_only=True)
class GroupMember:
    """One member; the fields below the line are not durable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    # --
    deadline: MonotonicMs = BEGINNING  # it is removed if it sends nothing until then
    is_new: bool = True  # it has been in no generation yet
    join_ticket: Ticket | None = None  # its join is parked
    sync_ticket: Ticket | None = None  # its sync is parked
    size: int = 0  # the bytes that it uses, without its assignment

    @property
    def can_expire(self) -> bool:
        """A member with a parked request does not expire; a new member does in any case."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def metadata(self, protocol: str) -> bytes:
        """Its metadata for `protocol`."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that it is subscribed to; None if its metadata is no subscription."""
        return find_topics(self.metadata(protocol)) if protocol is not None else None

    def asks_for_the_same(self, event: Join) -> bool:
        return self.protocols == event.protocols

    def heard(self, now: MonotonicMs) -> None:
        self.deadline = MonotonicMs(now + self.session_timeout_ms)

    def snapshot(self) -> MemberSnapshot:
        return MemberSnapshot(
            self.member_id, self.instance_id, self.client_id, self.client_host,
            self.session_timeout_ms, self.rebalance_timeout_ms, self.protocols, self.assignment)


def member_of(snapshot: MemberSnapshot) -> GroupMember:
    """The member of `snapshot`; its deadline is to be set."""
    return GroupMember(
        member_id=snapshot.member_id, instance_id=snapshot.instance_id,
        client_id=snapshot.client_id, client_host=snapshot.client_host,
        session_timeout_ms=snapshot.session_timeout_ms,
        rebalance_timeout_ms=snapshot.rebalance_timeout_ms, protocols=snapshot.protocols,
        assignment=snapshot.assignment, is_new=False)


def newcomer(event: Join, member_id: str) -> GroupMember:
    return GroupMember(
        member_id=member_id, instance_id=event.instance_id, client_id=event.client_id,
        client_host=event.client_host, session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms, protocols=event.protocols)


def member_size(member: GroupMember | Join) -> int:
    """The bytes that a member, or one that joins, uses without its assignment."""
    names = member.member_id, member.instance_id, member.client_id, member.client_host
    return MEMBER_SIZE + sum(map(text_size, names)) + protocols_size(member.protocols)


@dataclass(slots=True)
class GroupMembers:
    """The members of a group, by id and by instance id."""

    leader: str | None = None
    size: int = 0  # of all members together, and of their assignments
    assignments_size: int = 0
    _by_id: dict[str, GroupMember] = field(default_factory=dict)
    _by_instance: dict[str, str] = field(default_factory=dict)
    _knowing: Counter[str] = field(default_factory=Counter)  # how many members support a protocol

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def find(self, member_id: str) -> GroupMember | None:
        return self._by_id.get(member_id)

    def find_static(self, instance_id: str | None) -> GroupMember | None:
        if instance_id is None or (member_id := self._by_instance.get(instance_id)) is None:
            return None
        return self._by_id[member_id]

    def add(self, member: GroupMember) -> None:
        assert member.member_id not in self._by_id, member.member_id
        if member.instance_id is not None:
            # broker.groups.P1
            assert member.instance_id not in self._by_instance, member.instance_id
            self._by_instance[member.instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._count(member, 1)
        self._weigh(len(member.assignment))
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: GroupMember) -> None:
        del self._by_id[member.member_id]
        self._count(member, -1)
        self._give(member, b"")
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)

    def update(self, member: GroupMember, event: Join) -> None:
        """Update a member from a later join."""
        self._count(member, -1)
        member.client_id = event.client_id
        member.client_host = event.client_host
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.protocols = event.protocols
        self._count(member, 1)

    def rename(self, member: GroupMember, member_id: str) -> None:
        """Give a static member that came back its new id; it keeps its place in the order."""
        assert member.instance_id is not None
        self.size += text_size(member_id) - text_size(member.member_id)
        member.size += text_size(member_id) - text_size(member.member_id)
        old_id, member.member_id = member.member_id, member_id
        self._by_id = {m.member_id: m for m in self._by_id.values()}
        self._by_instance[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Set every member's assignment; one that is left out gets an empty one."""
        for member in self:
            self._give(member, assignments.get(member.member_id, b""))

    def _give(self, member: GroupMember, assignment: bytes) -> None:
        self._weigh(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def _weigh(self, growth: int) -> None:
        self.assignments_size += growth
        self.size += growth

    def elect(self) -> bool:
        """Make a member that has joined the leader; False if none has joined."""
        if self.leader is not None and self._by_id[self.leader].join_ticket is not None:
            return True
        joined = next((m for m in self if m.join_ticket is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def can_agree(self, protocols: tuple[GroupProtocol, ...], known: GroupMember | None) -> bool:
        """Whether a join with `protocols` has one in common with all other members."""
        own = {p.name for p in known.protocols} if known is not None else set()
        others_count = len(self) - (known is not None)
        return any(self._knowing[p.name] - (p.name in own) == others_count for p in protocols)

    def vote(self) -> str:
        """The protocol that most members prefer; of equals, the one of the earlier member."""
        common = {name for name, count in self._knowing.items() if count == len(self)}
        assert common, "members without a common protocol"  # broker.groups.P2
        votes = Counter(next(p.name for p in m.protocols if p.name in common) for m in self)
        return votes.most_common(1)[0][0]  # of equals the one counted first (broker.groups.P3)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((m.rebalance_timeout_ms for m in self), default=0)

    def all_joined(self) -> bool:
        return all(m.join_ticket is not None for m in self)

    def introduce(self, protocol: str) -> tuple[JoinedMember, ...]:
        """All members with their metadata, for the leader."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(protocol)) for m in self)

    def topics(self, protocol: str) -> frozenset[str] | None:
        """The topics of all members; None if the metadata of one is no subscription."""
        subscriptions = [m.topics(protocol) for m in self]
        known = [topics for topics in subscriptions if topics is not None]
        return frozenset().union(*known) if len(known) == len(subscriptions) else None

    def _count(self, member: GroupMember, sign: int) -> None:
        if sign > 0:
            member.size = member_size(member)
        self.size += sign * member.size
        for name in {p.name for p in member.protocols}:  # any order: these are sums
            self._knowing[name] += sign
            if not self._knowing[name]:
                del self._knowing[name]
