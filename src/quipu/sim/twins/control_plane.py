"""The control plane of diskless topics in a simulated world: simulates a database server.

    PlaneFaults   the faults of the server: delays, refused requests, lost responses
    SimDatabase   the server: the state of one `MemoryControlPlane`, which all machines share
    SimPlane      the `ControlPlane` of one process

An operation is sent over the network to the host PLANE_HOST, unless that link is cut, and is
carried out there atomically and durably, even if the calling process has ended meanwhile.

Invariants
    sim.P1  an operation is carried out once or not at all, whatever its caller gets
    sim.P2  a call returns or raises within TIMEOUT_SECONDS; after `CommitOutcomeUnknown` it may
            have been carried out, or may be carried out later; after `ControlPlaneUnavailable` not
    sim.P3  commits are announced in order; a listener that may have missed one is called with None
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from quipu.diskless.control_plane.interface import (
    FIND_RUNS_MAX,
    LIMIT_MAX,
    AdoptedLog,
    BatchOutcome,
    ControlPlane,
    FindRequest,
    FoundRuns,
    Listener,
    ObjectState,
    ProducerState,
    Replacement,
    RetentionRule,
    TieringClaim,
)
from quipu.diskless.errors import CommitOutcomeUnknown, ControlPlaneUnavailable
from quipu.diskless.values import BatchRun, Lineage, LogBounds, LogKey, NewObject
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset
from quipu.sim.dice import Dice
from quipu.sim.loop import Life

if TYPE_CHECKING:
    from quipu.sim.twins.net import Door, SimNet

PLANE_HOST: Final = "plane"
TIMEOUT_SECONDS: Final = 4.0
CONNECT_SECONDS: Final = 0.3  # between two attempts to listen again
MESSAGE_SIZE: Final = 300  # bytes, about

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneFaults:
    """The faults of the server; probabilities are per operation."""

    seconds_min: float = 0.001  # usual duration of an operation
    seconds_max: float = 0.012
    slow: float = 0.0  # probability of an additional delay ...
    slow_seconds_max: float = 3.0  # ... of up to this many seconds
    refuse: float = 0.0  # probability that an operation is refused, without effect
    lose_answer: float = 0.0  # probability that it is carried out and its response lost


NO_FAULTS: Final = PlaneFaults()


class SimDatabase:
    """The server, its faults and its listeners."""

    def __init__(self, net: "SimNet", dice: Dice, plane: ControlPlane) -> None:
        self.net = net
        self.dice = dice
        self.plane = plane
        self.faults = NO_FAULTS
        self.is_down = False  # refuses everything, as while it restarts
        # Called after an operation that changes something: its name, arguments and result, and
        # when it was sent.
        self.on_change: Callable[[str, tuple[Any, ...], Any, float], None] = lambda *_: None
        self._listeners: list[SimPlane] = []
        plane.watch(self._announce)

    def client(self, door: "Door") -> "SimPlane":
        """The `ControlPlane` of the process that `door` belongs to."""
        return SimPlane(self, door)

    def now(self, operation: Coroutine[Any, Any, T]) -> T:
        """Carry out an operation of the plane at once: in memory, none of them waits."""
        try:
            operation.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        operation.close()
        raise AssertionError("an operation in memory waits")

    def seconds(self) -> float:
        """A random duration for the next operation."""
        faults, dice = self.faults, self.dice
        seconds = dice.between(faults.seconds_min, faults.seconds_max)
        if faults.slow and dice.flip(faults.slow):
            seconds += dice.between(0, faults.slow_seconds_max)
        return seconds

    def refuses(self) -> bool:
        return self.is_down or (bool(self.faults.refuse) and self.dice.flip(self.faults.refuse))

    def loses_answer(self) -> bool:
        return bool(self.faults.lose_answer) and self.dice.flip(self.faults.lose_answer)

    # -- listeners

    def listen(self, client: "SimPlane") -> bool:
        """Announce commits to `client` from now on; False if the server is down."""
        if self.is_down:
            return False
        self._listeners = [each for each in self._listeners
                           if each is not client and each.is_alive]
        self._listeners.append(client)
        return True

    def forget(self, client: "SimPlane") -> None:
        """Announce nothing more to `client`."""
        self._listeners = [each for each in self._listeners if each is not client]

    def drop_listeners(self) -> None:
        """Close the connections of all listeners."""
        listeners, self._listeners = self._listeners, []
        for client in listeners:
            client.send_back(client.disconnected)

    def _announce(self, log: LogKey | None, high_watermark: Offset) -> None:
        for client in self._listeners:
            client.send_back(partial(client.announced, log, high_watermark))


class SimPlane:
    """A `ControlPlane` whose operations are sent over simulated links."""

    def __init__(self, database: SimDatabase, door: "Door") -> None:
        self._database = database
        self._door = door
        self._watchers: list[Listener] = []
        self._is_closed = False

    @property
    def is_alive(self) -> bool:
        return self._door.process.life is not Life.DEAD and not self._is_closed

    async def open(self) -> None:
        """Connect; raises if the server does not respond."""
        await self._ask("open", lambda _plane: _nothing())
        self._listen()

    async def close(self) -> None:
        self._is_closed = True
        self._database.forget(self)

    # -- sending

    async def _ask(
        self, what: str, work: Callable[[ControlPlane], Coroutine[Any, Any, T]],
        *args: object, is_change: bool = False,
    ) -> T:
        """Send an operation that does `work` at the server; return its result (sim.P2)."""
        net, host = self._database.net, self._door.host
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        net.trace.add(net.loop.now, host, "> plane", what)
        net.notify(what.partition(" ")[0], host)
        sent_at = net.loop.now
        changed = partial(self._database.on_change, what, args) if is_change else _no_change
        net.link(host, PLANE_HOST).stream(
            MESSAGE_SIZE, lambda: self._arrived(
                what, work, answered, lambda result: changed(result, sent_at)), None)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await answered
        except TimeoutError:
            kind = CommitOutcomeUnknown if is_change else ControlPlaneUnavailable
            raise kind(f"{what}: no response within {TIMEOUT_SECONDS:g} s") from None

    def _arrived(
        self, what: str, work: Callable[[ControlPlane], Coroutine[Any, Any, T]],
        answered: "asyncio.Future[T]", changed: Callable[[T], None],
    ) -> None:
        """Handle an operation at the server; its faults are decided when it arrives."""
        database, net = self._database, self._database.net
        seconds, refused = database.seconds(), database.refuses()
        is_lost = database.loses_answer()

        def serve() -> None:
            """Carry out the operation, once and atomically (sim.P1)."""
            outcome: T | QuipuError
            try:
                if refused or database.is_down:
                    raise ControlPlaneUnavailable(f"{what}: the database refuses connections")
                outcome = database.now(work(database.plane))
                changed(outcome)
            except QuipuError as error:
                outcome = error
            net.trace.add(net.loop.now, PLANE_HOST, "lost" if is_lost else "served",
                          f"{self._door.host} {what}")
            if not is_lost:
                self.send_back(lambda: _settle(answered, outcome))

        net.at(net.loop.now + seconds, serve, None)

    def send_back(self, deliver: Callable[[], object]) -> None:
        """Send something from the server to this process."""
        self._database.net.link(PLANE_HOST, self._door.host).stream(
            MESSAGE_SIZE, deliver, self._door.process.context)

    # -- listening

    def watch(self, listener: Listener) -> Callable[[], None]:
        self._watchers.append(listener)

        def end() -> None:
            if listener in self._watchers:
                self._watchers.remove(listener)

        return end

    def _listen(self) -> None:
        """Ask the server to announce commits; then all that was missed may be looked at."""
        if not self.is_alive:
            return
        net = self._database.net

        def arrived() -> None:
            if self.is_alive:
                is_listening = self._database.listen(self)
                self.send_back(self._missed if is_listening else self.disconnected)

        net.link(self._door.host, PLANE_HOST).stream(MESSAGE_SIZE, arrived, None)

    def _missed(self) -> None:
        self.announced(None, Offset(-1))  # sim.P3

    def disconnected(self) -> None:
        """The server has closed the connection: connect again after a while."""
        asyncio.get_running_loop().call_later(CONNECT_SECONDS, self._listen)

    def announced(self, log: LogKey | None, high_watermark: Offset) -> None:
        """Tell all listeners of this process about a commit."""
        if not self._is_closed:
            for listener in list(self._watchers):
                listener(log, high_watermark)

    # -- logs

    async def create_logs(self, topic_id: UUID, topic: str, partition_count: int) -> None:
        await self._ask("create_logs", lambda plane: plane.create_logs(
            topic_id, topic, partition_count), topic_id, is_change=True)

    async def delete_topic(self, topic_id: UUID, now_ms: int) -> None:
        await self._ask("delete_topic", lambda plane: plane.delete_topic(topic_id, now_ms),
                        topic_id, is_change=True)

    async def topics(self) -> dict[UUID, tuple[str, int]]:
        return await self._ask("topics", lambda plane: plane.topics())

    # -- writing

    async def commit(self, new: NewObject, now_ms: int) -> Sequence[BatchOutcome]:
        new = new._replace(batches=tuple(new.batches))
        return await self._ask(f"commit {new.key}", lambda plane: plane.commit(new, now_ms),
                               new, is_change=True)

    async def producers(self, log: LogKey) -> Sequence[ProducerState]:
        return await self._ask("producers", lambda plane: plane.producers(log))

    async def expire_producers(self, before_ms: int, limit: int) -> int:
        return await self._ask("expire_producers", lambda plane: plane.expire_producers(
            before_ms, limit), is_change=True)

    # -- reading

    async def bounds(self, logs: Sequence[LogKey]) -> Sequence[LogBounds | None]:
        wanted = tuple(logs)
        return await self._ask("bounds", lambda plane: plane.bounds(wanted))

    async def find(
        self, requests: Sequence[FindRequest], *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[FoundRuns]:
        wanted = tuple(requests)
        return await self._ask("find", lambda plane: plane.find(wanted, runs_max=runs_max))

    async def find_timestamp(
        self, log: LogKey, timestamp_ms: int, *, from_offset: int = 0
    ) -> BatchRun | None:
        return await self._ask("find_timestamp", lambda plane: plane.find_timestamp(
            log, timestamp_ms, from_offset=from_offset))

    async def find_max_timestamp(self, log: LogKey, *, from_offset: int = 0) -> BatchRun | None:
        return await self._ask("find_max_timestamp", lambda plane: plane.find_max_timestamp(
            log, from_offset=from_offset))

    # -- removing

    async def delete_records(self, log: LogKey, before: Offset, now_ms: int) -> LogBounds | None:
        return await self._ask("delete_records", lambda plane: plane.delete_records(
            log, before, now_ms), log, before, is_change=True)

    async def retain(
        self, rules: Sequence[RetentionRule], now_ms: int, *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[LogBounds | None]:
        wanted = tuple(rules)
        return await self._ask("retain", lambda plane: plane.retain(
            wanted, now_ms, runs_max=runs_max), wanted, is_change=True)

    # -- objects

    async def objects(self, *, after: str = "", limit: int = LIMIT_MAX) -> Sequence[ObjectState]:
        return await self._ask("objects", lambda plane: plane.objects(after=after, limit=limit))

    async def known_objects(self, keys: Sequence[str]) -> set[str]:
        wanted = tuple(keys)
        return await self._ask("known_objects", lambda plane: plane.known_objects(wanted))

    async def deletable_objects(self, marked_before_ms: int, limit: int) -> Sequence[str]:
        return await self._ask("deletable_objects", lambda plane: plane.deletable_objects(
            marked_before_ms, limit))

    async def forget_objects(self, keys: Sequence[str]) -> None:
        wanted = tuple(keys)
        await self._ask("forget_objects", lambda plane: plane.forget_objects(wanted), wanted,
                        is_change=True)

    async def condemn_objects(self, keys: Sequence[str]) -> set[str]:
        wanted = tuple(keys)
        return await self._ask("condemn_objects", lambda plane: plane.condemn_objects(wanted),
                               wanted, is_change=True)

    async def bind(self, cluster_id: str) -> str:
        return await self._ask("bind", lambda plane: plane.bind(cluster_id), is_change=True)

    async def identity(self) -> UUID:
        return await self._ask("identity", lambda plane: plane.identity())

    async def object_runs(self, key: str) -> Sequence[BatchRun]:
        return await self._ask("object_runs", lambda plane: plane.object_runs(key))

    async def sparse_objects(
        self, *, live_size_max: int, live_share_max: float, committed_before_ms: int, limit: int
    ) -> Sequence[ObjectState]:
        return await self._ask("sparse_objects", lambda plane: plane.sparse_objects(
            live_size_max=live_size_max, live_share_max=live_share_max,
            committed_before_ms=committed_before_ms, limit=limit))

    async def rewrite(
        self, new: NewObject, replacements: Sequence[Replacement], now_ms: int
    ) -> bool:
        moved = tuple(replacements)
        return await self._ask("rewrite", lambda plane: plane.rewrite(new, moved, now_ms),
                               new, moved, is_change=True)

    # -- the remote tier

    async def claim_tiering(
        self, log: LogKey, owner: str, now_ms: int, lease_ms: int
    ) -> TieringClaim | None:
        return await self._ask("claim_tiering", lambda plane: plane.claim_tiering(
            log, owner, now_ms, lease_ms), log, is_change=True)

    async def aged_runs(
        self, log: LogKey, before_ms: int, *, limit: int = FIND_RUNS_MAX
    ) -> Sequence[BatchRun]:
        return await self._ask("aged_runs", lambda plane: plane.aged_runs(
            log, before_ms, limit=limit))

    async def note_tiered(
        self, claim: TieringClaim, end_offset: Offset, now_ms: int
    ) -> LogBounds | None:
        return await self._ask("note_tiered", lambda plane: plane.note_tiered(
            claim, end_offset, now_ms), claim, end_offset, is_change=True)

    async def advance_log_start(
        self, log: LogKey, log_start: Offset, now_ms: int
    ) -> LogBounds | None:
        return await self._ask("advance_log_start", lambda plane: plane.advance_log_start(
            log, log_start, now_ms), log, log_start, is_change=True)

    # -- logs that were on disks

    async def adopt_log(self, adopted: AdoptedLog, now_ms: int) -> bool:
        return await self._ask("adopt_log", lambda plane: plane.adopt_log(adopted, now_ms),
                               adopted, is_change=True)

    async def lineages(self, logs: Sequence[LogKey]) -> Sequence[Lineage | None]:
        wanted = tuple(logs)
        return await self._ask("lineages", lambda plane: plane.lineages(wanted))

    async def restore_lineage(self, log: LogKey, lineage: Lineage) -> None:
        await self._ask("restore_lineage", lambda plane: plane.restore_lineage(log, lineage),
                        log, lineage, is_change=True)

    # -- rebuilding

    async def restore_objects(
        self, objects: Sequence[tuple[NewObject, Sequence[Offset]]], now_ms: int
    ) -> None:
        wanted = tuple(objects)
        await self._ask("restore_objects", lambda plane: plane.restore_objects(wanted, now_ms),
                        wanted, is_change=True)

    async def restore_bounds(
        self, log: LogKey, log_start: Offset, diskless_start: Offset, high_watermark: Offset
    ) -> None:
        await self._ask("restore_bounds", lambda plane: plane.restore_bounds(
            log, log_start, diskless_start, high_watermark), log, is_change=True)


async def _nothing() -> None:
    """An operation without effect."""


def _no_change(_result: object, _sent_at: float) -> None:
    """An operation that only reads is checked by nobody."""


def _settle(answered: "asyncio.Future[T]", outcome: "T | QuipuError") -> None:
    if answered.done():
        return
    if isinstance(outcome, QuipuError):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)
