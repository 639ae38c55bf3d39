"""Nodes' worth of chain drivers in one loop: real logs, real cores, a network in memory.

    rig = Rig(tmp_path)
    a, b, c = rig.nodes(3)
    rig.configure(serving=[1, 2, 3])
    await rig.settled()
    await a.produce(b"value")

The rig is the controller: it gives out epochs and versions, and hears the reports.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from quipu.broker.partitions.lease import ENDLESS, Lease
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication import ChainReplication
from quipu.broker.replication.throttling import ReplicationRates
from quipu.model.batch_rules import NO_LIMIT_MS, BatchRules
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.errors import QuipuError
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset, TopicPartition
from quipu.model.partition_log import ACKS_ALL, AppendResult, PendingAppend
from quipu.model.tiered_log import RemoteReads
from quipu.runtime.clock import Clock, ManualClock
from quipu.runtime.disks.disk import Disk, RealDisk
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.peer_net import MessageHandler, PeerListener, PeerNet
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header

TOPIC_ID = UUID(int=0x51)
NAME = TopicPartition("t", 0)
RULES = BatchRules(batch_size_max=1 << 20, append_time=False, timestamp_before_max_ms=NO_LIMIT_MS,
              timestamp_after_max_ms=NO_LIMIT_MS >> 1, min_insync_replicas=1)
WINDOW_SIZE = 64 << 10


class Net:
    """Messages between nodes, each delivered on a later turn; links can be cut and clogged."""

    def __init__(self) -> None:
        self.peers: dict[NodeId, MemoryPeers] = {}
        self.cuts: set[frozenset[NodeId]] = set()
        self.lossy: Callable[[NodeId, NodeId, bytes], bool] = lambda _from, _to, _body: False
        self.delay_turns = 0

    def is_open(self, one: NodeId, other: NodeId) -> bool:
        return other in self.peers and frozenset({one, other}) not in self.cuts

    def cut(self, one: int, other: int) -> None:
        pair = frozenset({NodeId(one), NodeId(other)})
        if pair not in self.cuts:
            self.cuts.add(pair)
            self._tell(pair, up=False)

    def heal(self) -> None:
        pairs, self.cuts = self.cuts, set()
        for pair in pairs:
            self._tell(pair, up=True)

    def _tell(self, pair: frozenset[NodeId], *, up: bool) -> None:
        one, other = sorted(pair)
        for node, peer in ((one, other), (other, one)):
            peers = self.peers.get(node)
            if peers is not None and peers.listener is not None and peer in self.peers:
                (peers.listener.up if up else peers.listener.down)(peer)


class MemoryPeers:
    """As much of a `PeerNet` as chains use."""

    def __init__(self, net: Net, node_id: NodeId) -> None:
        self.net = net
        self.node_id = node_id
        self.handler: MessageHandler | None = None
        self.listener: PeerListener | None = None
        self.backlog_max = 1 << 62
        self.queued: dict[NodeId, int] = {}
        self.frames: list[tuple[NodeId, int]] = []  # to, size
        self._refused: set[NodeId] = set()
        net.peers[node_id] = self

    def on(self, kind: int, handler: MessageHandler) -> None:
        del kind
        self.handler = handler

    def watch(self, listener: PeerListener) -> None:
        self.listener = listener

    def backlog(self, to: NodeId) -> int:
        return self.queued.get(to, 0)

    def send(
        self, to: NodeId, kind: int, buffers: list[Buffer], *, at_once: bool = False
    ) -> bool:
        del at_once  # everything is copied
        if not self.net.is_open(self.node_id, to):
            return False
        if self.queued.get(to, 0) > self.backlog_max:
            self._refused.add(to)
            return False
        body = bytes([kind]) + b"".join(buffers)
        self.frames.append((to, len(body)))
        self.queued[to] = self.queued.get(to, 0) + len(body)
        self._later(self.net.delay_turns, to, body)
        return True

    def _later(self, turns: int, to: NodeId, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._later, turns - 1, to, body)
        else:
            loop.call_soon(self._deliver, to, body)

    def _deliver(self, to: NodeId, body: bytes) -> None:
        self.queued[to] -= len(body)
        if to in self._refused and self.queued[to] <= self.backlog_max:
            self._refused.discard(to)
            if self.listener is not None:
                self.listener.drained(to)
        receiver = self.net.peers.get(to)
        if (receiver is None or receiver.handler is None or self.net.peers[to] is not receiver
                or self.net.peers.get(self.node_id) is not self
                or not self.net.is_open(self.node_id, to)
                or self.net.lossy(self.node_id, to, body)):
            return
        frame = bytearray(body)
        view = memoryview(frame)
        receiver.handler(self.node_id, view[1:])
        view.release()
        frame[:] = b"\xee" * len(frame)  # borrowed: gone when the handler returns


def base_offset(appending: AppendResult | PendingAppend) -> "asyncio.Future[int]":
    """The first offset of a batch that is being appended, or the error."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(outcome: AppendResult | QuipuError) -> None:
        if isinstance(outcome, QuipuError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome.base_offset)

    if isinstance(appending, AppendResult):
        done(appending)
    else:
        appending.when_done(done)
    return future


class Leased:
    """A lease that a test holds in its hand."""

    lease_until = ENDLESS


class ANode:
    """One node's replica of the one partition that there is."""

    def __init__(self, rig: "Rig", node_id: NodeId) -> None:
        self.rig = rig
        self.node_id = node_id
        self.leased = Leased()
        self.leads: list[tuple[str, int]] = []
        self.start()

    def start(self) -> None:
        rig = self.rig
        self.peers = MemoryPeers(rig.net, self.node_id)
        peers = rig.peers.get(self.node_id, self.peers)
        self.directory = DataDirectory.open(
            rig.disk(), str(rig.path / f"n{self.node_id}"), rig.clock, node_id=self.node_id)
        log = self.directory.open_log(
            str(NAME), rig.config, topic_id=TOPIC_ID, replica=True)
        self.partition = ReplicatedPartition(
            NAME, TOPIC_ID, log, rig.rules, Lease(self.leased, rig.clock),
            remote_reads=rig.remote_reads)
        rig.life += 1
        self.replication = ChainReplication(
            self.node_id, peers, rig.clock,  # type: ignore[arg-type]  # what chains use of it
            reporter=rig, window_size=rig.window_size, interval_ms=100, broker_epoch=rig.life,
            logs=self.directory, rates=rig.rates)
        self.replication.watch(self)
        for other in rig.net.peers.values():  # links come up both ways
            if other.node_id != self.node_id:
                if other.listener is not None:
                    other.listener.up(self.node_id)
                self.replication.up(other.node_id)

    def leading_began(self, partition: ReplicatedPartition) -> None:
        self.leads.append(("began", partition.leader_epoch))

    def leading_ended(self, partition: ReplicatedPartition) -> None:
        self.leads.append(("ended", partition.leader_epoch))

    def crash(self) -> None:
        """Gone at once, without a word; what was written is on the disk."""
        del self.rig.net.peers[self.node_id]
        for other in self.rig.net.peers.values():
            if other.listener is not None:
                other.listener.down(self.node_id)
        self.directory.abandon()

    # -- clients

    def append(self, *values: bytes, acks: int = ACKS_ALL) -> "asyncio.Future[int]":
        """Produce one batch; the future gives its offset, or the error."""
        batch = encode_batch([Record(None, value, (), 1) for value in values])
        return base_offset(self.partition.append(
            memoryview(batch), self.rig.clock.now_ms(), acks, 30_000))

    async def produce(self, *values: bytes, acks: int = ACKS_ALL) -> int:
        return await asyncio.wait_for(self.append(*values, acks=acks), 5)

    def values(self, *, dirty: bool = False) -> list[bytes | None]:
        """What a consumer reads here from the start."""
        assert self.partition.why_unreadable(dirty=dirty) is None
        log = self.partition.log
        end = log.end_offset if dirty else self.partition.high_watermark
        found: list[bytes | None] = []
        offset = log.log_start_offset
        while offset < end:
            for batch in log.read(offset, 1 << 20, end=end, min_one=True):
                data = memoryview(batch)
                while data:
                    header = parse_header(data)
                    found += [record.value for record in decode_records(
                        data[: header.size], size_max=1 << 24)]
                    offset = Offset(header.base_offset + header.last_offset_delta + 1)
                    data = data[header.size :]
        return found

    def files(self) -> dict[str, bytes]:
        """Every segment as it is on disk."""
        path = Path(self.partition.log.directory.path)
        return {file.name: file.read_bytes() for file in sorted(path.glob("*.log"))}

    @property
    def log_end(self) -> LogOffset:
        return self.partition.log.log_end


class Rig:
    """The nodes, and the configuration that gives them their roles."""

    def __init__(
        self, path: Path, *, config: LogConfig | None = None, min_insync: int | None = 1,
        window_size: int = WINDOW_SIZE, remote_reads: RemoteReads | None = None,
        rates: ReplicationRates | None = None, clock: Clock | None = None,
        disk: Callable[[], Disk] = RealDisk,
    ) -> None:
        self.path = path
        self.config = config or LogConfig()
        self.rules = RULES._replace(min_insync_replicas=min_insync)
        self.window_size = window_size
        self.remote_reads = remote_reads
        self.rates, self.disk = rates, disk
        self.clock: Any = clock or ManualClock()
        self.net = Net()
        self.life = 0
        self.epoch = 0
        self.version = 0
        self.members: dict[NodeId, ANode] = {}
        self.peers: dict[NodeId, PeerNet] = {}  # instead of those in memory
        self.in_sync: deque[tuple[NodeId, int]] = deque(maxlen=100)
        self.all_serve: list[int] = []
        self.failures: list[str] = []
        self.disk_failures: list[str] = []
        self.repaired = 0
        self.is_known = False  # whether the metadata has the failures

    def nodes(self, count: int) -> list[ANode]:
        for number in range(1, count + 1):
            self.members[NodeId(number)] = ANode(self, NodeId(number))
        return list(self.members.values())

    def add(self) -> ANode:
        node_id = NodeId(max(self.members) + 1)
        self.members[node_id] = ANode(self, node_id)
        return self.members[node_id]

    def restart(self, node: ANode) -> ANode:
        """A new process on the same disk."""
        again = self.members[node.node_id] = ANode(self, node.node_id)
        return again

    # -- the controller

    def report_in_sync(
        self, topic_id: UUID, partition: int, node_id: NodeId, *, version: int
    ) -> None:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        self.in_sync.append((node_id, version))

    def report_serving(self, topic_id: UUID, partition: int, *, version: int) -> None:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        self.all_serve.append(version)

    def report_failure(self, topic_id: UUID, partition: int, why: str) -> None:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        self.failures.append(why)

    def report_repair(self, topic_id: UUID, partition: int) -> None:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        self.repaired += 1

    def is_failure_known(self, topic_id: UUID, partition: int) -> bool:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        return self.is_known

    def report_disk_failure(self, why: str) -> None:
        self.disk_failures.append(why)

    def configure(
        self, *, serving: Sequence[int], syncing: Sequence[int] = (), offline: Sequence[int] = (),
        to: Sequence[int] | None = None, new_epoch: bool = True,
    ) -> ReplicaSet:
        """Give a new configuration to the members (or those in `to`) that are up."""
        self.epoch += int(new_epoch)
        self.version += 1
        states = ((serving, MemberState.SERVING), (syncing, MemberState.SYNCING),
                  (offline, MemberState.OFFLINE))
        replica_set = ReplicaSet(
            epoch=Epoch(self.epoch), version=self.version,
            members=tuple(ReplicaMember(NodeId(node), state) for nodes, state in states
                          for node in nodes))
        for node_id in replica_set.replicas if to is None else map(NodeId, to):
            node = self.members[node_id]
            if self.net.peers.get(node_id) is node.peers:
                node.replication.configure(node.partition, replica_set)
        return replica_set

    # -- time

    async def turns(self, count: int = 1) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def pass_time(self, ticks: int = 1) -> None:
        """Ticks on every node that is up, and time for what follows from each."""
        for _ in range(ticks):
            self.clock.advance_ms(100)
            for node in list(self.members.values()):
                if self.net.peers.get(node.node_id) is node.peers:
                    node.replication.tick()
            await self.turns(30)

    async def until(self, condition: Callable[[], object], ticks: int = 60) -> None:
        """Let time pass until `condition` holds."""
        for _ in range(ticks):
            await self.turns(30)
            if condition():
                return
            await self.pass_time()
        raise AssertionError("it did not come to be")

    async def leads(self, node: ANode) -> None:
        await self.until(lambda: node.partition.is_leader)

    async def settled(self, *nodes: ANode) -> None:
        """All nodes named (or there are) have the same log, and all of it is committed."""
        among = nodes or tuple(self.members.values())
        await self.until(lambda: len({node.log_end for node in among}) == 1 and all(
            node.partition.high_watermark == node.partition.log.end_offset for node in among))

    def check_identical(self, *nodes: ANode) -> None:
        """V22: byte for byte."""
        among = nodes or tuple(self.members.values())
        first = among[0].files()
        assert first
        for node in among[1:]:
            assert node.files() == first, (among[0].node_id, node.node_id)
