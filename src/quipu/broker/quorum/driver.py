"""Drives the Raft core: makes entries durable, sends messages, applies committed entries.

The core gets messages, clock ticks and proposals as they come; at the end of the event loop's turn
`_turn` takes the core's output and carries it out.  So all proposals of one turn share one write,
one sync and one message per node.

Invariants
    broker.quorum.Q1  what a message promises is durable before it is sent (raft.R2): it waits in
                      `_unsent` for the number of its `ready`; numbers become durable in order
                      (broker.quorum.W2)
    broker.quorum.Q2  the state machine applies every committed entry once and in order; `propose`
                      returns after the entry was applied here
    broker.quorum.Q3  `is_leader` is True only while the core leads and every entry of earlier terms
                      is applied (raft.A1)
    broker.quorum.Q4  after damage, or a bug, nothing is sent and no call succeeds any more:
                      `failure` says why

Not here: the rules (raft/), the log (wal.py), the futures of callers (pending.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from quipu.broker.quorum.contract import (
    NotController,
    PreviousLeader,
    QuorumConfig,
    QuorumPeers,
    QuorumView,
    StateMachine,
)
from quipu.broker.quorum.pending import PendingRequests
from quipu.broker.quorum.view import describe
from quipu.broker.quorum.wal import Wal
from quipu.model.batch_types import CONTROLLER
from quipu.model.errors import Code, ErrorKind, MalformedBytes, QuipuError, RequestError
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.codec import decode, encode
from quipu.raft.core import Raft
from quipu.raft.leader import LeaderState
from quipu.raft.membership import Configuration, configuration_steps
from quipu.raft.messages import OutgoingMessage, Snapshot
from quipu.raft.ready import Ready
from quipu.raft.settings import COMMANDS_MAX, ENTRY_SIZE_MAX, Timing
from quipu.runtime.clock import Clock
from quipu.runtime.disks.disk import TransientDiskError
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.peers.peer_net import PeerKind
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn
from quipu.storage.log import Log

_log = logging.getLogger(__name__)

CHANGE_TIMEOUT_SECONDS: Final = 30.0  # for a new voter to catch up


class Quorum:
    """This node's part in the quorum, and the only way to change what it replicates."""

    def __init__(
        self,
        machine: StateMachine,
        config: QuorumConfig,
        *,
        log: Log,
        clock: Clock,
        rng: Rng,
        peers: QuorumPeers | None = None,
        lend: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        """`peers` is None in a quorum of one node.

        `lend` performs a write; on a full disk, with space that is reserved for it
        (storage/directory/reserve.py).
        """
        self.last_applied = RaftIndex(0)
        self.failure: QuipuError | None = None
        self._machine = machine
        self._config = config
        self._clock = clock
        self._peers = peers
        self._lend = lend
        self._log = log
        self._pending = PendingRequests()
        self._wal = Wal(log, config.node_id, clock)
        loaded = self._wal.load()
        if loaded.items is not None:
            machine.restore(loaded.items)
            self.last_applied = loaded.stored.snapshot_index
        self._raft = Raft(
            config.node_id, config.voters, loaded.stored, chance=rng.random, now_ms=self._now_ms(),
            timing=Timing(election_timeout_ms=config.election_timeout_ms,
                          heartbeat_interval_ms=config.heartbeat_interval_ms),
            checks=machine)
        self.refused_count = 0  # messages of other nodes that were rejected (raft.R6)
        self._rejections = LimitedLog(_log, clock.monotonic)
        self._snapshot_size = 0  # bytes of the last snapshot
        self._is_rewrite_due = False
        self._unsent: deque[tuple[int, list[OutgoingMessage]]] = deque()  # broker.quorum.Q1
        self._written_number = 0  # of the last `ready` that is written
        self._durable_number = 0  # of the last `ready` that is durable
        self._leading_term: Term | None = None  # the term in which broker.quorum.Q3 holds
        self._leading_ended = asyncio.Event()
        self._is_scheduled = False
        self._is_running = False
        self._timer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the quorum.  A quorum of one leads, with every entry applied, when this returns."""
        self._is_running = True
        if self._peers is not None:
            self._peers.on(PeerKind.RAFT, self._received)
            self._peers.watch(self)
        self._timer = spawn(self._run_clock(), "quorum clock")
        if self._raft.is_alone and self._raft.can_campaign:
            self._raft.campaign()
            self._turn()
            while self._leading_term is None:
                self._check_running()
                await self._pending.applied(RaftIndex(self.last_applied + 1))

    async def stop(self, *, transfer: bool = False) -> None:
        """Leave the quorum; with `transfer`, transfer leadership to another voter first."""
        if not self._is_running:
            return
        if transfer and self._raft.transfer_leadership() is not None:
            self._schedule()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.election_timeout_ms / 1000):
                    await self._leading_ended.wait()
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        self._stop_leading()
        self._pending.fail_all(lambda: NotController("this node is stopping"))
        if self.failure is None:
            await self._log.flusher.flush()

    # --- state ------------------------------------------------------------------------------

    @property
    def leader(self) -> NodeId | None:
        """The leader, as far as this node knows."""
        return self._raft.leader if self.failure is None else None

    @property
    def term(self) -> Term:
        return self._raft.term

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, with every entry of earlier terms applied."""
        return self._leading_term is not None  # broker.quorum.Q3

    @property
    def previous_leader(self) -> PreviousLeader | None:
        """The leader before this node; None if it does not lead, or does not know."""
        role = self._raft.role
        if not isinstance(role, LeaderState) or (
                role.previous_leader in (None, self._config.node_id)):
            return None
        led_until_ms = role.voters_had_leader_ms + 1  # the core's milliseconds are rounded down
        return PreviousLeader(role.previous_leader, led_until_ms / 1000)

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return self._raft.configuration.voters

    def describe(self) -> QuorumView:
        """Return voters and observers, and the log end of each."""
        return describe(self._raft, self._clock)

    # --- calls ------------------------------------------------------------------------------

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        """Commit `commands`, all or none; return their index when they are applied on this node.

        Raises `NotController` if this node does not lead, or stepped down before they were
        committed: then the outcome is not known.
        """
        self._check_leader()
        if len(commands) > COMMANDS_MAX or sum(map(len, commands)) > ENTRY_SIZE_MAX:
            raise RequestError(
                f"{len(commands)} changes of {sum(map(len, commands))} bytes are too many to be "
                "committed together: ask for fewer at a time", code=Code.RECORD_LIST_TOO_LARGE)
        if not self._wal.is_written:
            raise RequestError(f"{self._log.name}: cannot be written, the disk is full",
                               code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)
        index = None if self._pending.is_full else self._raft.propose(commands)
        if index is None:
            raise RequestError("too much is uncommitted, or leadership is being transferred: "
                               "try again", code=Code.NOT_CONTROLLER, kind=ErrorKind.RETRY)
        self._schedule()
        return await self._pending.proposed(index, self._raft.term)

    async def barrier(self) -> None:
        """Return when all entries that were committed before the call are applied here.

        Raises `NotController` if this node does not lead, or cannot confirm that it still does.
        """
        self._check_leader()
        number = self._raft.read_index()
        if number is None:
            raise RequestError("too many reads wait: try again", code=Code.REQUEST_TIMED_OUT,
                               kind=ErrorKind.RETRY)
        self._schedule()
        index = await self._pending.read(number)
        if self.last_applied < index:
            await self._pending.applied(index)

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        """Return when the entry at `index` is applied here; raises `TimeoutError`."""
        self._check_running()
        if self.last_applied < index:
            async with asyncio.timeout(timeout_seconds):
                await self._pending.applied(index)

    async def wait_leader(self, timeout_seconds: float) -> NodeId:
        """Return the leader, once this node knows one; raises `TimeoutError`."""
        self._check_running()
        if self.leader is not None:
            return self.leader
        async with asyncio.timeout(timeout_seconds):
            return await self._pending.leader()

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = CHANGE_TIMEOUT_SECONDS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Make `voters` the quorum, one change at a time; wait until new ones have caught up.

        On the leader only.  `check` is called before each attempt, and raises to give up.  If the
        leader is removed itself, it makes all other changes, transfers leadership, and raises
        `NotController`: the next leader must be asked for the rest.
        """
        target = Configuration.of(voters)
        end = self._clock.monotonic() + timeout_seconds
        while steps := configuration_steps(self._raft.configuration, target, self._config.node_id):
            self._check_leader()
            check()
            if self._config.node_id not in steps[0].voters:
                self._raft.transfer_leadership()
                self._schedule()
                raise NotController("this leader is removed itself: ask the next one for the rest")
            index = self._raft.change_configuration(steps[0])
            self._schedule()
            if index is not None:
                await self._pending.proposed(index, self._raft.term)
            elif self._clock.monotonic() > end:
                raise RequestError(f"voters {list(target.voters)}: not all of them have caught up "
                                   "in time", code=Code.REQUEST_TIMED_OUT)
            else:
                await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)

    def _check_leader(self) -> None:
        self._check_running()
        if self._leading_term is None:
            raise NotController(f"node {self._config.node_id} is not the controller; "
                                f"as far as it knows, {self._raft.leader} is")

    def _check_running(self) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._is_running:
            raise NotController("this node is not running")

    # --- input ------------------------------------------------------------------------------

    def _received(self, sender: NodeId, body: memoryview) -> None:
        if not self._is_running or self.failure is not None:
            return
        try:
            self._raft.tick(self._now_ms())
            refused = self._raft.step(sender, decode(body))
            if refused is not None:
                self.refused_count += 1
                self._rejections.warning(
                    "rejected", "a message of node %d is rejected: %s", sender, refused)
        except MalformedBytes as error:
            self.refused_count += 1
            self._rejections.warning(
                "malformed", "node %d sent a message that cannot be decoded: %s", sender, error)
        except Exception as error:  # noqa: BLE001 any error ends it (broker.quorum.Q4)
            self._fail(error)
        self._schedule()

    def up(self, node_id: NodeId) -> None:
        """Note that a peer can be reached, perhaps again."""
        if self._is_running and self.failure is None:
            self._raft.peer_up(node_id)
            self._schedule()

    def down(self, node_id: NodeId) -> None:
        """Note that a peer cannot be reached any more."""
        if self._is_running and self.failure is None:
            self._raft.peer_down(node_id)

    def drained(self, node_id: NodeId) -> None:
        """Note that messages to a peer were refused: as if they were lost."""
        self.up(node_id)

    async def _run_clock(self) -> None:
        pause = max(self._config.heartbeat_interval_ms / 2, 1) / 1000
        while self._is_running and self.failure is None:
            await asyncio.sleep(pause)
            self._raft.tick(self._now_ms())
            self._turn()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # --- the turn ---------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Carry out the core's output, until it has no more that can be done now."""
        self._is_scheduled = False
        if not self._is_running or self.failure is not None:
            return
        try:
            self._carry_out(self._raft.ready())
            while self._send_durable():
                self._carry_out(self._raft.ready())
            if self._raft.log.last_applied < self._raft.log.commit_index:
                self._schedule()  # there is more than fits in one turn
        except Exception as error:  # noqa: BLE001 any error ends it (broker.quorum.Q4)
            self._fail(error)

    def _carry_out(self, ready: Ready) -> None:
        self._send(ready.messages)
        self._write(ready)
        if ready.snapshot is not None:
            self._machine.restore(ready.snapshot.items)
            self.last_applied = ready.snapshot.index
            self._pending.applied_up_to(self.last_applied)
        self._apply(ready)
        for read in ready.read_states:
            self._pending.read_confirmed(read.number, read.index)
        self._update_leadership()
        if ready.wants_snapshot:
            self._raft.snapshot_made(self._snapshot())
        self._compact_if_due()

    def _send(self, sends: Iterable[OutgoingMessage]) -> None:
        if self._peers is not None:
            for to, message in sends:
                self._peers.send(to, PeerKind.RAFT, [encode(message)])

    def _write(self, ready: Ready) -> None:
        """Write what has to be durable; messages that promise it wait (broker.quorum.Q1)."""
        if ready.hard_state is not None:
            self._wal.add([ready.hard_state])
        if ready.snapshot is not None:
            self._wal.add([ready.snapshot])
        self._wal.add(ready.entries)
        if ready.is_to_be_written or ready.messages_when_durable:
            self._unsent.append((ready.number, ready.messages_when_durable))
        self._write_queued()

    def _write_queued(self) -> None:
        """Write and flush what is queued, unless that is under way already."""
        if not self._unsent or self._unsent[-1][0] == self._written_number:
            return
        number = self._unsent[-1][0]
        try:
            self._lend(self._wal.push)
        except TransientDiskError as error:  # the next turn tries again
            failure = error
            self._rejections.warning(
                "not written", "the metadata cannot be written, and is tried again: %s", error)
            self._pending.fail_proposals_and_reads(lambda: failure)
            return
        self._written_number = number
        if self._wal.is_durable:
            self._durable_number = number
        else:
            self._log.flusher.when_log_flushed(
                self._wal.log_end, lambda error: self._flushed(number, error))

    def _flushed(self, number: int, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._durable_number = max(self._durable_number, number)
        self._wal.flushed()
        self._schedule()

    def _send_durable(self) -> bool:
        """Send the messages whose promises are durable now; return whether there were any."""
        if not self._unsent or self._unsent[0][0] > self._durable_number:
            return False
        self._raft.persisted(self._durable_number)
        while self._unsent and self._unsent[0][0] <= self._durable_number:
            self._send(self._unsent.popleft()[1])
        return True

    def _apply(self, ready: Ready) -> None:
        for entry in ready.committed_entries:
            assert entry.index == self.last_applied + 1, (
                entry.index, self.last_applied)  # broker.quorum.Q2
            if entry.batch_type == CONTROLLER:
                self._machine.apply(entry.index, entry.commands)
            self.last_applied = entry.index
            self._pending.entry_applied(entry.index, entry.term, _outcome_unknown)
        if ready.committed_entries:
            self._pending.applied_up_to(self.last_applied)

    def _update_leadership(self) -> None:
        """Note whether this node has begun to lead, or has stepped down (broker.quorum.Q3)."""
        raft, role = self._raft, self._raft.role
        leads = isinstance(role, LeaderState) and self.last_applied >= role.term_start  # raft.A1
        if self._leading_term is not None and (not leads or self._leading_term != raft.term):
            self._stop_leading()
        if leads and self._leading_term is None:
            self._leading_term = raft.term
            self._leading_ended.clear()
            self._machine.leadership(True)  # noqa: FBT003 a fact
        if raft.leader is not None:
            self._pending.leader_known(raft.leader)

    def _stop_leading(self) -> None:
        if self._leading_term is not None:
            self._leading_term = None
            self._leading_ended.set()
            self._pending.fail_proposals_and_reads(_outcome_unknown)
            self._machine.leadership(False)  # noqa: FBT003 a fact

    # --- snapshots -----------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        """Return a snapshot of the present state."""
        log = self._raft.log
        term = log.find_term(self.last_applied)
        assert term is not None, self.last_applied
        return Snapshot(self.last_applied, term, log.configuration_at(self.last_applied),
                     tuple(self._machine.snapshot()))

    def rewrite(self) -> None:
        """Write everything again: the disk has changed what was written, and memory has it all."""
        self._is_rewrite_due = True
        self._compact_if_due()

    def _compact_if_due(self) -> None:
        """Write a snapshot when the log exceeds `snapshot_due_size` and the last snapshot."""
        log = self._raft.log
        is_due = self._is_rewrite_due or (
            self.last_applied > log.snapshot_index and self._wal.commands_size >= max(
                self._config.snapshot_due_size, self._snapshot_size))
        if not is_due or not self._wal.is_written or self.last_applied == 0 or (
                self.failure is not None):
            return
        self._is_rewrite_due = False
        snapshot = self._snapshot()
        try:
            self._wal.compact(snapshot, log.slice(self.last_applied + 1, log.written + 1))
        except TransientDiskError as error:  # nothing is lost: the entries are still there
            _log.warning("no snapshot of the metadata could be written: %s", error)
            self._snapshot_size = 2 * self._wal.commands_size  # and not again at once
            return
        self._snapshot_size = sum(map(len, snapshot.items))
        kept_from = self.last_applied - self._config.entries_kept
        self._raft.compact(RaftIndex(max(log.snapshot_index, kept_from)))
        self._log.flusher.when_log_flushed(self._wal.log_end, self._compacted)

    def _compacted(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
        elif self._is_running:
            self._wal.flushed()

    # --- failure ----------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Leave the quorum after an error; the others go on (broker.quorum.Q4)."""
        if self.failure is not None or not self._is_running:
            return
        if isinstance(error, QuipuError):
            self.failure = error
            _log.error("this node no longer takes part in the quorum: %s", error)
        else:
            self.failure = QuipuError(f"this node no longer takes part in the quorum: {error!r}; "
                                      "report this, and restart it", kind=ErrorKind.BUG)
            _log.error("a bug in the quorum", exc_info=error)
        failure = self.failure
        self._stop_leading()
        self._pending.fail_all(lambda: failure)


def _outcome_unknown() -> NotController:
    return NotController("this node stopped being the controller; whether the change was made is "
                         "not known: look, and try again")
