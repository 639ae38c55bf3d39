"""Injects faults into a world of chains, and simulates what operators do to it."""

from typing import TYPE_CHECKING, Final

from quipu.chain.events import Drained, PeerDown, PeerUp, Received
from quipu.chain.messages import BEGIN, DescribeLog, Fenced
from quipu.model.batch_types import CHECKPOINT
from quipu.model.bounds import EPOCH_AHEAD_MAX, EPOCH_MAX
from quipu.model.ids import Epoch, NodeId
from quipu.sim.dice import Dice

if TYPE_CHECKING:
    from quipu.sim.worlds.chain import ChainNode, ChainWorld

DETECTION_MS: Final = 25.0
STRANGER: Final = NodeId(99)


class ChainNemesis:
    """Causes random faults and operations."""

    def __init__(self, world: "ChainWorld") -> None:
        self._world = world
        self._dice: Dice = world.dice.fork("nemesis")
        self._cut: set[tuple[NodeId, NodeId]] = set()
        self._pace_ms = self._dice.choose([6.0, 15.0, 40.0])
        self._lies = world.dice.fork("lies")
        self._lie_ms = self._lies.choose([0.0, 0.0, 20.0, 60.0])  # between two; 0: nobody lies

    def start(self) -> None:
        self._world.later(self._dice.between(0, 2 * self._pace_ms), self._act)
        if self._lie_ms:
            self._world.later(self._lies.between(0, 2 * self._lie_ms), self._lie)

    def is_cut(self, sender: NodeId, to: NodeId) -> bool:
        return (sender, to) in self._cut

    def heal(self) -> None:
        """Undo all faults: every node runs and is registered, every link works."""
        world = self._world
        self._cut.clear()
        for node in world.nodes.values():
            node.refuses_until.clear()
            if node.replica is None:
                world.start(node)
            else:
                world.oracle.register(node.node_id, node.life, node.disk)
        world.review()

    def _act(self) -> None:
        if not self._world.has_faults:
            return
        acts = [self._crash, self._crash, self._cut_link, self._cut_link, self._mistake,
                self._power_failure, self._clog, self._trim, self._trim, self._change_members,
                self._flap]
        self._dice.choose(acts)()
        self._world.later(self._dice.between(0, 2 * self._pace_ms), self._act)

    def _running(self) -> list["ChainNode"]:
        return [node for node in self._world.nodes.values() if node.replica is not None]

    # --- nodes ------------------------------------------------------------------------------

    def _crash(self) -> None:
        running = self._running()
        if running:
            self.crash(self._dice.choose(running), self._dice.between(1, 80))

    def _power_failure(self) -> None:
        """Crash all nodes at once, or all serving ones."""
        serving = [place.node_id for place in self._world.oracle.serving()]
        is_total = self._dice.flip(0.5)
        for node in self._running():
            if is_total or node.node_id in serving:
                self.crash(node, self._dice.between(1, 100))

    def crash(self, node: "ChainNode", down_ms: float) -> None:
        """End a node's process; it comes back later, perhaps after the controller noticed."""
        world = self._world
        node.crash()
        life = node.life

        def notice() -> None:
            if world.oracle.lives.get(node.node_id) == life:
                world.oracle.fence(node.node_id)
                world.review()

        def restart() -> None:
            if node.replica is None:
                self._maybe_empty(node)
                world.start(node)

        world.later(self._dice.between(1, 2 * DETECTION_MS), notice)
        world.later(down_ms, restart)

    def _maybe_empty(self, node: "ChainNode") -> None:
        """Replace a node's disk by an empty one, unless it is the last with acknowledged data."""
        oracle = self._world.oracle
        whole = {place.node_id for place in oracle.places if place.node_id != node.node_id
                 and self._world.nodes[place.node_id].disk == place.disk}
        is_spare = any(place.node_id in whole for place in oracle.serving()) and (
            node.node_id not in oracle.moving_to or not whole.isdisjoint(oracle.moving_to))
        if is_spare and self._dice.flip(0.5):
            self.empty(node)

    def empty(self, node: "ChainNode") -> None:
        self._world.record(node, "empty")
        node.log.wipe()
        node.disk += 1
        node.remembered = BEGIN

    def replace(self, node: "ChainNode") -> None:
        """Replace the disk of a node whose log has halted, as an operator does."""
        if node.replica is not None:
            self.crash(node, 5.0)
            self.empty(node)

    def _mistake(self) -> None:
        """Let the controller treat a running node as dead for a while."""
        running = self._running()
        if not running:
            return
        world, node = self._world, self._dice.choose(running)
        life = node.life
        world.record(node, "fenced")
        world.oracle.fence(node.node_id)
        world.review()

        def forgive() -> None:
            if node.replica is not None and node.life == life:
                world.oracle.register(node.node_id, life, node.disk)
                world.review()

        world.later(self._dice.between(1, 60), forgive)

    # --- links ------------------------------------------------------------------------------

    def _pair(self) -> tuple[NodeId, NodeId] | None:
        names = list(self._world.nodes)
        if len(names) < 2:
            return None
        one, other = self._dice.shuffled(names)[:2]
        return one, other

    def _cut_link(self) -> None:
        pair = self._pair()
        if pair is None:
            return
        links = {pair} if self._dice.flip(0.5) else {pair, pair[::-1]}
        self._world.record("world", "cut", links if len(links) == 1 else f"both {pair}")
        self._cut |= links
        self._world.later(self._dice.between(2, 60), lambda: self._cut.difference_update(links))

    def _clog(self) -> None:
        """Let a link refuse messages for a while, and then report that it is drained."""
        pair = self._pair()
        if pair is None:
            return
        world = self._world
        node, to = world.nodes[pair[0]], pair[1]
        clogged_ms = self._dice.between(1, 40)
        node.refuses_until[to] = world.now + clogged_ms
        world.later(clogged_ms, lambda: node.happens(Drained(to)))

    def _flap(self) -> None:
        pair = self._pair()
        if pair is None:
            return
        world = self._world
        node, to = world.nodes[pair[0]], pair[1]
        node.happens(PeerDown(to))
        world.later(self._dice.between(0, 20), lambda: node.happens(PeerUp(to)))

    def _lie(self) -> None:
        """Let a member or another node send an epoch that does not exist."""
        world, lies = self._world, self._lies
        if not world.has_faults:
            return
        running = self._running()
        if running:
            node = lies.choose(running)
            sender = lies.choose([*world.nodes, STRANGER])
            ahead = lies.choose([1, 2, EPOCH_AHEAD_MAX, EPOCH_AHEAD_MAX + 1, EPOCH_MAX // 2])
            epoch = Epoch(world.oracle.epoch + ahead)
            world.record(node, "lie", f"{sender} speaks of epoch {epoch}")
            node.happens(Received(
                sender, Fenced(epoch) if lies.flip(0.5) else DescribeLog(epoch)))
        world.later(lies.between(0, 2 * self._lie_ms), self._lie)

    # --- people -----------------------------------------------------------------------------

    def _trim(self) -> None:
        """Retention drops whole segments of committed batches."""
        running = self._running()
        if not running:
            return
        node = self._dice.choose(running)
        end = min(node.committed.log, node.log.durable.log)
        starts = [batch.log_offset for batch in node.log.batches
                  if batch.batch_type == CHECKPOINT and batch.log_offset < end]
        if starts:
            self._world.record(node, "trim", starts[-1])
            node.log.trim(self._dice.choose(starts))
            self._world.witness.look(node)

    def _change_members(self) -> None:
        world, oracle = self._world, self._world.oracle
        before = oracle.version
        if oracle.is_moving:
            oracle.finish_move()
        else:
            members = {place.node_id for place in oracle.places}
            spare = [name for name in world.nodes if name not in members]
            if spare and self._dice.flip(0.5):
                oracle.move(spare) if self._dice.flip(0.5) else oracle.extend(spare[:1])
            elif not oracle.is_cold:
                oracle.reorder(self._dice.shuffled(range(len(oracle.serving()))))
        if oracle.version != before:
            world.publish()
            world.review()
