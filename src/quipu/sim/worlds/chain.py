"""A world of chains: the real core of replication, simulated logs, a controller that cannot fail.

One partition on a few nodes, in virtual milliseconds.  The network loses, duplicates, delays and
reorders; links are cut one way or both; nodes crash, lose what was not flushed, and come back, some
with an empty disk; the controller treats running nodes as dead, and its metadata arrives late and
out of order; members are added, moved and reordered; disks fail to write; retention runs.  Then all
of it stops, and within a time limit every node must have the same log and send nothing more.

There are three kinds of worlds
    durable   acknowledgements wait for the disk; a crash loses what was not flushed
    kept      they do not, and a crash loses nothing (the process ended, the machine did not)
    lossy     they do not, and a crash loses what was not flushed: here acknowledged batches may be
              lost, and a log that had them halts; an operator then empties its disk

Checkers are in chain_checkers.py, faults in chain_nemesis.py.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final

from quipu.chain.codec import decode, encode, encode_replicate
from quipu.chain.effects import (
    AdvanceCommitted,
    Append,
    AppendConfiguration,
    ConfirmEpoch,
    Effect,
    Halt,
    ReportInSync,
    Restart,
    SendEntries,
    SendMessage,
    SetServing,
    TruncateTo,
    WarnEpochIgnored,
)
from quipu.chain.events import (
    FLUSHED,
    LOG_CHANGED,
    TICK,
    Configured,
    EntriesSent,
    Event,
    Received,
    SendRefused,
)
from quipu.chain.messages import BEGIN, ENTRIES_MAX, Buffer, Mark
from quipu.chain.replica import Replica
from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, DATA
from quipu.model.chains import ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.sim.dice import Dice
from quipu.sim.trace import Trace
from quipu.sim.world import Violation
from quipu.sim.worlds.chain_checkers import Witness
from quipu.sim.worlds.chain_epochs import EpochReads
from quipu.sim.worlds.chain_log import Batch, ModelLog, decode_batches
from quipu.sim.worlds.chain_nemesis import ChainNemesis
from quipu.sim.worlds.chain_oracle import Oracle

TICK_MS: Final = 10.0
FAULTS_MS: Final = 400.0
CONVERGE_MS_MAX: Final = 2_000.0
COLD_WAIT_MS: Final = 60.0
LATE_MS_MAX: Final = 100.0
TOPIC: Final = bytes(range(16))


class ChainNode:
    """One node: its log, which outlives processes, and the replica of the current process."""

    def __init__(self, world: "ChainWorld", node_id: NodeId) -> None:
        self.world = world
        self.node_id = node_id
        self.log = ModelLog(is_durable=world.kind == "durable",
                            clamps_epochs=world.clamps_epochs)
        self.life = 0
        self.disk = 0  # number of its disk: another one after it was emptied
        self.replica: Replica | None = None
        self.remembered = BEGIN  # the stored commit point, for the next process
        self.refuses_until: dict[NodeId, float] = {}
        self._dice = world.dice.fork(f"node/{node_id}")
        self._queue: deque[Event] = deque()
        self._flush_is_due = False

    def __str__(self) -> str:
        return f"n{self.node_id}"

    @property
    def committed(self) -> Mark:
        return self.replica.committed if self.replica is not None else self.remembered

    @property
    def epoch(self) -> Epoch:
        assert self.replica is not None
        return self.replica.epoch

    def has_durably(self, batch: Batch) -> bool:
        return batch.next_log <= self.log.durable.log and self.log.holds(batch)

    def acked_by(self, node: NodeId) -> int | None:
        """The end of what `node` has acknowledged; None unless it is the successor."""
        assert self.replica is not None
        link = self.replica._relay.outbound  # noqa: SLF001 checkers look inside
        return link.acked.log if link is not None and link.to == node else None

    # --- life and death ---------------------------------------------------------------------

    def boot(self) -> None:
        assert self.replica is None
        self.life += 1
        self.replica = Replica(self.node_id, self.log, committed=self.remembered,
                               broker_epoch=self.life,
                               window_size=self.world.window_size)
        self.remembered = self.replica.committed
        self.world.record(self, "boot", f"life {self.life}, log end {self.log.log_end}")
        self._tick_later(self.life, self._dice.between(0, TICK_MS))
        self._note_change()

    def crash(self) -> None:
        assert self.replica is not None
        self.replica = None
        self._flush_is_due = False
        lost = 0
        if self.world.kind != "kept":
            lost = self._dice.below(self.log.unflushed_count + 1)
        self.log.lose(lost)
        self.remembered = min(self.remembered, Mark(self.log.log_end, self.log.end_offset))
        self.world.record(self, "crash", f"loses {lost}, log end {self.log.log_end}")

    def _tick_later(self, life: int, delay: float) -> None:
        def tick() -> None:
            if self.replica is not None and self.life == life:
                if not self.replica.is_quiet:
                    self.happens(TICK)
                self._tick_later(life, TICK_MS)

        self.world.later(delay, tick)

    # --- events and effects -----------------------------------------------------------------

    def happens(self, event: Event) -> None:
        """Let the core handle `event`, and carry out its effects."""
        replica = self.replica
        if replica is None:
            return
        self._queue.append(event)
        try:
            while self._queue:
                effects = replica.handle(self._queue.popleft())
                if self._carry_out(effects):
                    self._queue.appendleft(LOG_CHANGED)
        except Violation:
            raise
        except AssertionError as error:
            raise Violation(f"sound: {self}: {error!r}") from error
        self.world.witness.look(self)

    def _carry_out(self, effects: list[Effect]) -> bool:
        """Carry out effects in order; drop the rest if one fails.  True if the log has changed."""
        is_changed = False
        for effect in effects:
            match effect:
                case Append() | AppendConfiguration() | TruncateTo() | Restart():
                    if self.world.has_faults and self._dice.flip(self.world.disk_fails):
                        self.world.record(self, "disk", f"refuses {type(effect).__name__}")
                        return is_changed
                    self._change_log(effect)
                    is_changed = True
                case SendEntries():
                    self._send_entries(effect)
                case SendMessage(to, message):
                    self.world.send(self, to, encode(TOPIC, 0, message))
                case AdvanceCommitted(committed):
                    self.world.record(self, "commit", committed.log)
                    self.world.witness.committed(self, committed)
                    if self._dice.flip(0.3):
                        self.remembered = committed
                case ReportInSync(node, version):
                    self.world.report(node, version)
                case Halt(reason):
                    self.world.halted(self, reason)
                case ConfirmEpoch():
                    self.world.epoch_reads.ask(self)
                case WarnEpochIgnored(sender, epoch):
                    self.world.record(self, "disbelieves", f"{sender}, epoch {epoch}")
                case SetServing():
                    self.world.record(self, "serve", f"{effect.is_serving} {effect.is_leader} "
                                    f"in {self.epoch}")
        return is_changed

    def _change_log(self, effect: Append | AppendConfiguration | TruncateTo | Restart) -> None:
        log, witness = self.log, self.world.witness
        match effect:
            case TruncateTo(log_end):
                self.world.record(self, "cut", log_end)
                witness.cuts(self, log_end)
                log.cut(log_end)
            case AppendConfiguration(replica_set):
                if not log.batches:
                    self.write(CHECKPOINT, replica_set.epoch)
                self.write(CONFIGURATION, replica_set.epoch)
            case Append(entries):
                for entry in entries:
                    self._copy(entry)
            case Restart(log_start, entries):
                first = next(decode_batches(entries[0]))
                assert first.log_offset == log_start, first
                self.world.record(self, "restart", first.log_offset)
                witness.restarts(self, first.log_offset)
                log.restart(first)
                witness.wrote(self, first)
                for entry in entries[1:]:
                    self._copy(entry)
        self._note_change()

    def _copy(self, entry: Buffer) -> None:
        for batch in decode_batches(entry):
            try:
                self.log.append(batch)
            except AssertionError as error:
                raise Violation(f"log-refuses: {self} is to append {batch}: {error}") from error
            self.world.witness.wrote(self, batch)

    def write(self, batch_type: int, epoch: int, number: int | None = None) -> None:
        """Append a batch of this node's own, with a new number if none is given."""
        width = 1 + self._dice.below(3) if batch_type == DATA else 1
        batch = self.log.add(width=width, epoch=epoch, batch_type=batch_type,
                             number=number or next(self.world.numbers))
        self.world.witness.wrote(self, batch)
        self._note_change()

    def produce(self) -> None:
        """Append some batches of a client, and sometimes start a new segment."""
        assert self.replica is not None
        for _ in range(1 + self._dice.below(3)):
            self.write(CHECKPOINT if self._dice.flip(0.08) else DATA, self.epoch)
        self.happens(LOG_CHANGED)

    def _send_entries(self, effect: SendEntries) -> None:
        if self.refuses_until.get(effect.to, 0.0) > self.world.now:
            self._queue.append(SendRefused(effect.to))
            return
        entries = self.log.read_entries(effect.start_log, effect.size_max)[:ENTRIES_MAX]
        data = [entry.data for entry in entries]
        self.world.send(self, effect.to, encode_replicate(TOPIC, 0, effect.message, data))
        self._queue.append(EntriesSent(effect.to, effect.message.session, entries[-1].next_log,
                                sum(map(len, data))))

    def _note_change(self) -> None:
        """Flush what was written, some time later."""
        if self._flush_is_due or self.log.is_flushed:
            return
        self._flush_is_due = True
        life = self.life

        def flush() -> None:
            if self.replica is not None and self.life == life:
                self._flush_is_due = False
                self.log.flush()
                self.happens(FLUSHED)

        self.world.later(self._dice.between(0.2, self.world.flush_ms), flush)


class ChainWorld:
    """Nodes, network, controller and faults of one chain."""

    def __init__(
        self, seed: int, *, echo: Callable[[str], None] | None = None,
        faults_ms: float = FAULTS_MS,
    ) -> None:
        self.dice = dice = Dice(seed, "chain")
        self.trace = Trace(echo=echo)
        self.now = 0.0
        self.has_faults = True
        self._faults_ms = faults_ms
        self.kind = dice.choose(["durable", "durable", "kept", "lossy"])
        self.flush_ms = 60.0 if self.kind == "lossy" else 8.0
        self.clamps_epochs = dice.flip(0.5)
        self.window_size = dice.choose([40, 200, 1 << 20])
        self.loses = dice.choose([0.0, 0.02, 0.1])
        self.doubles = dice.choose([0.0, 0.05])
        self.is_fifo = dice.flip(0.5)
        self.delay_ms = dice.choose([0.5, 2.0, 6.0])
        self.idles = dice.choose([0.0, 0.02, 0.08])
        self.disk_fails = dice.choose([0.0, 0.01])
        names = [NodeId(number) for number in range(1, dice.choose([2, 3, 4, 4, 5]) + 1)]
        self.oracle = Oracle(names[:dice.choose([1, 2, 3, 3])])
        self.numbers = count(1)
        self.witness = Witness(self)
        self.nodes = {name: ChainNode(self, name) for name in names}
        self.nemesis = ChainNemesis(self)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self._arrivals: dict[tuple[NodeId, NodeId], float] = {}
        self._cold_since: float | None = None
        self.epoch_reads = EpochReads(self)
        self.sent_count = 0
        self.step_count = 0

    @property
    def is_lossy(self) -> bool:
        return self.kind == "lossy"

    def record(self, who: object, what: str, about: object = "") -> None:
        self.trace.add(self.now, str(who), what, about)

    # --- time -------------------------------------------------------------------------------

    def later(self, delay: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._sequence), act))

    def _run_until(self, end: float, *, is_done: Callable[[], bool] | None = None) -> bool:
        while self._events and self._events[0][0] <= end:
            if is_done is not None and is_done():
                return True
            self.now, _, act = heapq.heappop(self._events)
            self.step_count += 1
            act()
        self.now = end
        return is_done is not None and is_done()

    def run(self) -> None:
        """Run both phases."""
        for node in self.nodes.values():
            self.start(node)
        self._produce_later()
        self.nemesis.start()
        self._run_until(self._faults_ms)
        self.record("world", "heal")
        self.has_faults = False
        self.nemesis.heal()
        if not self._run_until(self.now + CONVERGE_MS_MAX, is_done=self._has_converged):
            raise Violation(f"convergence: {self.describe()}")
        self._check_end()

    def _produce_later(self) -> None:
        def produce() -> None:
            if not self.has_faults:
                return
            for node in self.nodes.values():
                if node.replica is not None and node.replica.is_leader:
                    node.produce()
            self._produce_later()

        is_idle = self.dice.flip(self.idles)
        self.later(self.dice.between(30, 150) if is_idle else self.dice.between(1, 4), produce)

    # --- the network ------------------------------------------------------------------------

    def send(self, sender: ChainNode, to: NodeId, buffers: list[Buffer]) -> None:
        frame = b"".join(buffers)
        self.sent_count += 1
        self._carry(sender.node_id, to, frame)
        if self.has_faults and self.dice.flip(self.doubles):
            self._carry(sender.node_id, to, frame)

    def _carry(self, sender: NodeId, to: NodeId, frame: bytes) -> None:
        if self.has_faults and self.dice.flip(self.loses):
            return
        arrival = self.now + self.dice.between(0.05, self.delay_ms)
        if self.has_faults and not self.is_fifo and self.dice.flip(0.02):
            arrival += self.dice.between(10, LATE_MS_MAX)  # long after its sender expects it
        if self.is_fifo or not self.has_faults:
            arrival = max(arrival, self._arrivals.get((sender, to), 0.0))
            self._arrivals[sender, to] = arrival

        def arrive() -> None:
            if not self.nemesis.is_cut(sender, to):
                message = decode(memoryview(frame))[0].message
                self.nodes[to].happens(Received(sender, message))

        self.later(arrival - self.now, arrive)

    # --- the controller ---------------------------------------------------------------------

    def start(self, node: ChainNode) -> None:
        """Boot, and register a little later."""
        node.boot()
        life = node.life

        def register() -> None:
            if node.replica is not None and node.life == life:
                self.oracle.register(node.node_id, life, node.disk)
                self.review()

        self.later(self.dice.between(0.5, 15), register)

    def review(self) -> None:
        """Let the controller decide after a change, and publish the result."""
        before = self.oracle.version
        if self.oracle.is_cold:
            if self._cold_since is None:
                self._cold_since = self.now
                self.later(COLD_WAIT_MS + 0.1, self.review)
            self.oracle.review(is_wait_over=self.now - self._cold_since > COLD_WAIT_MS)
        else:
            self.oracle.review()
        if self.oracle.is_lost and all(
                place.node_id in self.oracle.lives for place in self.oracle.places):
            self._elect()
        if not self.oracle.is_cold:
            self._cold_since = None
        if self.oracle.version != before:
            self.publish()

    def _elect(self) -> None:
        """Elect the node with the best log, as an operator does if all serving disks are lost."""
        best = max((self.nodes[place.node_id] for place in self.oracle.places),
                   key=lambda node: (node.log.last_epoch, node.log.log_end))
        self.record(best, "elected")
        self.oracle.elect(best.node_id)
        self.oracle.review()

    def publish(self) -> None:
        """Send every node the members as they are now; it arrives after a delay."""
        replica_set = self.oracle.replica_set
        self.record("oracle", "decides", _show(replica_set))
        lives = {name: self.oracle.life_of(name) for name in self.nodes}
        for node in self.nodes.values():
            delay = self.dice.between(0.1, 12 if self.dice.flip(0.2) else 3)
            self.later(delay, self._notification(node, replica_set, lives[node.node_id]))

    def _notification(
        self, node: ChainNode, replica_set: ReplicaSet, life: int | None
    ) -> Callable[[], None]:
        def notify() -> None:
            if life is None or life == node.life:
                node.happens(Configured(replica_set))

        return notify

    def report(self, node: NodeId, version: int) -> None:
        """Send a report to the controller."""
        def arrive() -> None:
            if self.oracle.report(node, version):
                self.publish()

        self.later(self.dice.between(0.1, 8), arrive)

    def halted(self, node: ChainNode, reason: str) -> None:
        """Let an operator empty the disk of a halted node; only in a lossy world."""
        self.record(node, "halt", reason)
        if not self.is_lossy:
            raise Violation(f"halted: {node}: {reason}")
        self.later(1.0, lambda: self.nemesis.replace(node))

    # --- the end ----------------------------------------------------------------------------

    def _has_converged(self) -> bool:
        oracle = self.oracle
        if oracle.is_moving and oracle.finish_move():
            self.publish()
        places = oracle.places
        if len(oracle.serving()) < len(places):
            return False
        nodes = [self.nodes[place.node_id] for place in places]
        log_end = nodes[0].log.log_end
        return all(
            node.replica is not None and node.replica.is_serving and node.replica.is_quiet
            and node.epoch == oracle.epoch
            and node.log.log_end == node.committed.log == log_end
            for node in nodes) and nodes[0].replica is not None and nodes[0].replica.is_leader

    def _check_end(self) -> None:
        """Check that all logs are the same, and that no node sends messages any more."""
        nodes = [self.nodes[place.node_id] for place in self.oracle.places]
        for node in nodes:
            if not nodes[0].log.holds(node.log.batches[-1]):
                raise Violation(f"convergence: {node} differs from {nodes[0]}")
        self._run_until(self.now + LATE_MS_MAX + 3 * TICK_MS)
        sent = self.sent_count
        self._run_until(self.now + 5 * TICK_MS)
        if self.sent_count != sent:
            raise Violation(f"quiet: {self.sent_count - sent} messages about nothing")

    def describe(self) -> str:
        """The state of all nodes, for people."""
        return "; ".join([_show(self.oracle.replica_set), *(
            f"{node} down, end {node.log.log_end}" if node.replica is None else
            f"{node} {node.replica.role} in {node.epoch}, end {node.log.log_end} of epoch "
            f"{node.log.last_epoch}, committed {node.committed.log}, "
            f"{'quiet' if node.replica.is_quiet else 'busy'}"
            for node in self.nodes.values())])


def _show(replica_set: ReplicaSet) -> str:
    members = " ".join(f"{member.node_id}:{member.state.name.lower()}"
                       for member in replica_set.members)
    return f"epoch {replica_set.epoch} version {replica_set.version} {members}"
