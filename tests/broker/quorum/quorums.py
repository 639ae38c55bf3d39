"""Quorums of real drivers in one loop: peers in memory, disks that forget."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from quipu.broker.quorum import NotController, Quorum, QuorumConfig
from quipu.model.ids import NodeId, RaftIndex, TimestampMs
from quipu.raft.admission import NoChecks
from quipu.runtime.disks.disk import Disk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.peer_net import MessageHandler, PeerListener
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.log_directory import LogDirectory
from tests.looped import BEGIN_MS, LoopClock

LOG_NAME = "__cluster-0"
LOG_CONFIG = LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1)
CLOCK = LoopClock()


class Machine(NoChecks):
    """A state that is the list of its commands."""

    def __init__(self) -> None:
        self.state: list[bytes] = []
        self.leads: list[bool] = []
        self.restored = 0

    def apply(self, index: RaftIndex, commands: Sequence[bytes]) -> None:
        self.state += commands

    def snapshot(self) -> Iterable[bytes]:
        return list(self.state)

    def restore(self, items: Iterable[bytes]) -> None:
        self.state = list(items)
        self.restored += 1

    def leadership(self, is_leader: bool) -> None:
        self.leads.append(is_leader)


class Switch:
    """Where all links meet; `cut` holds the pairs whose messages are lost."""

    def __init__(self) -> None:
        self.nets: dict[NodeId, MemoryNet] = {}
        self.cut: set[tuple[NodeId, NodeId]] = set()

    def isolate(self, node_id: int) -> None:
        for other in self.nets:
            self.cut |= {(NodeId(node_id), other), (other, NodeId(node_id))}


class MemoryNet:
    """The peers of one node: what is sent arrives on the next turn, or not at all."""

    def __init__(self, switch: Switch, node_id: NodeId) -> None:
        self.sent = 0
        self._switch = switch
        self._node_id = node_id
        self._handlers: dict[int, MessageHandler] = {}
        switch.nets[node_id] = self

    def on(self, kind: int, handler: MessageHandler) -> None:
        self._handlers[kind] = handler

    def watch(self, listener: PeerListener) -> None:
        for net in self._switch.nets:
            if net != self._node_id:
                asyncio.get_running_loop().call_soon(listener.up, net)

    def send(self, to: NodeId, kind: int, buffers: list[Buffer]) -> bool:
        self.sent += 1
        if (self._node_id, to) in self._switch.cut or to not in self._switch.nets:
            return False
        body = b"".join(buffers)
        asyncio.get_running_loop().call_soon(self._switch.nets[to].receive, self._node_id, kind,
                                             body)
        return True

    def receive(self, sender: NodeId, kind: int, body: bytes) -> None:
        handler = self._handlers.get(kind)
        if handler is not None:
            view = memoryview(bytearray(body))
            handler(sender, view)
            view.release()  # borrowed: code that kept it fails


class Node:
    """One driver, its machine and its disk."""

    def __init__(self, node_id: int, voters: Sequence[int], switch: Switch,
                 disk: Disk | None = None, **options: int) -> None:
        self.node_id = NodeId(node_id)
        self.voters = voters
        self.switch = switch
        self.disk = disk or new_disk()
        self._options = options  # of its QuorumConfig
        self._lives = 0

    async def start(self) -> "Node":
        self._lives += 1
        self.machine = Machine()
        self.log = open_log(self.disk)
        self.quorum = Quorum(
            self.machine, config(self.node_id, self.voters, **self._options),
            log=self.log, clock=CLOCK,
            rng=SeededRng(100 * self.node_id + self._lives),
            peers=MemoryNet(self.switch, self.node_id))
        await self.quorum.start()
        return self

    async def kill(self, seed: int = 0) -> None:
        """Lose the process and, of the disk, what was not synced."""
        self.switch.nets.pop(self.node_id, None)
        self.quorum._is_running = False
        self.quorum._leading_term = None
        assert self.quorum._timer is not None
        self.quorum._timer.cancel()
        assert isinstance(self.disk, SimDisk)
        self.disk.crash(SeededRng(seed))
        await asyncio.sleep(0)


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory("data")
    disk.sync_directory("data")
    return disk


def open_log(disk: Disk, directory: str = "data/__cluster-0") -> Log:
    directory = LogDirectory(disk=disk, path=directory, name=LOG_NAME)
    return Log(directory, LOG_CONFIG, now_ms=TimestampMs(BEGIN_MS))


def config(node_id: int, voters: Sequence[int], **options: int) -> QuorumConfig:
    return QuorumConfig(node_id=NodeId(node_id), voters=tuple(map(NodeId, voters)),
                        election_timeout_ms=100, heartbeat_interval_ms=20, **options)


async def started(
    count: int = 3, *, observers: Sequence[int] = (), **options: int
) -> list[Node]:
    """A running quorum, its leader first."""
    switch = Switch()
    voters = list(range(1, count + 1))
    nodes = [Node(node_id, voters, switch, **options) for node_id in [*voters, *observers]]
    for node in nodes:
        MemoryNet(switch, node.node_id)  # reachable before it runs
    for node in nodes:
        await node.start()
    leader = await leader_of(nodes)
    return [leader, *(node for node in nodes if node is not leader)]


async def leader_of(nodes: Sequence[Node]) -> Node:
    await until(lambda: any(node.quorum.is_leader for node in nodes))
    leading = [node for node in nodes if node.quorum.is_leader]
    return max(leading, key=lambda node: node.quorum.term)


async def leader_who_knows(nodes: Sequence[Node]) -> Node:
    """A leader whose state holds all that was decided; on a busy machine leaders come and go."""
    async with asyncio.timeout(20):
        while True:
            leader = await leader_of(nodes)
            with contextlib.suppress(NotController):
                await leader.quorum.barrier()
                return leader
            await asyncio.sleep(0.005)


async def stop(nodes: Iterable[Node]) -> None:
    for node in nodes:
        await node.quorum.stop()


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
