"""All chains that this node has a part in: messages in and out, time, and reports.

Invariants
    D1  small messages for one peer leave together at the end of a turn of the loop; of several
        acknowledgements of one partition only the last one does
    D2  what is sent to one peer leaves in the order in which it was given
    D3  a tick costs by how many partitions have something to repeat, not by how many there are
    D4  memory is bounded: entries are sent from the log's own files, and not before the peer's
        backlog has room; those that are still in memory are sent from there while no more than
        FRESH_SIZE_MAX bytes wait for the peer; what waits in an outbox is a small message per
        partition
    D5  while a peer takes no more, nothing is read for it; when it does again, partitions have
        their turn in the order in which they were refused

Not here: one partition (partition_chain.py), the links to other nodes (runtime/peers.py).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from quipu.broker.partition import Partition
from quipu.broker.replication.fresh import FRESH_SIZE_MAX, Copies
from quipu.broker.replication.partition_chain import PartitionChain
from quipu.broker.replication.repairs import Logs, Repairs
from quipu.chain.codec import decode
from quipu.chain.events import Drained, EpochConfirmed, PeerDown, PeerUp, Received
from quipu.model.bounds import EPOCH_AHEAD_MAX
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_EPOCH, Epoch, NodeId, TimestampMs
from quipu.runtime.clock import Clock
from quipu.runtime.connection import Buffer
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.peer_net import PeerKind, PeerNet
from quipu.runtime.spawn import spawn

TICKS_ALL: Final = 25  # within so many ticks, quiet partitions get one too

_CHAIN: Final = int(PeerKind.CHAIN)
_log = logging.getLogger(__name__)

Key = tuple[bytes, int]  # topic id, partition
Doubts = list[tuple[PartitionChain, int]]


class LeadershipListener(Protocol):
    """Someone who must know which partitions this node leads."""

    def leading_began(self, partition: Partition) -> None:
        """This node leads `partition`, in a new epoch; its log holds all that was committed."""
        ...

    def leading_ended(self, partition: Partition) -> None:
        """It does not any more: nothing more can be appended, and what waits will fail."""
        ...


class Reporter(Protocol):
    """Who passes on to the controller what this node sees; see `Cluster`."""

    def report_in_sync(
        self, topic_id: UUID, partition: int, node_id: NodeId, *, version: int
    ) -> None:
        """`node_id`, which syncs in the replica set of `version`, has every record."""
        ...

    def report_serving(self, topic_id: UUID, partition: int, *, version: int) -> None:
        """All who serve in the replica set of `version` have its configuration."""
        ...

    def report_failure(self, topic_id: UUID, partition: int, why: str) -> None:
        """The log of a partition that this node has a part in has failed; said at least once."""
        ...

    def report_repair(self, topic_id: UUID, partition: int) -> None:
        """It was opened again, or this node has no more part in it."""
        ...

    def is_failure_known(self, topic_id: UUID, partition: int) -> bool:
        """Does the metadata that has come here say that this node's replica has failed?"""
        ...

    def report_disk_failure(self, why: str) -> None:
        """Nothing can be written any more: others should serve in this node's place."""
        ...


class _Outbox:
    """Small messages for one peer that leave at the end of the turn."""

    __slots__ = ("acks", "buffers")

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.acks: dict[Key, list[Buffer]] = {}

    def take(self) -> list[Buffer]:
        taken = self.buffers
        for buffers in self.acks.values():
            taken += buffers
        self.buffers, self.acks = [], {}
        return taken


class Replication:
    """The chains of one node."""

    def __init__(
        self,
        node_id: NodeId,
        peers: PeerNet | None,
        clock: Clock,
        *,
        reporter: Reporter,
        window_size: int,
        interval_ms: int,
        life: int = 0,
        logs: Logs | None = None,
    ) -> None:
        """`logs` opens logs again that have failed; without it they stay so."""
        self.node_id = node_id
        self.reporter = reporter
        self.repairs = Repairs(self, logs) if logs is not None else None
        self.window_size = window_size
        self.life = life  # grows with each start of the node: its broker epoch
        self.now_ms: Callable[[], TimestampMs] = clock.now_ms
        self.monotonic: Callable[[], float] = clock.monotonic
        self.copies = Copies()  # of what clients have sent in this turn
        self._peers = peers
        self._interval_seconds = interval_ms / 1000
        self._chains: dict[Key, PartitionChain] = {}
        self._leading: set[Key] = set()
        self._restless: dict[PartitionChain, None] = {}  # have something to repeat (D3)
        self._touched: dict[PartitionChain, None] = {}  # have appended in this turn
        self._outboxes: dict[NodeId, _Outbox] = {}
        self._congested: set[NodeId] = set()  # take no entries for now (D5)
        self._refused: dict[NodeId, dict[PartitionChain, None]] = {}  # who has some for them
        self._doubted: dict[PartitionChain, None] = {}  # were told of a newer epoch
        self.refused_count = 0  # messages that were none, or of nodes without a part
        self._refusals = LimitedLog(_log, clock.monotonic)
        self._turn_is_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[LeadershipListener] = []
        self._tick_count = 0
        self._task: asyncio.Task[None] | None = None
        if peers is not None:
            peers.on(PeerKind.CHAIN, self._received)
            peers.watch(self)

    # -- life

    def start(self) -> None:
        """Let time pass."""
        self._task = spawn(self._tick_on(), "chains")

    async def stop(self) -> None:
        """Do nothing more; those who wait for other nodes are told that this one goes."""
        await asyncio.sleep(0)  # what is answered in this turn is answered by one who serves
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.repairs is not None:
            self.repairs.stop()
        for chain in list(self._chains.values()):
            self.forget(chain.partition)

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                self.tick()
            except Exception:  # noqa: BLE001 a bug in one partition must not stop the others
                _log.exception("a tick of the chains failed")

    def tick(self) -> None:
        """An interval has passed."""
        self._tick_count += 1
        for chain in list(self._restless):
            chain.tick()
            if chain.is_quiet:
                self._restless.pop(chain, None)
        for chain in list(self._chains.values())[self._tick_count % TICKS_ALL :: TICKS_ALL]:
            if chain not in self._restless and (
                    chain.replica is not None or chain.partition.log.failure is not None):
                chain.tick()

    # -- what this node has a part in

    def configure(self, partition: Partition, replica_set: ReplicaSet) -> None:
        """These are the replicas of `partition` from now on."""
        key = _key(partition)
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = PartitionChain(self, partition)
            partition.chain = chain
        chain.configure(replica_set)

    def opened_anew(self, partition: Partition) -> None:
        """The log of `partition` could not be opened, and now it is."""
        chain = self.find(partition)
        if chain is not None and chain.replica_set is not None:
            chain.configure(chain.replica_set)

    def forget(self, partition: Partition) -> None:
        """This node has no part in `partition` any more."""
        key = _key(partition)
        chain = self._chains.pop(key, None)
        if chain is None:
            return
        self._restless.pop(chain, None)
        self._touched.pop(chain, None)
        self._doubted.pop(chain, None)
        if self.repairs is not None:
            self.repairs.forget(chain)
        self.reporter.report_repair(*chain.partition_key)
        for refused in self._refused.values():
            refused.pop(chain, None)
        if partition.replica_set is not None:
            partition.stand(
                partition.replica_set, serving=False, leading=False, alone=False, fresh=False)
        self.lost(partition)

    def watch(self, listener: LeadershipListener) -> None:
        """Tell `listener` what this node leads, and when that changes."""
        self._listeners.append(listener)
        for key in sorted(self._leading):
            listener.leading_began(self._chains[key].partition)

    def find(self, partition: Partition) -> PartitionChain | None:
        return self._chains.get(_key(partition))

    # -- for the partitions' drivers

    def touch(self, chain: PartitionChain) -> None:
        """`chain` is to be asked what to do about its log at the end of this turn."""
        self._touched[chain] = None
        self._end_turn_soon()

    def post(self, to: NodeId, buffers: Sequence[Buffer], *, replaces: Key | None = None) -> None:
        """Send a small message with the others of this turn; best effort (D1)."""
        outbox = self._outboxes.get(to)
        if outbox is None:
            outbox = self._outboxes[to] = _Outbox()
        if replaces is None:
            outbox.buffers += buffers
        else:
            outbox.acks[replaces] = list(buffers)
        self._end_turn_soon()

    def can_send(self, to: NodeId, chain: PartitionChain) -> bool:
        """Is it worth while to read entries for `to`?  If not, `chain` has its turn later."""
        if self._peers is not None and to not in self._congested:
            return True
        self._refused.setdefault(to, {})[chain] = None
        return False

    def has_room(self, to: NodeId, size: int) -> bool:
        """May `size` bytes wait in memory until `to` takes them (D4)?"""
        return self._peers is not None and self._peers.backlog(to) + size <= FRESH_SIZE_MAX

    def send(
        self, to: NodeId, buffers: Sequence[Buffer], chain: PartitionChain, *, at_once: bool
    ) -> bool:
        """Send entries, if not `at_once` then with others; what was posted leaves first (D2)."""
        assert self._peers is not None
        outbox = self._outboxes.get(to)
        waiting = outbox.take() if outbox is not None else []
        if self._peers.send(to, _CHAIN, [*waiting, *buffers], at_once=at_once):
            return True
        self._congested.add(to)  # until it is drained, or comes up
        self._refused.setdefault(to, {})[chain] = None
        return False

    def restless(self, chain: PartitionChain) -> None:
        """Something happened to `chain`: it may have something to repeat with the next tick."""
        if not chain.partition.is_alone and self._chains.get(chain.key) is chain:
            self._restless[chain] = None

    def doubted(self, chain: PartitionChain) -> None:
        """Another node has spoken of a newer epoch: `chain` rests until the metadata tells."""
        self._doubted[chain] = None

    def disbelieved(self, chain: PartitionChain, sender: NodeId, epoch: int) -> None:
        """A node without a part in `chain`, or far ahead, has spoken of a newer epoch."""
        self.refused_count += 1
        known = chain.replica_set.epoch if chain.replica_set is not None else NO_EPOCH
        if epoch > known + EPOCH_AHEAD_MAX:
            self._refusals.warning(
                "refused", "%s: node %d speaks of epoch %d, which cannot be: this one is %d",
                chain.partition.topic_partition, sender, epoch, known)
        else:  # a new member that was faster than the metadata, mostly
            self._refusals.info(
                "early", "%s: node %d, which has no part in it, speaks of epoch %d after %d",
                chain.partition.topic_partition, sender, epoch, known)

    def doubts(self) -> Doubts:
        """The partitions that rest, and how often each was told so; see `confirm`."""
        return [(chain, chain.replica.fence.claim_count) for chain in self._doubted
                if chain.replica is not None]

    def confirm(
        self, doubts: Doubts, newest_epoch: Callable[[Partition], Epoch | None]
    ) -> None:
        """The metadata was read after `doubts` were noted: wrong claims end no epoch."""
        for chain, claim_count in doubts:
            epoch = newest_epoch(chain.partition)
            if epoch is not None:
                chain.tell(EpochConfirmed(epoch, claim_count))
            if chain.replica is None or not chain.replica.fence.is_closed:
                self._doubted.pop(chain, None)

    def stood(self, chain: PartitionChain) -> None:
        """`chain` is something else now: it may lead, or no longer.

        A head that begins a new epoch pauses, and goes on with the same log: nobody is told.
        """
        partition, key = chain.partition, chain.key
        if self._chains.get(key) is not chain:
            return
        if not partition.is_leading:
            if not chain.is_head:
                self.lost(partition)
        elif key not in self._leading:
            self._leading.add(key)
            for listener in self._listeners:
                listener.leading_began(partition)

    def lost(self, partition: Partition) -> None:
        """What this node had appended may not stay: who waits for it, or built on it, is told."""
        partition.abdicate()
        key = _key(partition)
        if key in self._leading:
            self._leading.remove(key)
            for listener in self._listeners:
                listener.leading_ended(partition)

    def failed(self, chain: PartitionChain) -> None:
        """The log of `chain` cannot be used: see that it can be again."""
        if self.repairs is not None and self._chains.get(chain.key) is chain:
            self.repairs.add(chain)

    # -- turns of the loop

    def _end_turn_soon(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()  # a system call each time
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        touched, self._touched = self._touched, {}
        for chain in touched:
            chain.turn()
        self._turn_is_due = False
        if self._touched:
            self._end_turn_soon()  # what one chain did made another one move
        else:
            self.copies.clear()
        for to, outbox in self._outboxes.items():
            buffers = outbox.take()
            if buffers and self._peers is not None:
                self._peers.send(to, _CHAIN, buffers, at_once=True)

    # -- from the peers

    def _received(self, sender: NodeId, frame: memoryview) -> None:
        chains, position, end = self._chains, 0, len(frame)
        try:
            while position < end:
                (topic_id, partition, message), position = decode(frame, position)
                chain = chains.get((topic_id, partition))
                if chain is not None:
                    chain.tell(Received(sender, message))
        except MalformedBytes as error:
            self.refused_count += 1
            self._refusals.warning(
                "malformed", "node %d sent what is no message of chains: %s", sender, error)

    def up(self, node_id: NodeId) -> None:
        self._congested.discard(node_id)
        self._refused.pop(node_id, None)
        for chain in self._with(node_id):
            chain.tell(PeerUp(node_id))

    def down(self, node_id: NodeId) -> None:
        self._congested.discard(node_id)
        self._refused.pop(node_id, None)
        outbox = self._outboxes.get(node_id)
        if outbox is not None:
            outbox.take()
        for chain in self._with(node_id):
            chain.tell(PeerDown(node_id))

    def drained(self, node_id: NodeId) -> None:
        self._congested.discard(node_id)
        refused = self._refused.get(node_id, {})
        for chain in list(refused):
            if node_id in self._congested:
                return
            del refused[chain]
            chain.tell(Drained(node_id))

    def _with(self, node_id: NodeId) -> list[PartitionChain]:
        """Partitions in which `node_id` has a part too."""
        return [
            chain for chain in self._chains.values()
            if chain.replica is not None and chain.replica_set is not None
            and chain.replica_set.state_of(node_id) not in (None, MemberState.OFFLINE)]


def _key(partition: Partition) -> Key:
    return partition.topic_id.bytes, partition.topic_partition.partition
