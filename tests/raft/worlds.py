"""Quorums of cores on a network that loses, duplicates and reorders messages, with crashes.

Everything comes from one seed.  After every step the properties that Raft promises are checked:

    one leader per term · logs match · leaders have every committed entry · one entry is committed
    per index · the commit index never falls · a read sees all entries committed before it began ·
    later leaders know until when an earlier one may have confirmed a request (raft.E4)
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from quipu.model.batch_types import CONTROLLER
from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.codec import decode, encode
from quipu.raft.core import Raft
from quipu.raft.leader import LeaderState
from quipu.raft.membership import Configuration
from quipu.raft.messages import HardState, Message, RaftEntry, Snapshot
from quipu.raft.ready import Ready, StoredState
from quipu.raft.settings import Timing

TIMING = Timing(election_timeout_ms=100, heartbeat_interval_ms=20)
WEIGHTS = {"crash": 1.0, "restart": 3.0, "cut": 0.7, "join": 0.7, "change": 1.0, "compact": 1.0,
           "tick": 12.0, "flush": 25.0, "propose": 10.0, "read": 3.0, "transfer": 0.3, "reach": 0.3,
           "deliver": 60.0}
Written = HardState | RaftEntry | Snapshot


@dataclass
class Disk:
    """What a node has written; a crash keeps what is durable, and any first part of the rest."""

    written: list[Written] = field(default_factory=list)
    durable: int = 0

    def load(self) -> tuple[StoredState, tuple[bytes, ...]]:
        state, snapshot, entries = HardState(), None, dict[int, RaftEntry]()
        for item in self.written:
            match item:
                case HardState():
                    state = item
                case RaftEntry():
                    entries = {at: kept for at, kept in entries.items() if at < item.index}
                    entries[item.index] = item
                case Snapshot():
                    same = entries.get(item.index)
                    keeps = same is not None and same.term == item.term
                    snapshot = item
                    entries = {at: kept for at, kept in entries.items()
                               if keeps and at > item.index}
        if snapshot is None:
            return StoredState(hard_state=state, entries=tuple(entries.values())), ()
        return StoredState(hard_state=state, snapshot_index=snapshot.index,
                           snapshot_term=snapshot.term, configuration=snapshot.configuration,
                           entries=tuple(entries.values())), snapshot.items


class Member:
    """One node: a core, its disk, and the list of commands that is its state."""

    def __init__(self, node_id: int, voters: Iterable[int], rng: random.Random) -> None:
        self.node_id = NodeId(node_id)
        self.disk = Disk()
        self.is_up = True
        self._voters = [NodeId(voter) for voter in voters]
        self._rng = rng
        self.chance = rng.random
        self.start(0)

    def start(self, now_ms: int) -> None:
        stored, items = self.disk.load()
        self.disk.durable = len(self.disk.written)
        self.is_up = True
        self.state = list(items)
        self.applied = int(stored.snapshot_index)
        self.now_ms = now_ms
        self.flushing: list[tuple[int, Ready]] = []  # with the size of the log they end at
        self.raft = Raft(self.node_id, self._voters, stored, timing=TIMING,
                         chance=self.chance, now_ms=now_ms)

    def crash(self, *, loses_all: bool = False) -> None:
        kept = self.disk.durable
        if self._rng.random() < 0.5:
            kept = self._rng.randint(self.disk.durable, len(self.disk.written))
        del self.disk.written[0 if loses_all else kept :]
        self.disk.durable = len(self.disk.written)
        self.is_up = False


class World:
    """All members, the messages between them, and what must hold."""

    def __init__(self, seed: int, voters: int = 3, *, observers: int = 0, trouble: float = 0.1,
                 names: Iterable[int] | None = None) -> None:
        self.rng = random.Random(seed)
        self.trouble = trouble  # share of messages that are lost; half as many come twice
        ids = list(names or range(1, voters + 1))
        self.members = {NodeId(node_id): Member(node_id, ids, self.rng)
                        for node_id in [*ids, *range(101, 101 + observers)]}
        self.wire: list[tuple[NodeId, NodeId, Message]] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.now_ms = 0
        self.proposed = 0
        self.acknowledged: list[bytes] = []  # applied where they were proposed, in that term
        self.reads: dict[tuple[NodeId, int], int] = {}
        self.reads_done = 0
        self._mine: dict[tuple[NodeId, int, int], bytes] = {}
        self._leaders: dict[int, NodeId] = {}
        self._entries: dict[tuple[int, int], tuple[RaftEntry, int | None]] = {}
        self.committed_entries: dict[int, RaftEntry] = {}
        self._committed: dict[NodeId, int] = {}
        self._asked: dict[tuple[NodeId, int, str], int] = {}  # when: reads, and proposals
        self.confirmed: dict[int, int] = {}  # by term: when the last one was asked for
        self.led_before: dict[int, int] = {}  # by term: when others led, at the latest (raft.E4)

    # --- steps ------------------------------------------------------------------------------

    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_up]

    def leader(self) -> Member | None:
        """Return the leader of the highest term."""
        leading = [member for member in self.up() if member.raft.is_leader]
        return max(leading, key=lambda member: member.raft.term, default=None)

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for member in self.up():
            member.now_ms = self.now_ms
            member.raft.tick(self.now_ms)
            self.settle(member)

    def deliver(self, place: int = 0) -> None:
        sender, to, message = self.wire.pop(place)
        member = self.members.get(to)
        if member is None or not member.is_up or (sender, to) in self.cut:
            return
        member.raft.step(sender, decode(memoryview(encode(message))))
        self.settle(member)

    def propose(self, member: Member) -> None:
        self.proposed += 1
        command = b"c%d" % self.proposed
        index = member.raft.propose([command])
        if index is not None:
            self._mine[member.node_id, index, member.raft.term] = command
            self._asked[member.node_id, index, "write"] = self.now_ms
        self.settle(member)

    def change(self, member: Member, voters: Iterable[int]) -> bool:
        done = member.raft.change_configuration(Configuration.of(voters)) is not None
        self.settle(member)
        return done

    def read(self, member: Member) -> None:
        number = member.raft.read_index()
        if number is not None:
            self.reads[member.node_id, number] = max(self.committed_entries, default=0)
            self._asked[member.node_id, number, "read"] = self.now_ms
        self.settle(member)

    def compact(self, member: Member) -> None:
        """Write a snapshot of what is applied, and forget the entries."""
        log = member.raft.log
        if member.applied <= log.snapshot_index:
            return
        member.disk.written.append(self._snapshot(member))
        log_index = RaftIndex(member.applied)
        member.disk.written += log.slice(log_index + 1, log.written + 1)
        self.flush(member)
        member.raft.compact(log_index)

    def flush(self, member: Member, count: int | None = None) -> None:
        """What was written becomes durable: all of it, or the first `count` turns' part."""
        done = member.flushing[:count]
        member.flushing = member.flushing[len(done) :]
        if done:
            member.disk.durable = max(member.disk.durable, done[-1][0])
            member.raft.persisted(done[-1][1].number)
            for _, ready in done:
                self._send(member, ready.messages_when_durable)
            self.settle(member)
        if count is None:
            member.disk.durable = len(member.disk.written)

    def crash(self, member: Member, *, loses_all: bool = False) -> None:
        member.crash(loses_all=loses_all)
        self._committed.pop(member.node_id, None)
        for key in [key for key in self.reads if key[0] == member.node_id]:
            del self.reads[key]
        self._mine = {key: command for key, command in self._mine.items()
                      if key[0] != member.node_id}

    def restart(self, member: Member) -> None:
        member.start(self.now_ms)
        self.settle(member)

    # --- carrying out -----------------------------------------------------------------------

    def settle(self, member: Member) -> None:
        """Do what the core asks for, until it asks for nothing more."""
        while True:
            ready = member.raft.ready()
            self._send(member, ready.messages)
            if ready.hard_state is not None:
                member.disk.written.append(ready.hard_state)
            if ready.snapshot is not None:
                member.disk.written.append(ready.snapshot)
                member.state, member.applied = list(ready.snapshot.items), int(ready.snapshot.index)
            member.disk.written += ready.entries
            if ready.is_to_be_written or ready.messages_when_durable:
                member.flushing.append((len(member.disk.written), ready))
            for entry in ready.committed_entries:
                self._apply(member, entry)
            for read in ready.read_states:
                assert read.index >= self.reads.pop((member.node_id, read.number)), "a stale read"
                self.reads_done += 1
                self._confirm(member.raft.term, self._asked[member.node_id, read.number, "read"])
            if ready.wants_snapshot:
                member.raft.snapshot_made(self._snapshot(member))
            self.check(member)
            if not (ready.messages or ready.committed_entries or ready.wants_snapshot):
                return

    def _snapshot(self, member: Member) -> Snapshot:
        index = RaftIndex(member.applied)
        term = member.raft.log.find_term(index)
        assert term is not None
        return Snapshot(index, term, member.raft.log.configuration_at(index), tuple(member.state))

    def _apply(self, member: Member, entry: RaftEntry) -> None:
        assert entry.index == member.applied + 1, (entry.index, member.applied)
        member.applied = entry.index
        known = self.committed_entries.setdefault(entry.index, entry)
        assert known == entry, f"two committed entries: {known} and {entry}"
        if entry.batch_type == CONTROLLER:
            member.state += entry.commands
            mine = self._mine.pop((member.node_id, entry.index, entry.term), None)
            if mine is not None:
                self.acknowledged.append(mine)
                self._confirm(entry.term, self._asked[member.node_id, entry.index, "write"])

    def _send(self, member: Member, sends: Iterable) -> None:
        for to, message in sends:
            if self.rng.random() < self.trouble:
                continue
            copies = 2 if self.rng.random() < self.trouble / 2 else 1
            self.wire += [(member.node_id, to, message)] * copies

    # --- what must hold ---------------------------------------------------------------------

    def check(self, member: Member) -> None:
        raft, log = member.raft, member.raft.log
        if isinstance(raft.role, LeaderState):
            known = self._leaders.setdefault(raft.term, member.node_id)
            if known == member.node_id and raft.role.term_start == log.last_index:
                self._check_completeness(member)
                self._check_led(raft.term, raft.role.voters_had_leader_ms)
            assert known == member.node_id, f"two leaders in term {raft.term}"
        previous: int | None = log.snapshot_term
        for entry in log.slice(log.snapshot_index + 1, log.last_index + 1):
            found = self._entries.setdefault((entry.index, entry.term), (entry, previous))
            assert found == (entry, previous), f"logs do not match at {entry.index}"
            previous = entry.term
        committed = self._committed.get(member.node_id, 0)
        assert log.commit_index >= committed, (member.node_id, log.commit_index, committed)
        for index in range(max(committed, log.snapshot_index) + 1, log.commit_index + 1):
            entry = log.entry(index)
            known = self.committed_entries.setdefault(index, entry)
            assert known == entry, f"two committed entries at {index}"
        self._committed[member.node_id] = log.commit_index

    def _confirm(self, term: int, asked_ms: int) -> None:
        """Note that a leader of `term` has confirmed a request that came at `asked_ms`."""
        self.confirmed[term] = max(asked_ms, self.confirmed.get(term, 0))
        for later, had_leader_ms in self.led_before.items():
            assert later <= term or asked_ms <= had_leader_ms, (
                f"term {term} led after {had_leader_ms}")

    def _check_led(self, term: int, had_leader_ms: int) -> None:
        self.led_before[term] = had_leader_ms
        for earlier, asked_ms in self.confirmed.items():
            assert earlier >= term or asked_ms <= had_leader_ms, (
                f"term {earlier} led after {had_leader_ms}")

    def _check_completeness(self, member: Member) -> None:
        log = member.raft.log
        for index in range(log.snapshot_index + 1, max(self.committed_entries, default=0) + 1):
            term = self.committed_entries[index].term
            assert log.find_term(index) == term, f"leader lacks {index}"

    # --- chaos, and healing -----------------------------------------------------------------

    def chaos(self, steps: int, *, changes: Iterable[Iterable[int]] = (),
              **weights: float) -> None:
        """Steps by chance; `weights` say how often each kind comes, in relation to others."""
        chosen = WEIGHTS | weights
        kinds = self.rng.choices(list(chosen), list(chosen.values()), k=steps)
        targets = [frozenset(target) for target in changes]
        for kind in kinds:
            self._random_step(kind, targets)
            if len(self.wire) > 300:
                del self.wire[:150]

    def _random_step(self, kind: str, targets: list[frozenset[int]]) -> None:
        rng = self.rng
        up = self.up()
        down = [member for member in self.members.values() if not member.is_up]
        member = rng.choice(up) if up else None
        leader = self.leader() if rng.random() < 0.8 else member
        match kind:
            case "crash" if member is not None:
                self.crash(member)
            case "restart" if down:
                self.restart(rng.choice(down))
            case "cut":
                one, other = rng.sample(list(self.members), 2)
                self.cut.add((one, other))
            case "join":
                self.cut.clear()
            case "change" if leader is not None and targets:
                self._random_change(leader, rng.choice(targets))
            case "compact" if member is not None:
                self.compact(member)
            case "tick":
                self.tick(rng.randint(1, 30))
            case "flush" if member is not None:
                self.flush(member, rng.randint(1, 4))
            case "propose" if leader is not None:
                self.propose(leader)
            case "read" if leader is not None:
                self.read(leader)
            case "transfer" if leader is not None:
                leader.raft.transfer_leadership()
                self.settle(leader)
            case "reach" if member is not None:
                member.raft.peer_up(rng.choice(list(self.members)))
                self.settle(member)
            case _ if self.wire:
                self.deliver(rng.randrange(min(len(self.wire), 8)))

    def _random_change(self, member: Member, target: frozenset[int]) -> None:
        now = member.raft.configuration
        for node in sorted(target ^ set(now.voters)):
            next_voters = set(now.voters) ^ {node}
            if next_voters and self.change(member, next_voters):
                return

    def heal(self) -> None:
        self.cut.clear()
        self.trouble = 0.0
        for member in self.members.values():
            if not member.is_up:
                self.restart(member)

    def run(self, ms: int) -> None:
        """Let time pass on a network and disks without faults."""
        end = self.now_ms + ms
        while self.now_ms < end:
            self.calm()
            self.tick(5)
        self.calm()

    def calm(self) -> None:
        while self.wire or any(member.flushing for member in self.up()):
            for member in self.up():
                self.flush(member)
            while self.wire:
                self.deliver()

    def is_agreed(self) -> bool:
        """Whether there is one leader, and each of its voters has applied all its entries."""
        leader = self.leader()
        if leader is None or leader.applied != leader.raft.log.last_index:
            return False
        part = [self.members[voter] for voter in leader.raft.configuration.voters]
        return all(member.state == leader.state and member.applied == leader.applied
                   for member in part)


def elected(world: World, node_id: int | None = None) -> Member:
    """Run until a node leads and all messages are delivered; `node_id` if given."""
    if node_id is not None:
        member = world.members[NodeId(node_id)]
        member.raft.campaign()
        world.settle(member)
    else:
        world.run(400)
    world.calm()
    leader = world.leader()
    assert leader is not None
    assert node_id in (None, leader.node_id)
    return leader
