"""The groups of one partition of `__consumer_offsets`, while this node leads it.

    request -> event -> Group.handle -> effects -> commands in the log -> response

When this node begins to lead, the log is read and, once all of it is committed, the groups are
served; when it stops to lead, every waiting request gets an error, and the next leader reads the
same log.

Invariants
    broker.groups.D1  a Respond that comes after a Persist waits until the snapshot is durable; if
                      the write fails, the request gets COORDINATOR_NOT_AVAILABLE or
                      NOT_COORDINATOR, and the group rebalances
    broker.groups.D2  every parked request gets a result, at the latest when this node stops to lead
                      or stops
    broker.groups.D3  a group's timer is armed for its deadline or earlier, never later

Records have Kafka's format (kafka_records.py): clients that fetch the partition can read them.
Not here: loading and writing the log (coordinators/), what a group does (group.py), offsets
(offsets.py), which shard a group belongs to (coordinators/shards.py).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from quipu.broker.coordinators.command_writer import CommandLog
from quipu.broker.coordinators.record_log import KeyedRecord
from quipu.broker.coordinators.shard import CoordinatorShard, code_of
from quipu.broker.groups import offsets
from quipu.broker.groups.events import (
    ClockTick,
    Effect,
    GroupResult,
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
    Ticket,
)
from quipu.broker.groups.group import Group
from quipu.broker.groups.kafka_records import group_records, group_tombstones, offset_tombstone
from quipu.broker.groups.limits import GROUP_ID_SIZE_MAX, GroupUsage
from quipu.broker.groups.registry import GroupEntry, GroupRegistry
from quipu.broker.groups.restore import restart_sessions
from quipu.broker.groups.states import State
from quipu.model.errors import Code
from quipu.runtime.net.admission import address_key
from quipu.runtime.wakeups import Wakeups

if TYPE_CHECKING:  # it holds the groups too
    from quipu.broker.serving.context import Broker

GROUPS_PER_TURN: Final = 100  # before other tasks run
NAME_LENGTH_MAX: Final = 200  # of the client id as part of a member id
MINUTE_MS: Final = 60_000


class NodeGroups(Protocol):
    """What the shards of a node share; see `coordinator.Groups`."""

    usage: GroupUsage

    def ticket(self) -> Ticket: ...

    def reclaim(self) -> None:
        """Delete groups without members and offsets, to make room for new ones."""
        ...


class GroupShard:
    """The groups of one partition: the state machine of a `CoordinatorShard`."""

    def __init__(
        self, broker: "Broker", name: str, log: CommandLog[KeyedRecord], node: NodeGroups
    ) -> None:
        self._broker = broker
        self._node = node
        self.registry = GroupRegistry(node.usage)
        self.core = CoordinatorShard(name, log, self)
        self._parked: dict[Ticket, tuple[asyncio.Future[GroupResult], GroupResult]] = {}
        self._wakeups = Wakeups()  # of tasks that wait for a result
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # -- the state in the log

    def apply(self, command: KeyedRecord) -> None:
        """Apply one record of the log."""
        self.registry.apply(command, self.now(), self._broker.cluster.state)

    def snapshot(self) -> Iterator[KeyedRecord]:
        """Records that build all groups and offsets from nothing."""
        return self.registry.records()

    async def prepare(self) -> None:
        """Drop the offsets of topics that were deleted since they were committed."""
        cluster = self._broker.cluster.state
        async for entry in self._in_turns():
            offsets.drop(self, entry, entry.void(cluster))
            if entry.is_blank and entry.group.generation == 0:
                self.forget(entry)  # its offsets were deleted one by one

    async def begin(self) -> None:
        """Give every member a full session again, and arm the timers of all groups."""
        async for entry in self._in_turns():
            restart_sessions(entry.group, self.now())  # the load may have taken long
            self._arm(entry)

    async def _in_turns(self) -> AsyncIterator[GroupEntry]:
        """Every group that still exists; other tasks run in between."""
        for number, group_id in enumerate(list(self.registry.entries)):
            entry = self.registry.entries.get(group_id)
            if entry is not None:
                yield entry
            if number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    # -- life

    @property
    def unavailable(self) -> Code:
        """The error code of requests while the groups are not served; NONE if they are."""
        return self.core.unavailable

    def end(self, code: Code) -> None:
        """End every waiting request with `code`, and serve no more."""
        self.core.end(code)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for ticket, (_, refusal) in list(self._parked.items()):  # broker.groups.D2
            self._respond(Respond(ticket, with_code(refusal, code)))

    def close(self) -> None:
        """End with NOT_COORDINATOR, and write nothing any more: another node leads."""
        self.end(Code.NOT_COORDINATOR)
        self.core.close()
        self.registry.close()

    def now(self) -> MonotonicMs:
        return MonotonicMs(int(self._broker.clock.monotonic() * 1000))

    # -- membership

    async def join(self, group_id: str, join: Join) -> JoinResult:
        """Join the next generation; returns when it begins."""
        settings = self._broker.settings
        shortest = settings.group_min_session_timeout_ms
        if self.unavailable is not Code.NONE:
            return JoinResult(self.unavailable, join.member_id)
        if not 0 < len(group_id) <= GROUP_ID_SIZE_MAX:
            return JoinResult(Code.INVALID_GROUP_ID, join.member_id)
        if not shortest <= join.session_timeout_ms <= settings.group_max_session_timeout_ms:
            return JoinResult(Code.INVALID_SESSION_TIMEOUT, join.member_id)
        entry = self.registry.entries.get(group_id)
        if entry is None and join.member_id:
            return JoinResult(Code.UNKNOWN_MEMBER_ID, join.member_id)
        if entry is None:
            entry = self.create(group_id, join.client_host.removeprefix("/"))
        if entry is None:
            return JoinResult(Code.POLICY_VIOLATION, join.member_id)
        join = join._replace(new_member_id=self._member_id(join))
        refusal = JoinResult(Code.COORDINATOR_NOT_AVAILABLE, join.member_id)
        result = await self._wait_for_result(entry, join, refusal)
        assert isinstance(result, JoinResult)
        return result

    async def sync(self, group_id: str, sync: Sync) -> SyncResult:
        """Get a member's assignment; returns when the leader has sent it."""
        entry, code = self._find(group_id)
        if entry is None:
            return SyncResult(code)
        refusal = SyncResult(Code.COORDINATOR_NOT_AVAILABLE)
        result = await self._wait_for_result(entry, sync, refusal)
        assert isinstance(result, SyncResult)
        return result

    def heartbeat(self, group_id: str, heartbeat: MemberHeartbeat) -> Code:
        """Note that a member is alive; returns whether it must join again, as a code."""
        entry, code = self._find(group_id)
        if entry is None:
            return code
        (effect,) = entry.group.handle(heartbeat, self.now())
        assert isinstance(effect, Respond)
        assert isinstance(effect.result, HeartbeatResult)
        return effect.result.code

    async def leave(self, group_id: str, leavers: tuple[Leaver, ...]) -> tuple[Code, ...]:
        """Remove members; returns one code for each."""
        entry, code = self._find(group_id)
        if entry is None:
            return (code,) * len(leavers)
        refusal = LeaveResult((Code.COORDINATOR_NOT_AVAILABLE,) * len(leavers))
        result = await self._wait_for_result(entry, Leave(self._node.ticket(), leavers), refusal)
        assert isinstance(result, LeaveResult)
        return result.codes

    async def delete(self, group_id: str) -> Code:
        """Delete a group without members, and its offsets."""
        if self.unavailable is not Code.NONE:
            return self.unavailable
        entry = self.registry.entries.get(group_id)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        if entry.group.state is not State.EMPTY:
            return Code.NON_EMPTY_GROUP
        tombstones = [offset_tombstone(group_id, key) for key in entry.offset_keys()]
        return await self.keep(
            tombstones + group_tombstones(group_id), lambda: self._deleted(group_id))

    def _deleted(self, group_id: str) -> None:
        """Apply a deletion that is durable, as all earlier commits are.

        A member that joined, or an offset that was committed, meanwhile comes after the deletion in
        the log: then the group stays, without its earlier offsets.
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

    def create(self, group_id: str, client_host: str) -> GroupEntry | None:
        """Create a group; None, with a log line, if there are too many."""
        made_by = address_key(client_host)
        if not self.registry.usage.may_make(made_by):
            self._node.reclaim()
        return self.registry.create(group_id, self._broker.clock.now_ms(), made_by=made_by)

    def forget(self, entry: GroupEntry) -> None:
        """Remove a group that has no members."""
        entry.group.kill()
        self.registry.forget(entry)
        self._arm(entry)

    def forget_blank(self) -> None:
        """Delete groups without members and offsets: nothing is lost."""
        for entry in list(self.registry.entries.values()):
            if entry.is_blank:
                self.forget(entry)
                self.append(group_tombstones(entry.group.group_id))

    async def keep(
        self, records: list[KeyedRecord], apply: Callable[[], None] = lambda: None
    ) -> Code:
        """Make `records` durable, then call `apply`, in the order of the log."""
        return await self.core.keep(records, apply)

    def append(self, records: list[KeyedRecord]) -> None:
        """Write `records` without waiting for them."""
        self.core.append(records)

    # -- events and effects

    def _find(self, group_id: str) -> tuple[GroupEntry | None, Code]:
        """The group of a member's request, or an error code."""
        if self.unavailable is not Code.NONE:
            return None, self.unavailable
        if not group_id:
            return None, Code.INVALID_GROUP_ID
        return self.registry.entries.get(group_id), Code.UNKNOWN_MEMBER_ID

    def _member_id(self, join: Join) -> str:
        name = join.instance_id if join.instance_id is not None else join.client_id
        return f"{name[:NAME_LENGTH_MAX]}-{self._broker.rng.uuid()}"

    async def _wait_for_result(
        self, entry: GroupEntry, event: Join | Sync | Leave, refusal: GroupResult
    ) -> GroupResult:
        if self.core.is_full:
            return refusal  # the client tries again
        future: asyncio.Future[GroupResult] = asyncio.get_running_loop().create_future()
        self._parked[event.ticket] = (future, refusal)
        self._perform(entry, entry.group.handle(event, self.now()))
        try:
            return await future
        except asyncio.CancelledError:
            self._client_gone(entry, event.ticket)
            raise

    def _client_gone(self, entry: GroupEntry, ticket: Ticket) -> None:
        """Give the group the event that the client of a parked request has disconnected."""
        parked = self._parked.pop(ticket, None)
        is_served = entry.group.state is not State.DEAD and self.unavailable is Code.NONE
        if parked is not None and is_served:
            self._perform(entry, entry.group.handle(MemberDisconnected(ticket), self.now()))

    def _perform(self, entry: GroupEntry, effects: list[Effect]) -> None:
        """Carry out effects in order; those after a Persist wait for it (broker.groups.D1)."""
        snapshots: list[GroupSnapshot] = []
        later: list[Respond] = []
        for effect in effects:
            if isinstance(effect, Persist):
                snapshots.append(effect.snapshot)
            elif snapshots:
                later.append(effect)
            else:
                self._respond(effect)
        if snapshots:
            now_ms = self._broker.clock.now_ms()
            entry.empty_since_ms = now_ms
            records = [record for snapshot in snapshots
                       for record in group_records(snapshot, now_ms)]
            self.core.append(records, partial(self._persisted, entry, later))
        if entry.is_blank and entry.group.generation == 0:
            self.forget(entry)  # it never had members, and has no offsets
        else:
            self.registry.count(entry)
            self._arm(entry)

    def _persisted(
        self, entry: GroupEntry, responds: list[Respond], error: Exception | None
    ) -> None:
        for ticket, result in responds:
            if error is not None and ticket in self._parked:
                refusal = self._parked[ticket][1]
                self._respond(Respond(ticket, with_code(refusal, code_of(error))))
            else:
                self._respond(Respond(ticket, result))
        is_served = entry.group.state is not State.DEAD and self.unavailable is Code.NONE
        if error is not None and is_served:
            self._perform(entry, entry.group.handle(PersistFailed(), self.now()))

    def _respond(self, respond: Respond) -> None:
        parked = self._parked.pop(respond.ticket, None)
        if parked is not None:
            self._wakeups.soon(partial(_wake, parked[0], respond.result))

    # -- time

    def _arm(self, entry: GroupEntry) -> None:
        """Set the timer for the group's next deadline (broker.groups.D3)."""
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

    def tick(self, entry: GroupEntry) -> None:
        """Give the group a ClockTick: members whose deadline has passed are removed."""
        if entry.group.state is not State.DEAD and self.unavailable is Code.NONE:
            before = len(entry.group.members)
            self._perform(entry, entry.group.handle(ClockTick(), self.now()))
            if len(entry.group.members) < before:
                self._broker.limited.info(
                    "members timed out", "group %r: %d of %d members timed out",
                    entry.group.group_id, before - len(entry.group.members), before)

    def expire_offsets(self) -> None:
        """Delete expired offsets."""
        broker = self._broker
        offsets.expire(
            self, broker.cluster.state, broker.limited, now_ms=broker.clock.now_ms(),
            retention_ms=broker.settings.offsets_retention_minutes * MINUTE_MS)


def _wake(waiting: "asyncio.Future[GroupResult]", result: GroupResult) -> None:
    if not waiting.done():  # the request may have been cancelled
        waiting.set_result(result)


def with_code(result: GroupResult, code: Code) -> GroupResult:
    """A result of the same type with `code` in it."""
    if isinstance(result, LeaveResult):
        return LeaveResult((code,) * len(result.codes))
    return result._replace(code=code)
