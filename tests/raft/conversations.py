"""Conversations of cores as text: a command, a line of dashes, and all that happened.

    quorum 3 [observers N]        nodes 1, 2, 3 (observers from 101 on), a network without faults
    campaign N                    N tries to become leader
    propose N WORDS..             N is asked to have each word decided
    change N VOTERS..             the voters are to be these
    read N                        a linearizable read at N
    transfer N [TO]               N lets another lead
    pass MS                       time passes; nothing is delivered
    run [MS]                      deliver and flush until all is quiet; then, for MS, as time passes
    step                          deliver what is on its way now, and flush, once
    cut N / join                  N is alone / nobody is
    crash N [empty] / start N     N loses what is not durable (or all of it) / comes back
    compact N                     N makes an image of its state and forgets the entries
    state                         what each node thinks

Heartbeats that only repeat what is known are left out.
"""

from collections.abc import Callable, Iterable

from quipu.model.batch_types import CONFIGURATION
from quipu.model.ids import NodeId
from quipu.raft.follower import Follower
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    Append,
    AppendReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Image,
    Install,
    InstallReply,
    Message,
    Observe,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.raft.worlds import Member, World


def describe(message: Message) -> str:
    """A message in a few words."""
    match message:
        case Vote():
            kind = "transfer" if message.is_transfer else "vote"
            kind = "pre-vote" if message.is_pre_vote else kind
            return f"{kind}? t{message.term} log {message.last_index}/t{message.last_term}"
        case VoteReply():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} {'granted' if message.is_granted else 'refused'} t{message.term}"
        case Append():
            entries = " ".join(map(describe_entry, message.entries)) or "-"
            return (f"append t{message.term} after {message.prev_index}/t{message.prev_term} "
                    f"[{entries}] committed {message.committed}")
        case AppendReply(is_ok=True):
            blank = " (blank)" if message.is_blank else ""
            return f"has t{message.term} up to {message.index}{blank}"
        case AppendReply():
            blank = " (blank)" if message.is_blank else ""
            return (f"lacks t{message.term} {message.index}, try {message.hint}"
                    f"/t{message.hint_term}{blank}")
        case Heartbeat():
            return f"heartbeat t{message.term} committed {message.committed}"
        case HeartbeatReply():
            return f"follows t{message.term}"
        case Install():
            return (f"image t{message.term} of {message.index}/t{message.index_term} "
                    f"bytes {message.position}+{len(message.data)}/{message.size}")
        case InstallReply():
            return f"image t{message.term} of {message.index} received {message.position}"
        case TimeoutNow():
            return f"lead now t{message.term}"
        case Observe():
            return "observe"


def describe_entry(entry: Entry) -> str:
    if entry.kind == CONFIGURATION:
        voters = ",".join(map(str, Configuration.decode(entry.commands[0]).voters))
        return f"{entry.index}/t{entry.term} voters {voters}"
    return f"{entry.index}/t{entry.term} {b'+'.join(entry.commands).decode()}"


class Talk(World):
    """A world without chance that tells what happens in it."""

    def __init__(self, voters: int, observers: int) -> None:
        super().__init__(0, voters, observers=observers, trouble=0.0)
        self.told: list[str] = []
        self._leading: set[NodeId] = set()
        for member in self.members.values():  # no two lose patience together
            member.chance = _constant(member.node_id % 10 / 4)
            member.start(0)

    def start(self, member: Member) -> None:
        self._leading.discard(member.node_id)
        super().restart(member)

    def _send(self, member: Member, sends: Iterable) -> None:
        for to, message in sends:
            if not isinstance(message, Heartbeat | HeartbeatReply):
                self.told.append(f"{member.node_id} -> {to}  {describe(message)}")
        super()._send(member, sends)

    def _apply(self, member: Member, entry: Entry) -> None:
        super()._apply(member, entry)
        self.told.append(f"{member.node_id} applies {describe_entry(entry)}")

    def settle(self, member: Member) -> None:
        written = len(member.disk.written)
        restored = member.applied
        super().settle(member)
        for item in member.disk.written[written:]:
            if isinstance(item, HardState):
                vote = f", vote {item.vote}" if item.vote >= 0 else ""
                self.told.append(f"{member.node_id} writes term {item.term}{vote}")
            elif isinstance(item, Image) and member.applied != restored:
                self.told.append(f"{member.node_id} writes image of {item.index}/t{item.term}")
        if member.raft.is_leader != (member.node_id in self._leading):
            self._leading ^= {member.node_id}
            does = "leads" if member.raft.is_leader else "stops leading"
            self.told.append(f"{member.node_id} {does} t{member.raft.term}")


def _constant(value: float) -> Callable[[], float]:
    return lambda: value


class Conversation:
    """Runs commands against one `Talk`."""

    def __init__(self) -> None:
        self.talk = Talk(1, 0)

    def say(self, line: str) -> list[str]:
        """Run one command; gives what happened."""
        name, *words = line.split()
        self.talk.told = []
        getattr(self, f"_{name}")(*words)
        return self.talk.told or ["(nothing)"]

    def _member(self, number: str) -> Member:
        return self.talk.members[NodeId(int(number))]

    def _quorum(self, voters: str, *rest: str) -> None:
        self.talk = Talk(int(voters), int(rest[1]) if rest else 0)

    def _campaign(self, number: str) -> None:
        self._member(number).raft.campaign()
        self.talk.settle(self._member(number))

    def _propose(self, number: str, *words: str) -> None:
        member = self._member(number)
        for word in words:
            if member.raft.propose([word.encode()]) is None:
                self.talk.told.append("refused")
        self.talk.settle(member)

    def _change(self, number: str, *voters: str) -> None:
        if not self.talk.change(self._member(number), map(int, voters)):
            self.talk.told.append("refused")

    def _read(self, number: str) -> None:
        done = self.talk.reads_done
        self.talk.read(self._member(number))
        self._run()
        self.talk.told.append("read is good" if self.talk.reads_done > done else "no answer")

    def _transfer(self, number: str, *to: str) -> None:
        member = self._member(number)
        member.raft.transfer(NodeId(int(to[0])) if to else None)
        self.talk.settle(member)

    def _pass(self, ms: str) -> None:
        self.talk.tick(int(ms))

    def _run(self, ms: str = "0") -> None:
        self.talk.run(int(ms))

    def _step(self) -> None:
        for member in self.talk.up():
            self.talk.flush(member)
        for _ in range(len(self.talk.wire)):
            self.talk.deliver()

    def _cut(self, number: str) -> None:
        node = NodeId(int(number))
        for other in self.talk.members:
            self.talk.cut |= {(node, other), (other, node)}

    def _join(self) -> None:
        self.talk.cut.clear()

    def _crash(self, number: str, *how: str) -> None:
        self.talk.crash(self._member(number), loses_all=how == ("empty",))

    def _start(self, number: str) -> None:
        self.talk.start(self._member(number))

    def _compact(self, number: str) -> None:
        self.talk.compact(self._member(number))

    def _state(self) -> None:
        for member in self.talk.members.values():
            self.talk.told.append(_state_of(member))


def _state_of(member: Member) -> str:
    if not member.is_up:
        return f"{member.node_id} down"
    raft, log = member.raft, member.raft.log
    role = "leader" if raft.is_leader else (
        "candidate" if not isinstance(raft.role, Follower) else
        "follower" if raft.is_voter else "observer")
    state = b" ".join(member.state).decode() or "-"
    return (f"{member.node_id} {role} t{raft.term} log {log.image_index + 1}..{log.last_index} "
            f"committed {log.committed} state {state}")
