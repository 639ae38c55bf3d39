"""The group's state machine: whatever happens, in whatever order, its invariants hold."""

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from quipu.broker.groups.events import (
    ClockTick,
    Event,
    GroupProtocol,
    GroupResult,
    GroupSnapshot,
    Join,
    JoinResult,
    Leave,
    Leaver,
    LeaveResult,
    MemberHeartbeat,
    MonotonicMs,
    Persist,
    PersistFailed,
    Sync,
    SyncResult,
    Ticket,
)
from quipu.broker.groups.group import NEWCOMER_TIMEOUT_MS, Group
from quipu.broker.groups.limits import GroupLimits
from quipu.broker.groups.restore import restore
from quipu.broker.groups.states import State
from quipu.model.errors import Code
from tests.broker.groups.conversation import subscription

CLIENTS = st.sampled_from("abcd")
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("odd",)])


class GroupMachine(RuleBasedStateMachine):
    """Clients that do anything at any time, against one group in virtual time."""

    @initialize(delay_ms=st.sampled_from([0, 300]))
    def start(self, delay_ms: int) -> None:
        self.limits = GroupLimits(initial_delay_ms=delay_ms, member_count_max=3)
        self.group = Group("g", self.limits)
        self.now = MonotonicMs(0)
        self.tickets = count(1)
        self.waiting: dict[Ticket, str] = {}
        self.ids: dict[str, str] = {}
        self.next: dict[str, str] = {}  # what a client that behaves would do
        self.generation = 0
        self.kept: GroupSnapshot | None = None

    @rule(name=CLIENTS, static=st.booleans(), old=st.booleans(), names=PROTOCOLS,
          topic=st.sampled_from("tu"))
    def join(self, *, name: str, static: bool, old: bool, names: tuple[str, ...], topic: str
             ) -> None:
        ticket = Ticket(next(self.tickets))
        self.ask(name, Join(
            ticket=ticket, member_id=self.ids.get(name, ""), new_member_id=f"{name}{ticket}",
            instance_id=name.upper() if static else None, client_id=name, client_host="/h",
            session_timeout_ms=10_000, rebalance_timeout_ms=30_000, protocol_type="consumer",
            protocols=tuple(GroupProtocol(n, subscription([topic])) for n in names),
            needs_known_id=not old, may_skip_assignment=not old))

    @rule(names=st.lists(CLIENTS, min_size=1, max_size=12))
    def behave(self, names: list[str]) -> None:
        """What real clients do, one after the other; one that waits for a result waits."""
        for name in names:
            if name in self.waiting.values():
                continue
            match self.next.get(name, "join"):
                case "sync":
                    self.sync(name=name, stale=False)
                case "heartbeat":
                    self.heartbeat(name)
                case _:
                    self.join(name=name, static=False, old=False, names=("range",), topic="t")

    @rule(name=CLIENTS, stale=st.booleans())
    def sync(self, *, name: str, stale: bool) -> None:
        assignments = tuple((member.member_id, b"own") for member in self.group.members)
        self.ask(name, Sync(
            Ticket(next(self.tickets)), self.ids.get(name, ""), None,
            self.group.generation - stale, None, None, assignments))

    @rule(name=CLIENTS)
    def heartbeat(self, name: str) -> None:
        self.ask(name, MemberHeartbeat(
            Ticket(next(self.tickets)), self.ids.get(name, ""), None, self.group.generation))

    @rule(name=CLIENTS, static=st.booleans())
    def leave(self, *, name: str, static: bool) -> None:
        leaver = Leaver(self.ids.get(name, ""), name.upper() if static else None)
        self.ask(name, Leave(Ticket(next(self.tickets)), (leaver,)))

    @rule(name=CLIENTS)
    def forget(self, name: str) -> None:
        self.ids.pop(name, None)

    @rule(passed_ms=st.sampled_from([1, 300, 2_000, 5_000, 10_000, 30_000]))
    def wait(self, passed_ms: int) -> None:
        end = self.now + passed_ms
        while (deadline := self.group.deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.handle(ClockTick())
        self.now = MonotonicMs(end)

    @precondition(lambda self: self.kept is not None)
    @rule()
    def restart(self) -> None:
        """Only what was persisted is left, and no client waits for a result any more."""
        assert self.kept is not None
        self.group = restore(self.kept, self.limits, self.now)
        assert self.group.snapshot() == self.kept
        self.waiting.clear()
        self.generation = self.group.generation

    @rule()
    def disk_fails(self) -> None:
        self.handle(PersistFailed())

    # -- what the rules share

    def ask(self, name: str, event: Join | Sync | MemberHeartbeat | Leave) -> None:
        self.waiting[event.ticket] = name
        self.handle(event)

    def handle(self, event: Event) -> None:
        for effect in self.group.handle(event, self.now):
            if isinstance(effect, Persist):
                self.kept = effect.snapshot
            else:
                name = self.waiting.pop(effect.ticket)  # broker.groups.G4: one Respond each
                self.check_result(name, effect.result)

    def check_result(self, name: str, result: GroupResult) -> None:
        self.remember(name, result)
        if isinstance(result, JoinResult) and result.code is Code.NONE:
            assert self.kept is not None  # broker.groups.G5
            assert self.kept.generation == result.generation
            assert not result.members or result.leader == result.member_id
        if isinstance(result, SyncResult) and result.code is Code.NONE:
            assert self.kept is not None  # broker.groups.G5
            assert self.kept.state == State.STABLE
            assert result.assignment == b"own"
        if isinstance(result, LeaveResult) and result.codes == (Code.NONE,):
            assert self.ids.pop(name, "") not in self.group.members

    def remember(self, name: str, result: GroupResult) -> None:
        if isinstance(result, JoinResult) and result.code in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            self.ids[name] = result.member_id
        code = result.codes[0] if isinstance(result, LeaveResult) else result.code
        if code is Code.UNKNOWN_MEMBER_ID:
            self.ids.pop(name, None)
        if code is Code.NONE and not isinstance(result, LeaveResult):
            self.next[name] = "sync" if isinstance(result, JoinResult) else "heartbeat"
        else:
            self.next[name] = "join"

    @invariant()
    def the_group_is_sound(self) -> None:
        """One leader, parked requests where they belong, nobody assigned twice or not at all."""
        group, members = self.group, list(self.group.members)
        assert group.generation >= self.generation  # broker.groups.G2
        self.generation = group.generation
        assert len(members) <= self.limits.member_count_max
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert group.members.leader in group.members  # broker.groups.G1
            assert group.protocol is not None
        else:
            assert group.state is State.PREPARING_REBALANCE or not members  # broker.groups.G1
        for member in members:  # broker.groups.G3
            assert (member.join_ticket is None) or group.state is State.PREPARING_REBALANCE
            assert (member.sync_ticket is None) or group.state is State.COMPLETING_REBALANCE
            assert group.state is not State.STABLE or member.assignment == b"own"
        parked = {t for m in members for t in (m.join_ticket, m.sync_ticket) if t is not None}
        assert parked == set(self.waiting)  # broker.groups.G4

    @invariant()
    def something_will_happen(self) -> None:
        """Whoever waits is waited for: there is a time at which the group looks again."""
        assert not self.waiting or self.group.deadline() is not None

    def teardown(self) -> None:
        """Without further requests the group empties, and every request has had a result."""
        self.wait(3 * NEWCOMER_TIMEOUT_MS)
        assert not self.waiting
        assert self.group.state is State.EMPTY
        assert self.group.deadline() is None


TestGroup = GroupMachine.TestCase
TestGroup.__doc__ = "K3: random joins, leaves, time-outs and restarts keep a group's invariants."
