"""All chains that this node is a member of: messages in and out, ticks, reports.

Invariants
    broker.replication.D1  small messages for one peer leave together at the end of a turn of the
                           event loop; of several acknowledgements of one partition only the last
    broker.replication.D2  messages to one peer leave in the order in which they were given
    broker.replication.D3  the cost of a tick grows with the partitions that have something to
                           repeat, not with all partitions
    broker.replication.D4  memory is bounded: entries are sent from the log's own files, and not
                           before the peer's send buffer has room; those that are still in memory
                           are sent from there while no more than RECENT_SIZE_MAX bytes wait for the
                           peer; an outbox has a small message per partition
    broker.replication.D5  while a peer's send buffer is full, nothing is read for it; when it has
                           room again, partitions send in the order in which they were refused

Not here: one partition (partition_chain.py), the links to other nodes (runtime/peers/peers.py).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication.log_repairs import LogRepairs, Logs
from quipu.broker.replication.partition_chain import PartitionChain
from quipu.broker.replication.recent_entries import RECENT_SIZE_MAX, TurnBuffer
from quipu.broker.replication.throttling import (
    ReplicationRates,
    ReplicationThrottle,
    Unlimited,
    throttled_replicas,
)
from quipu.chain.codec import decode
from quipu.chain.events import Drained, EpochConfirmed, PeerDown, PeerUp, Received
from quipu.model.bounds import EPOCH_AHEAD_MAX
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_EPOCH, Epoch, NodeId, TimestampMs
from quipu.model.partition_log import PartitionLog
from quipu.model.settings import TopicSettings
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.peer_net import PeerKind, PeerNet
from quipu.runtime.spawn import spawn

TICKS_ALL: Final = 25  # quiet partitions get every 25th tick

_CHAIN: Final = int(PeerKind.CHAIN)
_log = logging.getLogger(__name__)

PartitionKey = tuple[bytes, int]  # topic id, partition
FencedChains = list[tuple[PartitionChain, int]]


class LeadershipListener(Protocol):
    """Is notified of the partitions that this node begins or stops to lead."""

    def leading_began(self, partition: PartitionLog) -> None:
        """Note that this node leads `partition`; its log has all committed records."""
        ...

    def leading_ended(self, partition: PartitionLog) -> None:
        """Note that it does not lead any more: appends fail, waiting ones too."""
        ...


class Reporter(Protocol):
    """Reports observations of this node to the controller; see `ClusterDriver`."""

    def report_in_sync(
        self, topic_id: UUID, partition: int, node_id: NodeId, *, version: int
    ) -> None:
        """Report that `node_id`, which syncs in the replica set of `version`, is in sync."""
        ...

    def report_serving(self, topic_id: UUID, partition: int, *, version: int) -> None:
        """Report that all serving members of the set of `version` have its configuration."""
        ...

    def report_failure(self, topic_id: UUID, partition: int, why: str) -> None:
        """Report that this node's log of a partition has failed; at least once."""
        ...

    def report_repair(self, topic_id: UUID, partition: int) -> None:
        """Report that the log was opened again, or that this node is not a member any more."""
        ...

    def is_failure_known(self, topic_id: UUID, partition: int) -> bool:
        """Whether the metadata on this node says that its replica has failed."""
        ...

    def report_disk_failure(self, why: str) -> None:
        """Report that nothing can be written any more: other nodes should serve instead."""
        ...


class _Outbox:
    """Small messages for one peer that leave at the end of the turn."""

    __slots__ = ("acks", "buffers")

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.acks: dict[PartitionKey, list[Buffer]] = {}

    def take(self) -> list[Buffer]:
        """Return all messages, acknowledgements last, and empty the outbox."""
        taken = self.buffers
        for buffers in self.acks.values():
            taken += buffers
        self.buffers, self.acks = [], {}
        return taken


class ChainReplication:
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
        broker_epoch: int = 0,
        logs: Logs | None = None,
        rates: ReplicationRates | None = None,
    ) -> None:
        """`logs` opens failed logs again; without it they stay failed."""
        self.node_id = node_id
        self.reporter = reporter
        self.repairs = LogRepairs(self, logs) if logs is not None else None
        self.window_size = window_size
        self.broker_epoch = broker_epoch  # grows with each start of the node
        self.now_ms: Callable[[], TimestampMs] = clock.now_ms
        self.monotonic: Callable[[], float] = clock.monotonic
        self.throttle = ReplicationThrottle(node_id, clock.monotonic, rates or Unlimited())
        self.turn_buffer = TurnBuffer()  # the batches that clients have sent in this turn
        self._peers = peers
        self._interval_seconds = interval_ms / 1000
        self._chains: dict[PartitionKey, PartitionChain] = {}
        self._leading: set[PartitionKey] = set()
        self._ticked: dict[PartitionChain, None] = {}  # broker.replication.D3
        self._scheduled: dict[PartitionChain, None] = {}  # those that appended in this turn
        self._outboxes: dict[NodeId, _Outbox] = {}
        self._congested: set[NodeId] = set()  # broker.replication.D5: peers with full buffers
        self._refused: dict[NodeId, dict[PartitionChain, None]] = {}  # with entries for a peer
        self._fenced: dict[PartitionChain, None] = {}  # those that learnt of a newer epoch
        self.refused_count = 0  # malformed messages, and claims of epochs that were ignored
        self._rejections = LimitedLog(_log, clock.monotonic)
        self._turn_is_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[LeadershipListener] = []
        self._tick_count = 0
        self._task: asyncio.Task[None] | None = None
        if peers is not None:
            peers.on(PeerKind.CHAIN, self._received)
            peers.watch(self)

    # -- start and stop

    def start(self) -> None:
        """Tick from now on."""
        self._task = spawn(self._tick_on(), "chains")

    async def stop(self) -> None:
        """Stop replication; fail the appends that wait for other nodes."""
        await asyncio.sleep(0)  # responses of this turn still come from a leader
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.repairs is not None:
            self.repairs.stop()
        for chain in list(self._chains.values()):
            self.forget(chain.partition)
        self.throttle.stop()

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                self.tick()
            except Exception:  # noqa: BLE001 a bug in one partition must not stop the others
                _log.exception("a tick of the chains failed")

    def tick(self) -> None:
        """Tick the chains that have something to repeat, and some of the others."""
        self._tick_count += 1
        for chain in list(self._ticked):
            chain.tick()
            if chain.is_quiet:
                self._ticked.pop(chain, None)
        for chain in list(self._chains.values())[self._tick_count % TICKS_ALL :: TICKS_ALL]:
            if chain not in self._ticked and (
                    chain.replica is not None or chain.partition.log.failure is not None):
                chain.tick()

    # -- the partitions of this node

    def configure(self, partition: ReplicatedPartition, replica_set: ReplicaSet) -> None:
        """Take `replica_set` as the replicas of `partition` from now on."""
        key = _key(partition)
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = PartitionChain(self, partition)
            partition.chain = chain
        chain.configure(replica_set)

    def limit(self, topic_id: bytes, settings: TopicSettings | None) -> None:
        """Limit the traffic of the throttled replicas of a topic; None: it is deleted."""
        self.throttle.configure(topic_id, throttled_replicas(settings))

    def log_opened(self, partition: ReplicatedPartition) -> None:
        """Configure `partition` again: its log could not be opened, and now it is."""
        chain = self.find(partition)
        if chain is not None and chain.replica_set is not None:
            chain.configure(chain.replica_set)

    def forget(self, partition: ReplicatedPartition) -> None:
        """Stop replicating `partition`: this node is not a member any more."""
        key = _key(partition)
        chain = self._chains.pop(key, None)
        if chain is None:
            return
        self._ticked.pop(chain, None)
        self._scheduled.pop(chain, None)
        self._fenced.pop(chain, None)
        self.throttle.forget(key)
        if self.repairs is not None:
            self.repairs.forget(chain)
        self.reporter.report_repair(*chain.partition_key)
        for refused in self._refused.values():
            refused.pop(chain, None)
        if partition.replica_set is not None:
            partition.set_role(
                partition.replica_set, serving=False, leading=False, sole=False)
        self.leadership_lost(partition)

    def watch(self, listener: LeadershipListener) -> None:
        """Notify `listener` of the partitions that this node leads, and when that changes."""
        self._listeners.append(listener)
        for key in sorted(self._leading):
            listener.leading_began(self._chains[key].partition)

    def find(self, partition: ReplicatedPartition) -> PartitionChain | None:
        return self._chains.get(_key(partition))

    # -- called by the partitions' drivers

    def schedule_turn(self, chain: PartitionChain) -> None:
        """Call `chain.end_turn` at the end of this turn: it has appended."""
        self._scheduled[chain] = None
        if not self._turn_is_due:
            self._end_turn_soon()

    def post(
        self, to: NodeId, buffers: Sequence[Buffer], *, replaces: PartitionKey | None = None
    ) -> None:
        """Send a small message with the others of this turn; best effort.

        It replaces one with the same key (broker.replication.D1).
        """
        outbox = self._outboxes.get(to)
        if outbox is None:
            outbox = self._outboxes[to] = _Outbox()
        if replaces is None:
            outbox.buffers += buffers
        else:
            outbox.acks[replaces] = list(buffers)
        self._end_turn_soon()

    def can_send(self, to: NodeId, chain: PartitionChain) -> bool:
        """Whether entries can be sent to `to` now; if not, `chain` is called when they can."""
        if self._peers is not None and to not in self._congested:
            return True
        self._refused.setdefault(to, {})[chain] = None
        return False

    def has_room(self, to: NodeId, size: int) -> bool:
        """Whether `size` bytes may wait in memory until they are sent (broker.replication.D4)."""
        return self._peers is not None and self._peers.backlog(to) + size <= RECENT_SIZE_MAX

    def send(
        self, to: NodeId, buffers: Sequence[Buffer], chain: PartitionChain, *, at_once: bool
    ) -> bool:
        """Send entries, at once or with others; posted messages leave first.

        Returns False if the send buffer of `to` is full (broker.replication.D2).
        """
        assert self._peers is not None
        outbox = self._outboxes.get(to)
        waiting = outbox.take() if outbox is not None else []
        if self._peers.send(to, _CHAIN, [*waiting, *buffers], at_once=at_once):
            return True
        self._congested.add(to)  # until it is drained, or comes up
        self._refused.setdefault(to, {})[chain] = None
        return False

    def needs_ticks(self, chain: PartitionChain) -> None:
        """Tick `chain` next time: something happened to it."""
        if not chain.partition.is_sole_replica and self._chains.get(chain.key) is chain:
            self._ticked[chain] = None

    def chain_fenced(self, chain: PartitionChain) -> None:
        """Note that `chain` is fenced until the metadata has been read."""
        self._fenced[chain] = None

    def epoch_ignored(self, chain: PartitionChain, sender: NodeId, epoch: int) -> None:
        """Log a claim of a newer epoch that is ignored: not a member's, or too high (chain.F1)."""
        self.refused_count += 1
        known = chain.replica_set.epoch if chain.replica_set is not None else NO_EPOCH
        if epoch > known + EPOCH_AHEAD_MAX:
            self._rejections.warning(
                "rejected", "%s: node %d claims epoch %d, which is impossible: this one is %d",
                chain.partition.topic_partition, sender, epoch, known)
        else:  # a new member that was faster than the metadata, mostly
            self._rejections.info(
                "early", "%s: node %d, which is not a member, claims epoch %d after %d",
                chain.partition.topic_partition, sender, epoch, known)

    def fenced_chains(self) -> FencedChains:
        """Return the fenced partitions and their counts of claims, for `confirm_epochs`."""
        return [(chain, chain.replica.fence.claim_count) for chain in self._fenced
                if chain.replica is not None]

    def confirm_epochs(
        self, fenced: FencedChains, newest_epoch: Callable[[ReplicatedPartition], Epoch | None]
    ) -> None:
        """Unfence the chains of `fenced` whose epoch is still the newest in the metadata.

        The metadata must have been read after `fenced` was taken.
        """
        for chain, claim_count in fenced:
            epoch = newest_epoch(chain.partition)
            if epoch is not None:
                chain.handle(EpochConfirmed(epoch, claim_count))
            if chain.replica is None or not chain.replica.fence.is_fenced:
                self._fenced.pop(chain, None)

    def role_changed(self, chain: PartitionChain) -> None:
        """Notify listeners if `chain` has begun to lead, or stopped.

        A head that begins a new epoch pauses, and continues with the same log: no notification.
        """
        partition, key = chain.partition, chain.key
        if self._chains.get(key) is not chain:
            return
        if not partition.is_leader:
            if not chain.is_head:
                self.leadership_lost(partition)
        elif key not in self._leading:
            self._leading.add(key)
            for listener in self._listeners:
                listener.leading_began(partition)

    def leadership_lost(self, partition: ReplicatedPartition) -> None:
        """Fail waiting appends and notify listeners: the next leader may not have all appends."""
        partition.fail_waiting_appends()
        key = _key(partition)
        if key in self._leading:
            self._leading.remove(key)
            for listener in self._listeners:
                listener.leading_ended(partition)

    def log_failed(self, chain: PartitionChain) -> None:
        """Open the log of `chain`, which has failed, again."""
        if self.repairs is not None and self._chains.get(chain.key) is chain:
            self.repairs.add(chain)

    # -- turns of the event loop

    def _end_turn_soon(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()  # a system call each time
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        scheduled, self._scheduled = self._scheduled, {}
        for chain in scheduled:
            chain.end_turn()
        self._turn_is_due = False
        if self._scheduled:
            self._end_turn_soon()  # one chain's effects were another's events
        else:
            self.turn_buffer.clear()
        for to, outbox in self._outboxes.items():
            buffers = outbox.take()
            if buffers and self._peers is not None:
                self._peers.send(to, _CHAIN, buffers, at_once=True)

    # -- called by the peers

    def _received(self, sender: NodeId, frame: memoryview) -> None:
        chains, position, end = self._chains, 0, len(frame)
        try:
            while position < end:
                (topic_id, partition, message), position = decode(frame, position)
                chain = chains.get((topic_id, partition))
                if chain is not None:
                    chain.handle(Received(sender, message))
        except MalformedBytes as error:
            self.refused_count += 1
            self._rejections.warning(
                "malformed", "node %d sent a chain message that cannot be decoded: %s",
                sender, error)

    def up(self, node_id: NodeId) -> None:
        """Note that `node_id` is connected."""
        self._congested.discard(node_id)
        self._refused.pop(node_id, None)
        for chain in self._with(node_id):
            chain.handle(PeerUp(node_id))

    def down(self, node_id: NodeId) -> None:
        """Note that `node_id` is not connected any more."""
        self._congested.discard(node_id)
        self._refused.pop(node_id, None)
        outbox = self._outboxes.get(node_id)
        if outbox is not None:
            outbox.take()
        for chain in self._with(node_id):
            chain.handle(PeerDown(node_id))

    def drained(self, node_id: NodeId) -> None:
        """Let the refused partitions send to `node_id`, in order (broker.replication.D5)."""
        self._congested.discard(node_id)
        refused = self._refused.get(node_id, {})
        for chain in list(refused):
            if node_id in self._congested:
                return
            del refused[chain]
            chain.handle(Drained(node_id))

    def _with(self, node_id: NodeId) -> list[PartitionChain]:
        """Return the partitions that `node_id` is an active member of too."""
        return [
            chain for chain in self._chains.values()
            if chain.replica is not None and chain.replica_set is not None
            and chain.replica_set.state_of(node_id) not in (None, MemberState.OFFLINE)]


def _key(partition: ReplicatedPartition) -> PartitionKey:
    return partition.topic_id.bytes, partition.topic_partition.partition
