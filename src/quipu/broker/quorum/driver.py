"""The quorum's driver: durable first, then visible; then applied, told, answered.

Messages, the clock and callers give the core something to think about; at the end of the loop's
turn `_turn` asks it what is to be done, and does it.  So all that was proposed in one turn shares
one write, one sync and one message per node.

Invariants
    Q1  promises leave after what they promise is durable (R2): they wait in `_promises` for the
        number of their `ready`; numbers become durable in order (W2)
    Q2  the state machine gets every decision once and in order; whoever proposed it is answered
        after it was applied here
    Q3  `is_leader` holds only while the core leads and the state holds everything that was
        decided before its term (A1)
    Q4  after damage, or a bug, nothing is sent or answered any more: `failure` says why

Not here: the rules (raft/), the log (wal.py), who waits for what (waiting.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from quipu.broker.quorum.contract import (
    NotController,
    Peers,
    Predecessor,
    QuorumConfig,
    QuorumView,
    StateMachine,
)
from quipu.broker.quorum.view import describe
from quipu.broker.quorum.waiting import Waiting
from quipu.broker.quorum.wal import Wal
from quipu.model.batch_types import CONTROLLER
from quipu.model.errors import Code, Kind, MalformedBytes, QuipuError, RequestError
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.codec import decode, encode
from quipu.raft.core import Raft, Ready
from quipu.raft.leader import Leader
from quipu.raft.membership import Configuration, steps
from quipu.raft.messages import Image, Send
from quipu.raft.settings import COMMANDS_MAX, ENTRY_SIZE_MAX, Timing
from quipu.runtime.clock import Clock
from quipu.runtime.disk import TransientDiskError
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.peer_net import PeerKind
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
        peers: Peers | None = None,
        lend: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        """`peers` may be missing where this node is the only one.

        `lend` does a write, on a full disk with room that is kept for it (storage/reserve.py).
        """
        self.applied = RaftIndex(0)
        self.failure: QuipuError | None = None
        self._machine = machine
        self._config = config
        self._clock = clock
        self._peers = peers
        self._lend = lend
        self._log = log
        self._waiting = Waiting()
        self._wal = Wal(log, config.node_id, clock)
        loaded = self._wal.load()
        if loaded.items is not None:
            machine.restore(loaded.items)
            self.applied = loaded.stored.image_index
        self._raft = Raft(
            config.node_id, config.voters, loaded.stored, chance=rng.random, now_ms=self._now_ms(),
            timing=Timing(election_timeout_ms=config.election_timeout_ms,
                          heartbeat_interval_ms=config.heartbeat_interval_ms),
            checks=machine)
        self.refused_count = 0  # messages of other nodes that were not taken (R6)
        self._refusals = LimitedLog(_log, clock.monotonic)
        self._image_size = 0  # bytes of the last image
        self._is_rewrite_due = False
        self._promises: deque[tuple[int, list[Send]]] = deque()  # Q1
        self._pushed_number = 0  # of the last `ready` that is written
        self._durable_number = 0  # of the last `ready` that is durable
        self._reign: Term | None = None  # the term in which Q3 holds
        self._reign_ended = asyncio.Event()
        self._is_scheduled = False
        self._is_running = False
        self._timer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take part.  A quorum of one leads, all of it applied, when this returns."""
        self._is_running = True
        if self._peers is not None:
            self._peers.on(PeerKind.RAFT, self._received)
            self._peers.watch(self)
        self._timer = spawn(self._run_clock(), "quorum clock")
        if self._raft.is_alone:
            self._raft.campaign()
            self._turn()
            while self._reign is None:
                self._check_running()
                await self._waiting.applied(RaftIndex(self.applied + 1))

    async def stop(self, *, transfer: bool = False) -> None:
        """Take no further part; with `transfer`, let another voter lead first, if one can."""
        if not self._is_running:
            return
        if transfer and self._raft.transfer() is not None:
            self._schedule()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.election_timeout_ms / 1000):
                    await self._reign_ended.wait()
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        self._end_reign()
        self._waiting.fail_all(lambda: NotController("this node is stopping"))
        if self.failure is None:
            await self._log.flush()

    # --- what holds -------------------------------------------------------------------------

    @property
    def leader(self) -> NodeId | None:
        """Who leads, as far as this node knows."""
        return self._raft.leader if self.failure is None else None

    @property
    def term(self) -> Term:
        return self._raft.term

    @property
    def is_leader(self) -> bool:
        """Does this node lead, with everything applied that was decided before its term (Q3)?"""
        return self._reign is not None

    @property
    def predecessor(self) -> Predecessor | None:
        """Who led before this node; None if it does not lead, or does not know."""
        role = self._raft.role
        if not isinstance(role, Leader) or role.predecessor in (None, self._config.node_id):
            return None
        return Predecessor(role.predecessor, (role.others_led_ms + 1) / 1000)  # rounded down there

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return self._raft.configuration.voters

    def describe(self) -> QuorumView:
        """Who takes part, and how far each is."""
        return describe(self._raft, self._clock)

    # --- what can be asked ------------------------------------------------------------------

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        """Have `commands` decided, all or none; returns its index when applied on this node.

        Raises `NotController` if this node does not lead, or stopped to before it was decided:
        then the outcome is not known.
        """
        self._check_leader()
        if len(commands) > COMMANDS_MAX or sum(map(len, commands)) > ENTRY_SIZE_MAX:
            raise RequestError(
                f"{len(commands)} changes of {sum(map(len, commands))} bytes are too many to be "
                "decided together: ask for fewer at a time", code=Code.RECORD_LIST_TOO_LARGE)
        if not self._wal.is_written:
            raise RequestError(f"{self._log.name}: cannot be written, the disk is full",
                               code=Code.KAFKA_STORAGE_ERROR, kind=Kind.RETRY)
        index = None if self._waiting.is_full else self._raft.propose(commands)
        if index is None:
            raise RequestError("too much waits to be decided, or another node is about to lead: "
                               "try again", code=Code.NOT_CONTROLLER, kind=Kind.RETRY)
        self._schedule()
        return await self._waiting.proposed(index, self._raft.term)

    async def barrier(self) -> None:
        """Return when this node's state holds all that was decided before the call.

        Raises `NotController` if this node does not lead, or cannot tell that it still does.
        """
        self._check_leader()
        number = self._raft.read()
        if number is None:
            raise RequestError("too many reads wait: try again", code=Code.REQUEST_TIMED_OUT,
                               kind=Kind.RETRY)
        self._schedule()
        index = await self._waiting.read(number)
        if self.applied < index:
            await self._waiting.applied(index)

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        """Return when the entry at `index` is applied here; raises `TimeoutError`."""
        self._check_running()
        if self.applied < index:
            async with asyncio.timeout(timeout_seconds):
                await self._waiting.applied(index)

    async def wait_leader(self, timeout_seconds: float) -> NodeId:
        """Return whom this node knows as leader, once it knows one; raises `TimeoutError`."""
        self._check_running()
        if self.leader is not None:
            return self.leader
        async with asyncio.timeout(timeout_seconds):
            return await self._waiting.leader()

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = CHANGE_TIMEOUT_SECONDS
    ) -> None:
        """Make `voters` the quorum, one change at a time; waits until new ones have everything.

        On the leader only.  If it is to go itself, all other changes are made, another node is
        let lead, and `NotController` tells to ask there for the rest.
        """
        target = Configuration.of(voters)
        end = self._clock.monotonic() + timeout_seconds
        while way := steps(self._raft.configuration, target, self._config.node_id):
            self._check_leader()
            if self._config.node_id not in way[0].voters:
                self._raft.transfer()
                self._schedule()
                raise NotController("the leader is to leave: ask again where leadership goes")
            index = self._raft.change(way[0])
            self._schedule()
            if index is not None:
                await self._waiting.proposed(index, self._raft.term)
            elif self._clock.monotonic() > end:
                raise RequestError(
                    f"voters {list(target.voters)}: not all of them have caught up in time; are "
                    "the new ones up, and can they reach the others?", code=Code.REQUEST_TIMED_OUT)
            else:
                await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)

    def _check_leader(self) -> None:
        self._check_running()
        if self._reign is None:
            raise NotController(f"node {self._config.node_id} is not the controller; "
                                f"as far as it knows, {self._raft.leader} is")

    def _check_running(self) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._is_running:
            raise NotController("this node is not running")

    # --- what comes in ----------------------------------------------------------------------

    def _received(self, sender: NodeId, body: memoryview) -> None:
        if not self._is_running or self.failure is not None:
            return
        try:
            self._raft.tick(self._now_ms())
            refused = self._raft.step(sender, decode(body))
            if refused is not None:
                self.refused_count += 1
                self._refusals.warning(
                    "refused", "a message of node %d is not taken: %s", sender, refused)
        except MalformedBytes as error:
            self.refused_count += 1
            self._refusals.warning(
                "malformed", "node %d sent a message that is none: %s", sender, error)
        except Exception as error:  # noqa: BLE001 whatever it is (Q4)
            self._fail(error)
        self._schedule()

    def up(self, node_id: NodeId) -> None:
        """A peer can be reached, perhaps again."""
        if self._is_running and self.failure is None:
            self._raft.peer_up(node_id)
            self._schedule()

    def down(self, node_id: NodeId) -> None:
        """A peer cannot be reached any more."""
        if self._is_running and self.failure is None:
            self._raft.peer_down(node_id)

    def drained(self, node_id: NodeId) -> None:
        """Messages were refused: as if they were lost."""
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
        """Do what the core wants done, until it wants nothing more that can be done now."""
        self._is_scheduled = False
        if not self._is_running or self.failure is not None:
            return
        try:
            self._carry_out(self._raft.ready())
            while self._keep_promises():
                self._carry_out(self._raft.ready())
            if self._raft.log.applied < self._raft.log.committed:
                self._schedule()  # there is more than fits in one turn
        except Exception as error:  # noqa: BLE001 whatever it is (Q4)
            self._fail(error)

    def _carry_out(self, ready: Ready) -> None:
        self._send(ready.now)
        self._write(ready)
        if ready.image is not None:
            self._machine.restore(ready.image.items)
            self.applied = ready.image.index
            self._waiting.tell_applied(self.applied)
        self._apply(ready)
        for read in ready.reads:
            self._waiting.tell_read(read.number, read.index)
        self._notice_reign()
        if ready.wants_image:
            self._raft.image_made(self._image())
        self._compact_if_due()

    def _send(self, sends: Iterable[Send]) -> None:
        if self._peers is not None:
            for to, message in sends:
                self._peers.send(to, PeerKind.RAFT, [encode(message)])

    def _write(self, ready: Ready) -> None:
        """Have everything written; its promises wait until it is durable (Q1)."""
        if ready.hard_state is not None:
            self._wal.add([ready.hard_state])
        if ready.image is not None:
            self._wal.add([ready.image])
        self._wal.add(ready.entries)
        if ready.is_to_be_written or ready.after:
            self._promises.append((ready.number, ready.after))
        self._push()

    def _push(self) -> None:
        """Write what waits to be written, and have it flushed; if it is not under way already."""
        if not self._promises or self._promises[-1][0] == self._pushed_number:
            return
        number = self._promises[-1][0]
        try:
            self._lend(self._wal.push)
        except TransientDiskError as error:  # it passes: the next turn tries again
            failure = error
            self._refusals.warning(
                "not written", "the metadata cannot be written, and is tried again: %s", error)
            self._waiting.fail_decisions(lambda: failure)
            return
        self._pushed_number = number
        if self._wal.is_durable:
            self._durable_number = number
        else:
            self._log.when_log_flushed(
                self._wal.log_end, lambda error: self._flushed(number, error))

    def _flushed(self, number: int, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._durable_number = max(self._durable_number, number)
        self._wal.flushed()
        self._schedule()

    def _keep_promises(self) -> bool:
        """Send what was promised and is durable now; was there anything?"""
        if not self._promises or self._promises[0][0] > self._durable_number:
            return False
        self._raft.persisted(self._durable_number)
        while self._promises and self._promises[0][0] <= self._durable_number:
            self._send(self._promises.popleft()[1])
        return True

    def _apply(self, ready: Ready) -> None:
        for entry in ready.committed:
            assert entry.index == self.applied + 1, (entry.index, self.applied)  # Q2
            if entry.kind == CONTROLLER:
                self._machine.apply(entry.index, entry.commands)
            self.applied = entry.index
            self._waiting.tell_decided(entry.index, entry.term, _lost)
        if ready.committed:
            self._waiting.tell_applied(self.applied)

    def _notice_reign(self) -> None:
        """Did this node begin to lead, or stop to (Q3)?"""
        raft, role = self._raft, self._raft.role
        leads = isinstance(role, Leader) and self.applied >= role.term_start
        if self._reign is not None and (not leads or self._reign != raft.term):
            self._end_reign()
        if leads and self._reign is None:
            self._reign = raft.term
            self._reign_ended.clear()
            self._machine.leadership(True)  # noqa: FBT003 a fact
        if raft.leader is not None:
            self._waiting.tell_leader(raft.leader)

    def _end_reign(self) -> None:
        if self._reign is not None:
            self._reign = None
            self._reign_ended.set()
            self._waiting.fail_decisions(_lost)
            self._machine.leadership(False)  # noqa: FBT003 a fact

    # --- images -----------------------------------------------------------------------------

    def _image(self) -> Image:
        """The state as it is now."""
        log = self._raft.log
        term = log.find_term(self.applied)
        assert term is not None, self.applied
        return Image(self.applied, term, log.configuration_at(self.applied),
                     tuple(self._machine.snapshot()))

    def rewrite(self) -> None:
        """Write everything anew: the disk has changed what was written, and memory has it all."""
        self._is_rewrite_due = True
        self._compact_if_due()

    def _compact_if_due(self) -> None:
        """Keep the log bounded: by the state's own size or `image_due_size`, whichever is more."""
        log = self._raft.log
        is_due = self._is_rewrite_due or (
            self.applied > log.image_index and self._wal.commands_size >= max(
                self._config.image_due_size, self._image_size))
        if not is_due or not self._wal.is_written or self.applied == 0 or self.failure is not None:
            return
        self._is_rewrite_due = False
        image = self._image()
        try:
            self._wal.compact(image, log.slice(self.applied + 1, log.written + 1))
        except TransientDiskError as error:  # nothing is lost: the entries are still there
            _log.warning("no snapshot of the metadata could be written: %s", error)
            self._image_size = 2 * self._wal.commands_size  # and not again at once
            return
        self._image_size = sum(map(len, image.items))
        kept_from = self.applied - self._config.entries_kept
        self._raft.compact(RaftIndex(max(log.image_index, kept_from)))
        self._log.when_log_flushed(self._wal.log_end, self._compacted)

    def _compacted(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
        elif self._is_running:
            self._wal.flushed()

    # --- the end ----------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Go silent (Q4): the others will do without this node."""
        if self.failure is not None or not self._is_running:
            return
        if isinstance(error, QuipuError):
            self.failure = error
            _log.error("this node no longer takes part in the quorum: %s", error)
        else:
            self.failure = QuipuError(f"this node no longer takes part in the quorum: {error!r}; "
                                      "report this, and restart it", kind=Kind.BUG)
            _log.error("a bug in the quorum", exc_info=error)
        failure = self.failure
        self._end_reign()
        self._waiting.fail_all(lambda: failure)


def _lost() -> NotController:
    return NotController("this node stopped to be the controller; whether the change was made is "
                         "not known: look, and try again")
