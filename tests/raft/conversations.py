"""Conversations of cores as text: a command, a line of dashes, and all that happened.

    quorum 3 [observers N]        nodes 1, 2, 3 (observers from 101 on), a network without faults
    campaign N                    N tries to become leader
    propose N COMMANDS..          N proposes each command
    change N VOTERS..             the voters are to be these
    read N                        a linearizable read at N
    transfer N [TO]               N lets another lead
    pass MS                       time passes; nothing is delivered
    run [MS]                      deliver and flush until all is quiet; then, for MS, as time passes
    step                          deliver what was sent so far, and flush, once
    cut N / join                  N is cut off / no node is
    crash N [empty] / start N     N loses what is not durable (or all of it) / comes back
    compact N                     N makes a snapshot of its state and forgets the entries
    state                         the state of each node

Heartbeats that only repeat what is known are left out.
"""

from collections.abc import Callable, Iterable

from quipu.model.batch_types import CONFIGURATION
from quipu.model.ids import NodeId
from quipu.raft.follower import FollowerState
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HardState,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Observe,
    RaftEntry,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tests.raft.worlds import Member, World


def describe(message: Message) -> str:
    """Return a message as a short text."""
    match message:
        case VoteRequest():
            kind = "transfer" if message.is_transfer else "vote"
            kind = "pre-vote" if message.is_pre_vote else kind
            return f"{kind}? t{message.term} log {message.last_index}/t{message.last_term}"
        case VoteResponse():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} {'granted' if message.is_granted else 'refused'} t{message.term}"
        case AppendEntries():
            entries = " ".join(map(describe_entry, message.entries)) or "-"
            return (f"append t{message.term} after {message.prev_index}/t{message.prev_term} "
                    f"[{entries}] committed {message.commit_index}")
        case AppendEntriesResponse(is_success=True):
            blank = " (blank)" if message.is_blank else ""
            return f"has t{message.term} up to {message.index}{blank}"
        case AppendEntriesResponse():
            blank = " (blank)" if message.is_blank else ""
            return (f"lacks t{message.term} {message.index}, try {message.hint_index}"
                    f"/t{message.hint_term}{blank}")
        case RaftHeartbeat():
            return f"heartbeat t{message.term} committed {message.commit_index}"
        case RaftHeartbeatResponse():
            return f"follows t{message.term}"
        case InstallSnapshot():
            return (f"snapshot t{message.term} of {message.index}/t{message.index_term} "
                    f"bytes {message.position}+{len(message.data)}/{message.size}")
        case InstallSnapshotResponse():
            return f"snapshot t{message.term} of {message.index} received {message.position}"
        case TimeoutNow():
            return f"lead now t{message.term}"
        case Observe():
            return "observe"


def describe_entry(entry: RaftEntry) -> str:
    if entry.batch_type == CONFIGURATION:
        voters = ",".join(map(str, Configuration.decode(entry.commands[0]).voters))
        return f"{entry.index}/t{entry.term} voters {voters}"
    return f"{entry.index}/t{entry.term} {b'+'.join(entry.commands).decode()}"


class RecordedWorld(World):
    """A world without chance that records what happens in it as lines."""

    def __init__(self, voters: int, observers: int) -> None:
        super().__init__(0, voters, observers=observers, trouble=0.0)
        self.lines: list[str] = []
        self._leading: set[NodeId] = set()
        for member in self.members.values():  # no two lose patience together
            member.chance = _constant(member.node_id % 10 / 4)
            member.start(0)

    def start(self, member: Member) -> None:
        self._leading.discard(member.node_id)
        super().restart(member)

    def _send(self, member: Member, sends: Iterable) -> None:
        for to, message in sends:
            if not isinstance(message, RaftHeartbeat | RaftHeartbeatResponse):
                self.lines.append(f"{member.node_id} -> {to}  {describe(message)}")
        super()._send(member, sends)

    def _apply(self, member: Member, entry: RaftEntry) -> None:
        super()._apply(member, entry)
        self.lines.append(f"{member.node_id} applies {describe_entry(entry)}")

    def settle(self, member: Member) -> None:
        written = len(member.disk.written)
        restored = member.applied
        super().settle(member)
        for item in member.disk.written[written:]:
            if isinstance(item, HardState):
                vote = f", vote {item.vote}" if item.vote >= 0 else ""
                self.lines.append(f"{member.node_id} writes term {item.term}{vote}")
            elif isinstance(item, Snapshot) and member.applied != restored:
                self.lines.append(f"{member.node_id} writes snapshot of {item.index}/t{item.term}")
        if member.raft.is_leader != (member.node_id in self._leading):
            self._leading ^= {member.node_id}
            does = "leads" if member.raft.is_leader else "stops leading"
            self.lines.append(f"{member.node_id} {does} t{member.raft.term}")


def _constant(value: float) -> Callable[[], float]:
    return lambda: value


class Conversation:
    """Runs commands against one `RecordedWorld`."""

    def __init__(self) -> None:
        self.world = RecordedWorld(1, 0)

    def run(self, line: str) -> list[str]:
        """Run one command; return what happened."""
        name, *arguments = line.split()
        self.world.lines = []
        getattr(self, f"_{name}")(*arguments)
        return self.world.lines or ["(nothing)"]

    def _member(self, number: str) -> Member:
        return self.world.members[NodeId(int(number))]

    def _quorum(self, voters: str, *rest: str) -> None:
        self.world = RecordedWorld(int(voters), int(rest[1]) if rest else 0)

    def _campaign(self, number: str) -> None:
        self._member(number).raft.campaign()
        self.world.settle(self._member(number))

    def _propose(self, number: str, *commands: str) -> None:
        member = self._member(number)
        for command in commands:
            if member.raft.propose([command.encode()]) is None:
                self.world.lines.append("refused")
        self.world.settle(member)

    def _change(self, number: str, *voters: str) -> None:
        if not self.world.change(self._member(number), map(int, voters)):
            self.world.lines.append("refused")

    def _read(self, number: str) -> None:
        done = self.world.reads_done
        self.world.read(self._member(number))
        self._run()
        is_confirmed = self.world.reads_done > done
        self.world.lines.append("read confirmed" if is_confirmed else "read not confirmed")

    def _transfer(self, number: str, *to: str) -> None:
        member = self._member(number)
        member.raft.transfer_leadership(NodeId(int(to[0])) if to else None)
        self.world.settle(member)

    def _pass(self, ms: str) -> None:
        self.world.tick(int(ms))

    def _run(self, ms: str = "0") -> None:
        self.world.run(int(ms))

    def _step(self) -> None:
        for member in self.world.up():
            self.world.flush(member)
        for _ in range(len(self.world.wire)):
            self.world.deliver()

    def _cut(self, number: str) -> None:
        node = NodeId(int(number))
        for other in self.world.members:
            self.world.cut |= {(node, other), (other, node)}

    def _join(self) -> None:
        self.world.cut.clear()

    def _crash(self, number: str, *how: str) -> None:
        self.world.crash(self._member(number), loses_all=how == ("empty",))

    def _start(self, number: str) -> None:
        self.world.start(self._member(number))

    def _compact(self, number: str) -> None:
        self.world.compact(self._member(number))

    def _state(self) -> None:
        for member in self.world.members.values():
            self.world.lines.append(_state_of(member))


def _state_of(member: Member) -> str:
    if not member.is_up:
        return f"{member.node_id} down"
    raft, log = member.raft, member.raft.log
    role = "leader" if raft.is_leader else (
        "candidate" if not isinstance(raft.role, FollowerState) else
        "follower" if raft.is_voter else "observer")
    state = b" ".join(member.state).decode() or "-"
    return (f"{member.node_id} {role} t{raft.term} log {log.snapshot_index + 1}..{log.last_index} "
            f"committed {log.commit_index} state {state}")
