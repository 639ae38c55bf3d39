"""Conversations with one group in text: a request, a line, and what the group does about it.

    join NAME [static=INSTANCE] [old] [topics=a,b] [protocols=range,sticky] [rebalance=MS]
    sync NAME [generation] [NAME=assignment ...]      the leader names all assignments
    heartbeat NAME [generation]      leave NAME ...      commit NAME [generation]
    forget NAME        the client of that name starts anew: it knows no member id any more
    wait MS            virtual time passes; whatever falls due happens at its time
    restart            the node goes down and comes up with what it persisted
    disk-fails         what the group persisted last did not reach the disk

Clients remember the member id and the generation that they got, as real ones do.
"""

import struct
from pathlib import Path

from quipu.broker.groups.events import (
    NO_GENERATION,
    ClockTick,
    Effect,
    Event,
    GroupProtocol,
    GroupSnapshot,
    HeartbeatResult,
    Join,
    JoinResult,
    Leave,
    Leaver,
    LeaveResult,
    MemberHeartbeat,
    MonotonicMs,
    Persist,
    PersistFailed,
    Respond,
    Sync,
    SyncResult,
    Ticket,
)
from quipu.broker.groups.group import CONSUMER, Group
from quipu.broker.groups.limits import GroupLimits
from quipu.broker.groups.restore import restore

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def subscription(topics: list[str], user_data: bytes = b"") -> bytes:
    """A consumer's metadata, version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    data = struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">hi", 0, len(topics)) + names + data


class Conversation:
    """A group, its clients, and the text of what they say to each other."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.group = Group("g", limits)
        self.now = MonotonicMs(0)
        self.kept: GroupSnapshot | None = None
        self.asked: dict[Ticket, str] = {}  # the client that waits for a ticket
        self.ids: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.last_ticket = 0
        self.lines: list[str] = []

    def say(self, line: str) -> list[str]:
        """Carry out one line; the lines that follow from it."""
        verb, *words = line.split()
        self.lines = []
        state = self.group.state
        getattr(self, "say_" + verb.replace("-", "_"))(words)
        if self.group.state is not state:
            self.lines.append(f"  {state} -> {self.group.state}")
        return self.lines or ["  (nothing)"]

    # -- lines

    def say_join(self, words: list[str]) -> None:
        name = words[0]
        options = dict(word.split("=") for word in words[1:] if "=" in word)
        if "static" in options:
            self.instances[name] = options["static"]
        topics = options.get("topics", "t").split(",")
        user_data = options.get("data", "").encode()
        names = options.get("protocols", "range").split(",")
        self.counts[name] = self.counts.get(name, 0) + 1
        self._handle(Join(
            ticket=self._ticket(name), member_id=self.ids.get(name, ""),
            new_member_id=f"{name}{self.counts[name]}", instance_id=self.instances.get(name),
            client_id=name, client_host="/127.0.0.1", session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=int(options.get("rebalance", REBALANCE_MS)),
            protocol_type=options.get("type", CONSUMER),
            protocols=tuple(GroupProtocol(n, subscription(topics, user_data)) for n in names),
            needs_known_id="old" not in words, may_skip_assignment="old" not in words))

    def say_sync(self, words: list[str]) -> None:
        name, *rest = words
        pairs = [word.split("=") for word in rest if "=" in word]
        assignments = tuple((self.ids[who], what.encode()) for who, what in pairs)
        self._handle(Sync(
            self._ticket(name), self.ids.get(name, ""), self.instances.get(name),
            self._generation(name, rest), None, None, assignments))

    def say_heartbeat(self, words: list[str]) -> None:
        name, *rest = words
        self._handle(MemberHeartbeat(
            self._ticket(name), self.ids.get(name, ""), self.instances.get(name),
            self._generation(name, rest)))

    def say_leave(self, words: list[str]) -> None:
        leavers = tuple(Leaver(self.ids.get(n, ""), self.instances.get(n)) for n in words)
        self._handle(Leave(self._ticket(" ".join(words)), leavers))

    def say_commit(self, words: list[str]) -> None:
        name, *rest = words
        code = self.group.check_commit(
            self.ids.get(name, ""), self.instances.get(name), self._generation(name, rest),
            self.now)
        self.lines.append(f"  {name} <- commit {code.name}")

    def say_forget(self, words: list[str]) -> None:
        self.ids.pop(words[0], None)
        self.generations.pop(words[0], None)

    def say_wait(self, words: list[str]) -> None:
        end = self.now + int(words[0])
        while (deadline := self.group.deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.lines.append(f"  at {self.now}")
            self._handle(ClockTick())
        self.now = MonotonicMs(end)

    def say_restart(self, words: list[str]) -> None:
        self.asked.clear()
        if self.kept is None:
            self.group = Group("g", self.limits)
        else:
            self.group = restore(self.kept, self.limits, self.now)

    def say_disk_fails(self, words: list[str]) -> None:
        self._handle(PersistFailed())

    # -- the group

    def _ticket(self, name: str) -> Ticket:
        self.last_ticket += 1
        self.asked[Ticket(self.last_ticket)] = name
        return Ticket(self.last_ticket)

    def _generation(self, name: str, words: list[str]) -> int:
        numbers = [int(word) for word in words if word.lstrip("-").isdigit()]
        return numbers[0] if numbers else self.generations.get(name, NO_GENERATION)

    def _handle(self, event: Event) -> None:
        for effect in self.group.handle(event, self.now):
            self.lines.append("  " + self._perform(effect))

    def _perform(self, effect: Effect) -> str:
        if isinstance(effect, Persist):
            self.kept = effect.snapshot
            members = " ".join(
                f"{m.member_id}:{m.assignment.decode()}" if m.assignment else m.member_id
                for m in self.kept.members)
            return f"persist {self.kept.state} generation {self.kept.generation} [{members}]"
        assert isinstance(effect, Respond)
        name = self.asked.pop(effect.ticket)
        return f"{name} <- {self._tell(name, effect)}"

    def _tell(self, name: str, reply: Respond) -> str:
        match reply.result:
            case JoinResult(code=code, member_id=member_id) as result:
                if result.generation >= 0:
                    self.generations[name] = result.generation
                if result.generation >= 0 or code.name == "MEMBER_ID_REQUIRED":
                    self.ids[name] = member_id
                return f"joined {code.name} " + _described(result)
            case SyncResult(code=code, assignment=assignment):
                return f"synced {code.name} {assignment.decode()}".rstrip()
            case HeartbeatResult(code=code):
                return f"heartbeat {code.name}"
            case LeaveResult(codes=codes):
                return "left " + " ".join(code.name for code in codes)


def _described(result: JoinResult) -> str:
    if result.generation < 0:
        return f"as {result.member_id or 'nobody'}"
    members = " ".join(member.member_id for member in result.members)
    skip = " skip-assignment" if result.skip_assignment else ""
    return (f"as {result.member_id} generation {result.generation} {result.protocol} "
            f"leader {result.leader} [{members}]{skip}")


def replay(path: Path) -> str:
    """The text of a golden file with the results of the present code."""
    out: list[str] = []
    conversation = Conversation(GroupLimits())
    for line in path.read_text().splitlines():
        if line.startswith("limits "):
            pairs = dict(word.split("=") for word in line.split()[1:])
            conversation = Conversation(GroupLimits(**{k: int(v) for k, v in pairs.items()}))
            out.append(line)
        elif line.startswith("#") or not line.strip():
            out.append(line)
        elif not line.startswith(" "):
            out += [line, *conversation.say(line)]
    return "\n".join(out) + "\n"
