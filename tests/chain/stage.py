"""A stage for conversations between replicas: every message waits until it is delivered.

Each thing that happens is recorded as one line, and a test compares the lines:

    1 append 2                          1 -> 2 replicate after 1/2 [2]
    2 -> 1 ack 3 of 3                   1 commits 3

A batch is one log offset wide.  `after 1/2`: where the entries belong, and the epoch before them;
`[2]`: how many; `ack 3 of 3`: what is acknowledged, and the sender's own end.
"""

from collections import deque
from textwrap import dedent

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
from quipu.chain.messages import (
    BEGIN,
    OPEN,
    REQUIRED,
    RESTART,
    TRUNCATE,
    Ack,
    DescribeLog,
    Fenced,
    LogDescription,
    Mark,
    Message,
    Replicate,
)
from quipu.chain.replica import Replica
from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, DATA
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.sim.worlds.chain_log import BATCH_SIZE, Batch, ModelLog, decode_batches

FLAGS = {OPEN: "open", TRUNCATE: "truncate", RESTART: "restart", REQUIRED: "required"}


def members(serving: str, syncing: str = "", offline: str = "", *, epoch: int, version: int = 0,
            ) -> ReplicaSet:
    """`members("123", "4", epoch=2)`: nodes 1, 2 and 3 serve, 4 is syncing."""
    groups = ((serving, MemberState.SERVING), (syncing, MemberState.SYNCING),
              (offline, MemberState.OFFLINE))
    return ReplicaSet(epoch=Epoch(epoch), version=version or epoch, members=tuple(
        ReplicaMember(NodeId(int(name)), state) for names, state in groups for name in names))


class Actor:
    """One replica and its log."""

    def __init__(self, stage: "Stage", name: int, *, window_size: int, is_durable: bool) -> None:
        self.stage = stage
        self.name = name
        self.window_size = window_size
        self.log = ModelLog(is_durable=is_durable, clamps_epochs=False)
        self.life = 0
        self.disk_is_full = False
        self.refuses = False
        self._queue: deque[Event] = deque()
        self.restart()

    def restart(self, committed: Mark = BEGIN) -> None:
        """A new process on the same log."""
        self.life += 1
        self.replica = Replica(NodeId(self.name), self.log, committed=committed,
                               broker_epoch=self.life,
                               window_size=self.window_size)

    def fill(self, *epochs: int, number: int = 0) -> None:
        """Batches of these epochs, one each; `number` makes them differ from others."""
        for epoch in epochs:
            self.log.add(width=1, epoch=epoch, number=number or 1000 * epoch + self.log.log_end,
                         batch_type=DATA if self.log.batches else CHECKPOINT)

    def happens(self, event: Event) -> None:
        self._queue.append(event)
        while self._queue:
            is_changed = False
            for effect in self.replica.handle(self._queue.popleft()):
                if isinstance(effect, Append | AppendConfiguration | TruncateTo | Restart):
                    if self.disk_is_full:
                        break
                    is_changed = True
                self._carry_out(effect)
            if is_changed:
                self._queue.appendleft(LOG_CHANGED)
        self.replica.invariants()

    def _carry_out(self, effect: Effect) -> None:
        stage, me, log = self.stage, self.name, self.log
        match effect:
            case SendMessage(to, message):
                stage.sent(me, to, message)
            case SendEntries(to, start_log, size_max, message):
                entries = log.read_entries(start_log, size_max)
                if self.refuses:
                    self._queue.append(SendRefused(to))
                    return
                stage.sent(me, to, message._replace(entries=tuple(e.data for e in entries)))
                self._queue.append(EntriesSent(to, message.session, entries[-1].next_log,
                                        len(entries) * BATCH_SIZE))
            case Append(entries):
                stage.record(f"{me} append {len(entries)}")
                for batch in self._decode(entries):
                    log.append(batch)
            case AppendConfiguration(replica_set):
                stage.record(f"{me} begins epoch {replica_set.epoch}")
                log.add(width=1, epoch=replica_set.epoch, batch_type=CONFIGURATION,
                        number=1000 * replica_set.epoch + log.log_end)
            case TruncateTo(log_end):
                stage.record(f"{me} truncates at {log_end}")
                log.cut(log_end)
            case Restart(log_start, entries):
                first, *rest = self._decode(entries)
                assert first.log_offset == log_start, first
                stage.record(f"{me} restarts at {first.log_offset}")
                log.restart(first)
                for batch in rest:
                    log.append(batch)
            case AdvanceCommitted(committed):
                stage.record(f"{me} commits {committed.log}")
            case SetServing(is_serving, is_leader):
                role = "leads" if is_leader else "serves" if is_serving else "rests"
                stage.record(f"{me} {role}")
            case ReportInSync(node, version):
                stage.record(f"{me} reports {node} in version {version}")
            case ConfirmEpoch() | WarnEpochIgnored():
                pass
            case Halt(reason):
                stage.record(f"{me} halts: {reason.split(';')[0]}")

    def _decode(self, entries: tuple[bytes | memoryview, ...]) -> list[Batch]:
        return [batch for entry in entries for batch in decode_batches(entry)]


class Stage:
    """Replicas 1 to `count`, and the messages between them."""

    def __init__(self, count: int = 3, *, window_size: int = 1 << 20, is_durable: bool = False,
                 ) -> None:
        self.actors = {name: Actor(self, name, window_size=window_size, is_durable=is_durable)
                       for name in range(1, count + 1)}
        self.waiting: list[tuple[int, int, Message]] = []
        self._lines: list[str] = []

    def __getitem__(self, name: int) -> Actor:
        return self.actors[name]

    def record(self, line: str) -> None:
        self._lines.append(line)

    def sent(self, sender: int, to: int, message: Message) -> None:
        self.record(f"{sender} -> {to} {show(message)}")
        self.waiting.append((sender, to, message))

    # --- what a test does -------------------------------------------------------------------

    def configure(self, replica_set: ReplicaSet, *names: int) -> None:
        for name in names or self.actors:
            self[name].happens(Configured(replica_set))

    def produce(self, name: int, count: int = 1) -> None:
        actor = self[name]
        assert actor.replica.is_leader
        actor.fill(*[actor.replica.epoch] * count)
        self.record(f"{name} append {count}")
        actor.happens(LOG_CHANGED)

    def flush(self, name: int) -> None:
        self.record(f"{name} flushes")
        self[name].log.flush()
        self[name].happens(FLUSHED)

    def tick(self, *names: int) -> None:
        for name in names or self.actors:
            self[name].happens(TICK)

    def deliver(self, index: int = 0) -> None:
        """Deliver one message that waits, by default the oldest."""
        sender, to, message = self.waiting.pop(index)
        self[to].happens(Received(NodeId(sender), message))

    def lose(self, index: int = 0) -> Message:
        return self.waiting.pop(index)[2]

    def run(self, *without: int) -> None:
        """Deliver everything; what goes to or comes from `without` is lost."""
        for _ in range(1000):
            if not self.waiting:
                return
            if {*self.waiting[0][:2]} & {*without}:
                self.lose()
            else:
                self.deliver()
        raise AssertionError("messages without end")

    def play(self, epoch: int = 2) -> "Stage":
        """Have all members serve, and deliver every message."""
        self.configure(members("".join(map(str, self.actors)), epoch=epoch))
        self.run()
        assert self[1].replica.is_leader
        self.script()
        return self

    def script(self) -> str:
        """Return the lines since the last call."""
        text, self._lines = "\n".join(self._lines), []
        return text


def scene(text: str) -> str:
    """Return the expected lines, as a test writes them."""
    return dedent(text).strip()


def show(message: Message) -> str:
    match message:
        case DescribeLog(epoch):
            return f"describe {epoch}"
        case LogDescription():
            epochs = " ".join(f"{epoch}@{start}" for epoch, start in message.epochs)
            reason = message.reason.name.lower()
            return f"{reason}: ends at {message.log_end}, epochs {epochs}".strip()
        case Replicate():
            words = [word for flag, word in FLAGS.items() if message.flags & flag]
            count = f" [{len(message.entries)}]" if message.entries else ""
            return " ".join([*words, f"replicate after {message.prev_end}/{message.prev_epoch}"]
                            ) + count
        case Ack():
            return f"ack {message.acked.log} of {message.end_log}"
        case Fenced(epoch):
            return f"fenced {epoch}"
