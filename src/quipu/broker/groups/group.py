"""One classic consumer group as a state machine: events in, effects out, no I/O.

When a member joins, leaves or changes its subscription, every member has to join again
(PreparingRebalance); the joins are parked until all members have joined or the rebalance timeout is
over.  The results name a leader, which assigns the partitions; all members send a sync, which is
parked until the leader's sync brings the assignments (CompletingRebalance).  Then the group is
Stable until the next change.  Each rebalance makes a new generation.

Invariants
    broker.groups.G1  Empty and Dead have no members; CompletingRebalance and Stable have some, one
                      of which is the leader
    broker.groups.G2  the generation only grows
    broker.groups.G3  joins are parked only in PreparingRebalance, syncs only in CompletingRebalance
    broker.groups.G4  every ticket gets one Respond: at once, or when its request is complete
    broker.groups.G5  a Respond with a new generation or assignment comes after the Persist that
                      makes it durable

Time is passed in; `deadline` says when the group wants the next ClockTick at the latest.
Not here: the members (members.py), which joins are allowed (admission.py), offsets (offsets.py),
futures and timers (coordinator.py).
"""

from dataclasses import dataclass, field
from typing import Final, assert_never

from quipu.broker.groups.admission import has_room, why_not_join
from quipu.broker.groups.events import (
    NO_GENERATION,
    ClockTick,
    Effect,
    Event,
    GroupSnapshot,
    HeartbeatResult,
    Join,
    JoinResult,
    Leave,
    Leaver,
    LeaveResult,
    MemberDisconnected,
    MemberHeartbeat,
    MonotonicMs,
    Persist,
    PersistFailed,
    Respond,
    Sync,
    SyncResult,
)
from quipu.broker.groups.limits import GROUP_SIZE, PENDING_SIZE, GroupLimits, text_size
from quipu.broker.groups.members import GroupMember, GroupMembers, newcomer
from quipu.broker.groups.states import State, advance
from quipu.model.errors import Code

CONSUMER: Final = "consumer"  # the protocol type of consumers
NEWCOMER_TIMEOUT_MS: Final = 300_000  # then a parked new member is removed: its client may be gone

_WITHOUT_MEMBERS: Final = frozenset({State.EMPTY, State.DEAD})
_REBALANCED: Final = frozenset({State.COMPLETING_REBALANCE, State.STABLE})


@dataclass(slots=True)
class Group:
    """One group; `handle` is the only way to change it."""

    group_id: str
    limits: GroupLimits
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None  # None: no member ever joined; tools commit its offsets
    protocol: str | None = None
    members: GroupMembers = field(default_factory=GroupMembers)
    # -- the following is not durable
    pending: dict[str, MonotonicMs] = field(default_factory=dict)  # got an id, not joined yet
    unsynced: dict[str, None] = field(default_factory=dict)  # joined, but sent no sync yet
    join_deadline: MonotonicMs | None = None  # of PreparingRebalance
    sync_deadline: MonotonicMs | None = None  # until when the unsynced are awaited
    _initial: bool = False  # the group was empty: it waits for more members
    _initial_left_ms: int = 0  # by how much that wait can still be prolonged
    _grew: bool = False  # a member joined during that wait
    _effects: list[Effect] = field(default_factory=list)

    # -- the machine

    def handle(self, event: Event, now: MonotonicMs) -> list[Effect]:
        generation = self.generation
        match event:
            case MemberHeartbeat():
                self._heartbeat(event, now)
            case Join():
                self._join(event, now)
            case Sync():
                self._sync(event, now)
            case Leave():
                self._leave(event, now)
            case MemberDisconnected():
                self._disconnected(event, now)
            case ClockTick():
                self._tick(now)
            case PersistFailed():
                if self.state in _REBALANCED:
                    self._prepare(now)
            case _:
                assert_never(event)
        assert self.generation in (generation, generation + 1)  # broker.groups.G2
        self.invariants()
        effects, self._effects = self._effects, []
        return effects

    def invariants(self) -> None:
        """Check the invariants after each event; O(1), so it stays on in production."""
        assert self.members.leader is not None or self.state not in _REBALANCED  # broker.groups.G1
        assert not len(self.members) or self.state not in _WITHOUT_MEMBERS  # broker.groups.G1
        assert self.join_deadline is None or self.state is State.PREPARING_REBALANCE
        assert self.sync_deadline is None or self.unsynced
        assert self.protocol is not None or self.state not in _REBALANCED  # broker.groups.P2

    def deadline(self) -> MonotonicMs | None:
        """When the group needs the next ClockTick; None if only other events can change it."""
        times = [m.deadline for m in self.members if m.can_expire]
        times += self.pending.values()
        times += [t for t in (self.join_deadline, self.sync_deadline) if t is not None]
        return min(times, default=None)

    @property
    def size(self) -> int:
        """The bytes that the group uses, as limits.py counts them."""
        return (GROUP_SIZE + text_size(self.group_id) + self.members.size
                + PENDING_SIZE * len(self.pending))

    def snapshot(self) -> GroupSnapshot:
        """The durable state of the group; restore.py builds a group from it."""
        assert self.state is not State.DEAD
        return GroupSnapshot(
            self.group_id, self.state.value, self.generation, self.protocol_type, self.protocol,
            self.members.leader, tuple(m.snapshot() for m in self.members))

    def kill(self) -> None:
        """Make the group Dead; it must be empty."""
        self._advance(State.DEAD)
        self.pending.clear()

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: MonotonicMs
    ) -> Code:
        """Whether this sender may commit offsets now; a commit counts as a heartbeat."""
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return Code.NONE  # a tool, or a consumer that assigns partitions itself
        found = self.find_member(member_id, instance_id)
        if isinstance(found, Code):
            return found
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if self.state is State.COMPLETING_REBALANCE:
            return Code.REBALANCE_IN_PROGRESS  # another member may own the partitions now
        found.heard(now)
        return Code.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that the members are subscribed to; None if they may be any."""
        if not len(self.members):
            return frozenset()
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        return self.members.topics(self.protocol)

    # -- join

    def _join(self, event: Join, now: MonotonicMs) -> None:
        known = self.members.find(event.member_id) or (
            self.members.find_static(event.instance_id) if not event.member_id else None)
        refusal = why_not_join(self, event, known)
        if refusal is not Code.NONE:
            self._effects.append(Respond(event.ticket, JoinResult(refusal, event.member_id)))
        elif event.member_id in self.pending:
            self._admit(event, event.member_id, now)
        elif event.member_id:
            assert known is not None
            self._rejoin(event, known, now)
        elif known is not None:
            self._replace(event, known, now)
        elif event.instance_id is None and event.needs_known_id:
            self.pending[event.new_member_id] = MonotonicMs(now + event.session_timeout_ms)
            result = JoinResult(Code.MEMBER_ID_REQUIRED, event.new_member_id)
            self._effects.append(Respond(event.ticket, result))
        else:
            self._admit(event, event.new_member_id, now)

    def _admit(self, event: Join, member_id: str, now: MonotonicMs) -> None:
        """Add a new member; all members have to join again."""
        self.pending.pop(member_id, None)
        member = newcomer(event, member_id)
        if not len(self.members):
            self.protocol_type = event.protocol_type
        self.members.add(member)
        self._grew = True
        self._park_join(member, event, now)

    def _rejoin(self, event: Join, member: GroupMember, now: MonotonicMs) -> None:
        """A member joins again: for a rebalance, or because it lost the response."""
        unchanged = member.asks_for_the_same(event)
        is_leader = self.members.leader == member.member_id
        lost_response = unchanged and (
            self.state is State.COMPLETING_REBALANCE
            or (self.state is State.STABLE and not is_leader))  # a leader wants a rebalance
        if lost_response:
            member.heard(now)
            members = is_leader and self.state is State.COMPLETING_REBALANCE
            result = self._joined(member, with_members=members)
            self._effects.append(Respond(event.ticket, result))
        else:
            self.members.update(member, event)
            self._park_join(member, event, now)

    def _replace(self, event: Join, member: GroupMember, now: MonotonicMs) -> None:
        """A static member is back and gets a new id; requests with the old id are fenced.

        The assignment stays valid if the chosen protocol and the topics are as before.  The rest of
        a consumer's metadata changes with each start, and must not cause a rebalance.
        """
        old_id, old_leader = member.member_id, self.members.leader
        self._respond_to_parked(member, Code.FENCED_INSTANCE_ID)
        self.members.rename(member, event.new_member_id)
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[member.member_id] = None
        topics = member.topics(self.protocol)
        self.members.update(member, event)
        is_valid = self.members.vote() == self.protocol and member.topics(self.protocol) == topics
        if self.state is not State.STABLE or not is_valid:
            self._park_join(member, event, now)
            return
        member.heard(now)
        self._effects.append(Persist(self.snapshot()))
        is_leader = self.members.leader == member.member_id
        skip = is_leader and event.may_skip_assignment
        result = self._joined(member, with_members=skip)._replace(skip_assignment=skip)
        if is_leader and not skip:  # an older client must not assign as the leader
            result = result._replace(leader=old_leader or "")
        self._effects.append(Respond(event.ticket, result))

    def _park_join(self, member: GroupMember, event: Join, now: MonotonicMs) -> None:
        """Keep the join until its generation begins (broker.groups.G3, broker.groups.G4)."""
        self._respond_to_parked(member, Code.REBALANCE_IN_PROGRESS)  # a join that was sent before
        member.join_ticket = event.ticket
        if member.is_new:
            member.deadline = MonotonicMs(now + NEWCOMER_TIMEOUT_MS)
        self._membership_changed(now)

    # -- rebalance

    def _membership_changed(self, now: MonotonicMs) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            self._prepare(now)
        else:
            self._complete_if_all_joined(now)

    def _prepare(self, now: MonotonicMs) -> None:
        """Begin a rebalance; members learn of it from their next heartbeat or sync."""
        for member in self.members:
            self._respond_to_sync(member, SyncResult(Code.REBALANCE_IN_PROGRESS))
        self.unsynced.clear()
        self.sync_deadline = None
        self._initial = self.state is State.EMPTY
        self._advance(State.PREPARING_REBALANCE)
        wait_ms = self.members.rebalance_timeout_ms()
        if self._initial:
            delay_ms = min(self.limits.initial_delay_ms, wait_ms)
            self._grew, self._initial_left_ms, wait_ms = False, wait_ms - delay_ms, delay_ms
        self.join_deadline = MonotonicMs(now + wait_ms)
        if wait_ms == 0:
            self._complete(now)
        else:
            self._complete_if_all_joined(now)

    def _complete_if_all_joined(self, now: MonotonicMs) -> None:
        if not self._initial and not self.pending and self.members.all_joined():
            self._complete(now)

    def _join_time_is_up(self, now: MonotonicMs) -> None:
        delay_ms = min(self.limits.initial_delay_ms, self._initial_left_ms)
        if self._initial and self._grew and delay_ms > 0:
            self._grew = False
            self._initial_left_ms -= delay_ms
            self.join_deadline = MonotonicMs(now + delay_ms)
        else:
            self._complete(now)

    def _complete(self, now: MonotonicMs) -> None:
        """Begin the next generation with the members that have joined."""
        for member in list(self.members):
            if member.join_ticket is None and member.instance_id is None:
                self.members.remove(member)
        self._initial = False
        if len(self.members) and not self.members.elect():
            # Only static members, and none has joined: wait for them, or for their sessions' end.
            self.join_deadline = MonotonicMs(now + max(1, self.members.rebalance_timeout_ms()))
            return
        self.join_deadline = None
        self.generation += 1
        if len(self.members):
            self.protocol = self.members.vote()
            self._advance(State.COMPLETING_REBALANCE)
        else:
            self.protocol = None
            self._advance(State.EMPTY)
        self.members.assign({})
        self._effects.append(Persist(self.snapshot()))  # broker.groups.G5: before all Responds
        if len(self.members):
            self.await_syncs(now)
        for member in self.members:
            self._respond_to_join(member, now)

    def _respond_to_join(self, member: GroupMember, now: MonotonicMs) -> None:
        """Respond to the parked join of a member; an absent static member has none."""
        if member.join_ticket is None:
            self.unsynced.pop(member.member_id)
            return
        result = self._joined(member, with_members=member.member_id == self.members.leader)
        self._effects.append(Respond(member.join_ticket, result))
        member.join_ticket = None
        member.is_new = False
        member.heard(now)

    def await_syncs(self, now: MonotonicMs) -> None:
        """Wait for a sync of every member, up to the rebalance timeout."""
        self.unsynced = {member.member_id: None for member in self.members}
        self.sync_deadline = MonotonicMs(now + self.members.rebalance_timeout_ms())

    def _joined(self, member: GroupMember, *, with_members: bool) -> JoinResult:
        assert self.protocol is not None
        assert self.members.leader is not None
        members = self.members.introduce(self.protocol) if with_members else ()
        return JoinResult(
            Code.NONE, member.member_id, self.generation, self.protocol_type, self.protocol,
            self.members.leader, members)

    # -- sync

    def _sync(self, event: Sync, now: MonotonicMs) -> None:
        found = self._current(event)
        if isinstance(found, Code):
            self._effects.append(Respond(event.ticket, SyncResult(found)))
        elif self.state is State.STABLE:
            found.heard(now)
            self._synced(found)
            self._effects.append(Respond(event.ticket, self._assignment(found)))
        else:
            self._respond_to_parked(found, Code.REBALANCE_IN_PROGRESS)  # an earlier sync
            found.sync_ticket = event.ticket
            self._synced(found)
            if found.member_id == self.members.leader:
                self._assign(dict(event.assignments), now)

    def _current(self, event: Sync) -> GroupMember | Code:
        """The member that syncs in the current generation, or an error code."""
        found = self.find_member(event.member_id, event.instance_id)
        if isinstance(found, Code):
            return found
        if event.generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if event.protocol_type not in (None, self.protocol_type):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if event.protocol not in (None, self.protocol):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING_REBALANCE:
            return Code.REBALANCE_IN_PROGRESS
        size = sum(len(mine) for _, mine in event.assignments)
        if not has_room(self, size - self.members.assignments_size):
            return Code.GROUP_MAX_SIZE_REACHED
        return found

    def _synced(self, member: GroupMember) -> None:
        self.unsynced.pop(member.member_id, None)
        if not self.unsynced:
            self.sync_deadline = None

    def _assign(self, assignments: dict[str, bytes], now: MonotonicMs) -> None:
        """Take the leader's assignments; a member that is left out gets an empty one."""
        self.members.assign(assignments)
        self._advance(State.STABLE)
        self._effects.append(Persist(self.snapshot()))
        for member in self.members:
            if member.sync_ticket is not None:
                member.heard(now)
                self._respond_to_sync(member, self._assignment(member))

    def _assignment(self, member: GroupMember) -> SyncResult:
        return SyncResult(Code.NONE, self.protocol_type, self.protocol, member.assignment)

    # -- heartbeat, leave, time

    def _heartbeat(self, event: MemberHeartbeat, now: MonotonicMs) -> None:
        found = self.find_member(event.member_id, event.instance_id)
        if isinstance(found, Code):
            code = found
        elif event.generation != self.generation:
            code = Code.ILLEGAL_GENERATION
        else:
            found.heard(now)
            is_preparing = self.state is State.PREPARING_REBALANCE
            code = Code.REBALANCE_IN_PROGRESS if is_preparing else Code.NONE
        self._effects.append(Respond(event.ticket, HeartbeatResult(code)))

    def _leave(self, event: Leave, now: MonotonicMs) -> None:
        before = (len(self.members), len(self.pending))
        codes = tuple(self._remove_leaver(leaver) for leaver in event.leavers)
        self._after_removal(before, now)
        self._effects.append(Respond(event.ticket, LeaveResult(codes)))

    def _remove_leaver(self, leaver: Leaver) -> Code:
        if not leaver.member_id:
            static = self.members.find_static(leaver.instance_id)
            found: GroupMember | Code = static if static is not None else Code.UNKNOWN_MEMBER_ID
        elif leaver.instance_id is None and leaver.member_id in self.pending:
            del self.pending[leaver.member_id]
            return Code.NONE
        else:
            found = self.find_member(leaver.member_id, leaver.instance_id)
        if isinstance(found, Code):
            return found
        self._remove(found)
        return Code.NONE

    def _disconnected(self, event: MemberDisconnected, now: MonotonicMs) -> None:
        """The client of a parked request has disconnected.

        A new member, which has been in no generation, is removed.  Other members have a session
        timeout to come back, and a rebalance waits for them as for any member that has not joined.
        """
        before = (len(self.members), len(self.pending))
        for member in list(self.members):
            if member.join_ticket == event.ticket:
                member.join_ticket = None
                member.heard(now)
                if member.is_new:
                    self._remove(member)
            elif member.sync_ticket == event.ticket:
                member.sync_ticket = None
                member.heard(now)
        self._after_removal(before, now)

    def _tick(self, now: MonotonicMs) -> None:
        before = (len(self.members), len(self.pending))
        self.pending = {name: t for name, t in self.pending.items() if t > now}
        for member in list(self.members):
            if member.can_expire and member.deadline <= now:
                self._remove(member)
        if self.sync_deadline is not None and self.sync_deadline <= now:
            for member_id in self.unsynced.copy():
                silent = self.members.find(member_id)
                assert silent is not None
                self._remove(silent)
        self._after_removal(before, now)
        if self.join_deadline is not None and self.join_deadline <= now:
            self._join_time_is_up(now)

    def _after_removal(self, before: tuple[int, int], now: MonotonicMs) -> None:
        """Rebalance if members were removed; a rebalance no longer waits for pending ones."""
        if len(self.members) < before[0]:
            self._membership_changed(now)
        elif len(self.pending) < before[1] and self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_joined(now)

    def _remove(self, member: GroupMember) -> None:
        self._respond_to_parked(member, Code.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self._synced(member)

    # -- small parts

    def _advance(self, target: State) -> None:
        self.state = advance(self.state, target)

    def find_member(self, member_id: str, instance_id: str | None) -> GroupMember | Code:
        """The member that a request names, or an error code."""
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            static = self.members.find_static(instance_id)
            if static is None:
                return Code.UNKNOWN_MEMBER_ID
            return static if static.member_id == member_id else Code.FENCED_INSTANCE_ID
        return self.members.find(member_id) or Code.UNKNOWN_MEMBER_ID

    def _respond_to_parked(self, member: GroupMember, code: Code) -> None:
        if member.join_ticket is not None:
            self._effects.append(Respond(member.join_ticket, JoinResult(code, member.member_id)))
            member.join_ticket = None
        self._respond_to_sync(member, SyncResult(code))

    def _respond_to_sync(self, member: GroupMember, result: SyncResult) -> None:
        if member.sync_ticket is not None:
            self._effects.append(Respond(member.sync_ticket, result))
            member.sync_ticket = None


assert NO_GENERATION < 0 <= Group("", GroupLimits()).generation  # no member has NO_GENERATION
