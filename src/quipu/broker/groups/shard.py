"""The groups of one partition of `__consumer_offsets`, while this node leads it.

    request -> event -> Group.handle -> effects -> group log -> answer

When leading begins the log is read and, once all of it is committed, the groups are served; when
it ends everybody who waits is sent away, and whoever leads next reads the same log.

Invariants
    D1  an answer that comes after a Persist waits until that is kept; if it cannot be, the answer
        is COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, and the group rebalances
    D2  every parked request is answered, at the latest when leading ends or the node stops
    D3  a group's timer is armed for its deadline or earlier, never later
    D4  nothing is told of the groups unless `unavailable` is NONE

Records are of batch type GROUP: clients that fetch the partition see an empty one.
Not here: what a group does (group.py), offsets (offsets.py), which shard is whose (coordinator.py).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from quipu.broker.groups import offsets
from quipu.broker.groups.events import (
    Answer,
    Effect,
    Gone,
    GroupImage,
    Heard,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    Left,
    MonotonicMs,
    Persist,
    PersistFailed,
    Reply,
    Sync,
    Synced,
    Tick,
    Ticket,
)
from quipu.broker.groups.group import Group
from quipu.broker.groups.group_log import CommandLog, GroupLog
from quipu.broker.groups.limits import GROUP_ID_SIZE_MAX, GroupUsage
from quipu.broker.groups.records import (
    GroupDeleted,
    Record,
    decode_record,
    encode_record,
    record_of,
)
from quipu.broker.groups.registry import Entry, Registry
from quipu.broker.groups.restore import welcome
from quipu.broker.groups.states import State
from quipu.model.errors import Code, QuipuError
from quipu.runtime.admission import address_key
from quipu.runtime.spawn import spawn
from quipu.runtime.wakeups import Wakeups

if TYPE_CHECKING:  # it holds the groups too
    from quipu.broker.context import Broker

_log = logging.getLogger(__name__)

GROUPS_PER_TURN: Final = 100  # that are looked at before others get their turn
NAME_LENGTH_MAX: Final = 200  # of a client's name as part of its member id
MINUTE_MS: Final = 60_000
_MOVED: Final = frozenset({Code.NOT_COORDINATOR, Code.NOT_LEADER_OR_FOLLOWER})


class NodeGroups(Protocol):
    """What all shards of a node share; see `coordinator.Groups`."""

    usage: GroupUsage

    def ticket(self) -> Ticket: ...

    def reclaim(self) -> None:
        """Forget groups that nothing is known of, so that there is room for new ones."""
        ...


class Shard:
    """The groups that have one partition."""

    def __init__(self, broker: "Broker", log: CommandLog, node: NodeGroups) -> None:
        self._broker = broker
        self._node = node
        self.registry = Registry(node.usage)
        self.log = GroupLog(log, lambda: map(encode_record, self.registry.records()))
        self.unavailable = Code.COORDINATOR_LOAD_IN_PROGRESS  # NONE while groups are served
        self._parked: dict[Ticket, tuple[asyncio.Future[Answer], Answer]] = {}
        self._wakeups = Wakeups()  # of those who waited
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._loading: asyncio.Task[None] | None = None

    # -- life

    def start(self) -> None:
        """Begin to load; see `loaded`."""
        self._loading = spawn(self._load(), "load groups")

    async def loaded(self, timeout_seconds: float | None = None) -> None:
        """Return when it is clear whether the groups can be served, or after that time."""
        if self._loading is not None:
            await asyncio.wait([self._loading], timeout=timeout_seconds)

    async def _load(self) -> None:
        """Take up the groups.  If they cannot be read, everything else works."""
        now = self.now()
        try:
            await self.log.load(lambda data: self.registry.apply(decode_record(data), now))
        except QuipuError as error:
            if self.unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS:
                _log.error("groups cannot be read, and are not served: %s", error)
                self.unavailable = Code.COORDINATOR_NOT_AVAILABLE
            return
        topics = self._broker.cluster.state.topics_by_id
        async for entry in self._in_turns():
            self.registry.drop_offsets(  # of topics that were deleted
                entry, [key for key in entry.offsets if key[0] not in topics])
        self.unavailable = Code.NONE
        async for entry in self._in_turns():
            welcome(entry.group, self.now())  # the wait was not their fault
            self._arm(entry)

    async def _in_turns(self) -> AsyncIterator[Entry]:
        """Every group that is still there; others have their turn in between."""
        for number, group_id in enumerate(list(self.registry.entries)):
            entry = self.registry.entries.get(group_id)
            if entry is not None:
                yield entry
            if number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    def end(self, code: Code) -> None:
        """Send everybody away with `code`, and touch the log no more (D2)."""
        assert code is not Code.NONE
        self.unavailable = code
        if self._loading is not None:
            self._loading.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for ticket, (_, refusal) in list(self._parked.items()):
            self._answer(Reply(ticket, refused(refusal, code)))

    def close(self) -> None:
        """Another node leads: what is not written yet must not be."""
        self.end(Code.NOT_COORDINATOR)
        self.log.close()
        self.registry.close()

    def now(self) -> MonotonicMs:
        return MonotonicMs(int(self._broker.clock.monotonic() * 1000))

    # -- membership

    async def join(self, group_id: str, join: Join) -> Joined:
        """Be part of the next generation; returns when it begins."""
        settings = self._broker.settings
        shortest = settings.group_min_session_timeout_ms
        if self.unavailable is not Code.NONE:
            return Joined(self.unavailable, join.member_id)
        if not 0 < len(group_id) <= GROUP_ID_SIZE_MAX:
            return Joined(Code.INVALID_GROUP_ID, join.member_id)
        if not shortest <= join.session_timeout_ms <= settings.group_max_session_timeout_ms:
            return Joined(Code.INVALID_SESSION_TIMEOUT, join.member_id)
        entry = self.registry.entries.get(group_id)
        if entry is None and join.member_id:
            return Joined(Code.UNKNOWN_MEMBER_ID, join.member_id)
        if entry is None:
            entry = self.create(group_id, join.client_host.removeprefix("/"))
        if entry is None:
            return Joined(Code.POLICY_VIOLATION, join.member_id)
        join = join._replace(new_member_id=self._member_id(join))
        refusal = Joined(Code.COORDINATOR_NOT_AVAILABLE, join.member_id)
        answer = await self._ask(entry, join, refusal)
        assert isinstance(answer, Joined)
        return answer

    async def sync(self, group_id: str, sync: Sync) -> Synced:
        """Get what is one's own; returns when the leader has decided."""
        entry, code = self._find(group_id)
        if entry is None:
            return Synced(code)
        answer = await self._ask(entry, sync, Synced(Code.COORDINATOR_NOT_AVAILABLE))
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(self, group_id: str, heartbeat: Heartbeat) -> Code:
        """Say that a member is alive, and hear whether it has to join anew."""
        entry, code = self._find(group_id)
        if entry is None:
            return code
        (effect,) = entry.group.handle(heartbeat, self.now())
        assert isinstance(effect, Reply)
        assert isinstance(effect.answer, Heard)
        return effect.answer.code

    async def leave(self, group_id: str, leavers: tuple[Leaver, ...]) -> tuple[Code, ...]:
        """Take members out; one code for each."""
        entry, code = self._find(group_id)
        if entry is None:
            return (code,) * len(leavers)
        refusal = Left((Code.COORDINATOR_NOT_AVAILABLE,) * len(leavers))
        answer = await self._ask(entry, Leave(self._node.ticket(), leavers), refusal)
        assert isinstance(answer, Left)
        return answer.codes

    async def delete(self, group_id: str) -> Code:
        """Forget a group without members, and its offsets."""
        if self.unavailable is not Code.NONE:
            return self.unavailable
        entry = self.registry.entries.get(group_id)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        if entry.group.state is not State.EMPTY:
            return Code.NON_EMPTY_GROUP
        return await self.keep(
            GroupDeleted(group_id=group_id), lambda: self._deleted(group_id))

    def _deleted(self, group_id: str) -> None:
        """That a group is deleted is kept, and so are all commits that came before.

        Whoever joined or commits meanwhile comes after it in the log: then the group stays, without
        the offsets that it had.
        """
        entry = self.registry.entries.get(group_id)
        if entry is not None:
            self.registry.drop_offsets(entry, list(entry.offsets))
            if entry.is_blank:
                self.forget(entry)

    # -- for handlers and offsets

    def all(self) -> list[Group]:
        return [entry.group for entry in self.registry.entries.values()]

    def find(self, group_id: str) -> Group | None:
        entry = self.registry.entries.get(group_id)
        return entry.group if entry is not None else None

    def create(self, group_id: str, client_host: str) -> Entry | None:
        """A new group, or None, with a line in the log, if there are too many."""
        made_by = address_key(client_host)
        if not self.registry.usage.may_make(made_by):
            self._node.reclaim()
        return self.registry.create(group_id, self._broker.clock.now_ms(), made_by=made_by)

    def forget(self, entry: Entry) -> None:
        """Let go of a group that has no members."""
        entry.group.kill()
        self.registry.forget(entry)
        self._arm(entry)

    def forget_blank(self) -> None:
        """Let go of groups without members and offsets: nothing is lost by it."""
        for entry in list(self.registry.entries.values()):
            if entry.is_blank:
                self.forget(entry)
                record = GroupDeleted(group_id=entry.group.group_id)
                self.log.append([encode_record(record)], lambda _: None)

    async def keep(self, record: Record, apply: Callable[[], None] = lambda: None) -> Code:
        """Make `record` durable, then apply it, in the order of the log; E3."""
        done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()

        def kept(error: Exception | None) -> None:
            if error is None:
                apply()  # now: the next thing that happens may be a snapshot
            if not done.done():  # who asked may be gone
                done.set_result(_code_of(error))

        if self.log.is_full:
            return Code.COORDINATOR_NOT_AVAILABLE  # the client tries again
        self.log.append([encode_record(record)], kept)
        return await done

    # -- events and effects

    def _find(self, group_id: str) -> tuple[Entry | None, Code]:
        """The group of a member's request, or what to answer instead."""
        if self.unavailable is not Code.NONE:
            return None, self.unavailable
        if not group_id:
            return None, Code.INVALID_GROUP_ID
        return self.registry.entries.get(group_id), Code.UNKNOWN_MEMBER_ID

    def _member_id(self, join: Join) -> str:
        name = join.instance_id if join.instance_id is not None else join.client_id
        return f"{name[:NAME_LENGTH_MAX]}-{self._broker.rng.uuid()}"

    async def _ask(self, entry: Entry, event: Join | Sync | Leave, refusal: Answer) -> Answer:
        if self.log.is_full:
            return refusal  # the client tries again
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._parked[event.ticket] = (future, refusal)
        self._perform(entry, entry.group.handle(event, self.now()))
        try:
            return await future
        except asyncio.CancelledError:
            self._gone(entry, event.ticket)
            raise

    def _gone(self, entry: Entry, ticket: Ticket) -> None:
        """Whoever waited has closed its connection: the group need not wait for it."""
        parked = self._parked.pop(ticket, None)
        is_served = entry.group.state is not State.DEAD and self.unavailable is Code.NONE
        if parked is not None and is_served:
            self._perform(entry, entry.group.handle(Gone(ticket), self.now()))

    def _perform(self, entry: Entry, effects: list[Effect]) -> None:
        """Carry out effects in order; what follows a Persist waits for it (D1)."""
        images: list[GroupImage] = []
        later: list[Reply] = []
        for effect in effects:
            if isinstance(effect, Persist):
                images.append(effect.image)
            elif images:
                later.append(effect)
            else:
                self._answer(effect)
        if images:
            now_ms = self._broker.clock.now_ms()
            entry.empty_since_ms = now_ms
            commands = [encode_record(record_of(image, now_ms)) for image in images]
            self.log.append(commands, partial(self._persisted, entry, later))
        if entry.is_blank and entry.group.generation == 0:
            self.forget(entry)  # nobody came, and nothing is known of it
        else:
            self.registry.count(entry)
            self._arm(entry)

    def _persisted(self, entry: Entry, replies: list[Reply], error: Exception | None) -> None:
        for ticket, answer in replies:
            if error is not None and ticket in self._parked:
                refusal = self._parked[ticket][1]
                self._answer(Reply(ticket, refused(refusal, _code_of(error))))
            else:
                self._answer(Reply(ticket, answer))
        is_served = entry.group.state is not State.DEAD and self.unavailable is Code.NONE
        if error is not None and is_served:
            self._perform(entry, entry.group.handle(PersistFailed(), self.now()))

    def _answer(self, reply: Reply) -> None:
        parked = self._parked.pop(reply.ticket, None)
        if parked is not None:
            self._wakeups.soon(partial(_wake, parked[0], reply.answer))

    # -- time

    def _arm(self, entry: Entry) -> None:
        """Have the group looked at when something falls due (D3)."""
        group = entry.group
        timer = self._timers.pop(group.group_id, None)
        if timer is not None:
            timer.cancel()
        is_served = group.state is not State.DEAD and self.unavailable is Code.NONE
        deadline = group.deadline() if is_served else None
        if deadline is not None:
            wait_seconds = max(0, deadline - self.now()) / 1000
            self._timers[group.group_id] = asyncio.get_running_loop().call_later(
                wait_seconds, self.tick, entry)

    def tick(self, entry: Entry) -> None:
        """Time has passed; members that were not heard in time are gone."""
        if entry.group.state is not State.DEAD and self.unavailable is Code.NONE:
            before = len(entry.group.members)
            self._perform(entry, entry.group.handle(Tick(), self.now()))
            if len(entry.group.members) < before:
                self._broker.limited.info(
                    "members timed out", "group %r: %d of %d members timed out",
                    entry.group.group_id, before - len(entry.group.members), before)

    def expire_offsets(self) -> None:
        """Forget offsets that are past their time."""
        broker = self._broker
        offsets.expire(
            self, broker.cluster.state, broker.limited, now_ms=broker.clock.now_ms(),
            retention_ms=broker.settings.offsets_retention_minutes * MINUTE_MS)


def _wake(waiting: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not waiting.done():  # who asked may be gone
        waiting.set_result(answer)


def refused(answer: Answer, code: Code) -> Answer:
    """The same kind of answer, which says `code`."""
    if isinstance(answer, Left):
        return Left((code,) * len(answer.codes))
    return answer._replace(code=code)


def _code_of(error: Exception | None) -> Code:
    """What a client is told when something could not be kept, or could."""
    if error is None:
        return Code.NONE
    moved = isinstance(error, QuipuError) and error.code in _MOVED
    return Code.NOT_COORDINATOR if moved else Code.COORDINATOR_NOT_AVAILABLE
