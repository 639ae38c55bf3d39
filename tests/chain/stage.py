"""A stage for conversations between replicas: every message waits until it is delivered.

What happens is written down, one line each, so that a test reads like a play:

    1 append 2                          1 -> 2 replicate after 1/2 [2]
    2 -> 1 ack 3 of 3                   1 commits 3

A batch is one log offset wide.  `after 1/2`: where the entries belong, and the epoch before them;
`[2]`: how many; `ack 3 of 3`: what is acknowledged, and the sender's own end.
"""

from collections import deque
from textwrap import dedent

from quipu.chain.effects import (
    Advance,
    Append,
    AppendConfiguration,
    AskEpoch,
    CutTo,
    Disbelieve,
    Effect,
    Halt,
    ReportInSync,
    Restart,
    Send,
    SendEntries,
    Serve,
)
from quipu.chain.events import APPENDED, FLUSHED, TICK, Configured, Event, Received, Refused, Sent
from quipu.chain.messages import (
    BEGIN,
    COUNTED,
    CUT,
    OPEN,
    RESTART,
    Ack,
    Describe,
    Described,
    Fenced,
    Mark,
    Message,
    Replicate,
)
from quipu.chain.replica import Replica
from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, DATA
from quipu.model.chains import Member, MemberState, ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.sim.chain_log import BATCH_SIZE, Batch, ModelLog, decode_batches

FLAGS = {OPEN: "open", CUT: "cut", RESTART: "restart", COUNTED: "counted"}


def members(serving: str, syncing: str = "", offline: str = "", *, epoch: int, version: int = 0,
            ) -> ReplicaSet:
    """`members("123", "4", epoch=2)`: nodes 1, 2 and 3 serve, 4 is syncing."""
    groups = ((serving, MemberState.SERVING), (syncing, MemberState.SYNCING),
              (offline, MemberState.OFFLINE))
    return ReplicaSet(epoch=Epoch(epoch), version=version or epoch, members=tuple(
        Member(NodeId(int(name)), state) for names, state in groups for name in names))


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
        self.replica = Replica(NodeId(self.name), self.log, committed=committed, life=self.life,
                               window_size=self.window_size)

    def fill(self, *epochs: int, number: int = 0) -> None:
        """Batches of these epochs, one each; `number` tells them from others' batches."""
        for epoch in epochs:
            self.log.add(width=1, epoch=epoch, number=number or 1000 * epoch + self.log.log_end,
                         batch_type=DATA if self.log.batches else CHECKPOINT)

    def happens(self, event: Event) -> None:
        self._queue.append(event)
        while self._queue:
            is_changed = False
            for effect in self.replica.handle(self._queue.popleft()):
                if isinstance(effect, Append | AppendConfiguration | CutTo | Restart):
                    if self.disk_is_full:
                        break
                    is_changed = True
                self._carry_out(effect)
            if is_changed:
                self._queue.appendleft(APPENDED)
        self.replica.invariants()

    def _carry_out(self, effect: Effect) -> None:
        stage, me, log = self.stage, self.name, self.log
        match effect:
            case Send(to, message):
                stage.sent(me, to, message)
            case SendEntries(to, start_log, size_max, message):
                entries = log.read_entries(start_log, size_max)
                if self.refuses:
                    self._queue.append(Refused(to))
                    return
                stage.sent(me, to, message._replace(entries=tuple(e.data for e in entries)))
                self._queue.append(Sent(to, message.session, entries[-1].next_log,
                                        len(entries) * BATCH_SIZE))
            case Append(entries):
                stage.tell(f"{me} append {len(entries)}")
                for batch in self._decode(entries):
                    log.append(batch)
            case AppendConfiguration(replica_set):
                stage.tell(f"{me} begins epoch {replica_set.epoch}")
                log.add(width=1, epoch=replica_set.epoch, batch_type=CONFIGURATION,
                        number=1000 * replica_set.epoch + log.log_end)
            case CutTo(log_end):
                stage.tell(f"{me} cuts at {log_end}")
                log.cut(log_end)
            case Restart(entries):
                first, *rest = self._decode(entries)
                stage.tell(f"{me} restarts at {first.log_offset}")
                log.restart(first)
                for batch in rest:
                    log.append(batch)
            case Advance(committed):
                stage.tell(f"{me} commits {committed.log}")
            case Serve(is_serving, is_leading):
                stage.tell(f"{me} {'leads' if is_leading else 'serves' if is_serving else 'rests'}")
            case ReportInSync(node, version):
                stage.tell(f"{me} reports {node} in version {version}")
            case AskEpoch() | Disbelieve():
                pass
            case Halt(reason):
                stage.tell(f"{me} halts: {reason.split(';')[0]}")

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

    def tell(self, line: str) -> None:
        self._lines.append(line)

    def sent(self, sender: int, to: int, message: Message) -> None:
        self.tell(f"{sender} -> {to} {show(message)}")
        self.waiting.append((sender, to, message))

    # --- what a test does -------------------------------------------------------------------

    def configure(self, replica_set: ReplicaSet, *names: int) -> None:
        for name in names or self.actors:
            self[name].happens(Configured(replica_set))

    def produce(self, name: int, count: int = 1) -> None:
        actor = self[name]
        assert actor.replica.is_leading
        actor.fill(*[actor.replica.epoch] * count)
        self.tell(f"{name} append {count}")
        actor.happens(APPENDED)

    def flush(self, name: int) -> None:
        self.tell(f"{name} flushes")
        self[name].log.flush()
        self[name].happens(FLUSHED)

    def tick(self, *names: int) -> None:
        for name in names or self.actors:
            self[name].happens(TICK)

    def deliver(self, index: int = 0) -> None:
        """Deliver one message that waits, the oldest unless told."""
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
        raise AssertionError("they never stop talking")

    def play(self, epoch: int = 2) -> "Stage":
        """All members serve, and everything that had to be said was said."""
        self.configure(members("".join(map(str, self.actors)), epoch=epoch))
        self.run()
        assert self[1].replica.is_leading
        self.script()
        return self

    def script(self) -> str:
        """What happened since the last time."""
        text, self._lines = "\n".join(self._lines), []
        return text


def scene(text: str) -> str:
    """What should have happened, as it stands in a test."""
    return dedent(text).strip()


def show(message: Message) -> str:
    match message:
        case Describe(epoch):
            return f"describe {epoch}"
        case Described():
            epochs = " ".join(f"{epoch}@{start}" for epoch, start in message.epochs)
            return f"{message.why.name.lower()}: ends at {message.log_end}, epochs {epochs}".strip()
        case Replicate():
            words = [word for flag, word in FLAGS.items() if message.flags & flag]
            count = f" [{len(message.entries)}]" if message.entries else ""
            return " ".join([*words, f"replicate after {message.prev_end}/{message.prev_epoch}"]
                            ) + count
        case Ack():
            return f"ack {message.acked.log} of {message.end_log}"
        case Fenced(epoch):
            return f"fenced {epoch}"
