"""A world of quorums: the real Raft core and its real driver, on simulated disks and links.

The replicated state is a list of words.  Clients propose words, each once, and request barriers;
voters are added and removed.

Checkers
    one-leader-per-term      only one node ever leads in a term (raft.R1)
    logs-match               the same index and term are the same entry, after the same entry
                             (raft.F1, raft.R3)
    committed-stays          a committed entry never changes, on any node, and no node's commit
                             index falls while its process runs (raft.G3, raft.A2)
    states-agree             every state is a prefix of one list of words, and each index committed
                             the same words everywhere (broker.quorum.Q2)
    applied-grows            an index is applied once, after all before it (broker.quorum.Q2)
    decided-once             an acknowledged word is in the list, and no word is in it twice
                             (broker.quorum.Q1)
    barriers-see             after a barrier, all words acknowledged before it are visible (raft.D1)
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from quipu.broker.quorum import Quorum, QuorumConfig
from quipu.model.errors import RequestError
from quipu.model.ids import NodeId, RaftIndex
from quipu.model.settings_types import Address
from quipu.raft.admission import NoChecks
from quipu.raft.log import RaftLog
from quipu.raft.messages import RaftEntry
from quipu.runtime.peers.peer_net import Identity, PeerConfig
from quipu.sim.nemesis import Malice, Nemesis
from quipu.sim.trace import Trace
from quipu.sim.twins.net import CALM, Weather
from quipu.sim.world import Machine, Violation, World
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory

PEER_PORT: Final = 9192
LOG_NAME: Final = "__cluster-0"
LOG_ID: Final = UUID(int=1)
LEADER_SECONDS_MAX: Final = 20.0
CONVERGE_SECONDS_MAX: Final = 40.0
ROUGH: Final = Weather(delay_min=0.002, delay_max=0.02)
WILD: Final = Weather(delay_min=0.001, delay_max=0.04, loss=0.05, duplicate=0.05, reorder=0.1)


class Ledger:
    """The one list of words that all states are prefixes of, and the checks of it."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.acked: dict[bytes, RaftIndex] = {}
        self.leaders: dict[int, str] = {}
        self._places: dict[bytes, int] = {}
        self._decided: dict[int, tuple[bytes, ...]] = {}

    def decided(self, who: str, index: int, commands: tuple[bytes, ...]) -> None:
        known = self._decided.setdefault(index, commands)
        if known != commands:
            raise Violation(f"states-agree: {who} decided {commands} at {index}, others {known}")

    def has(self, who: str, place: int, word: bytes) -> None:
        """Check that node `who` may have `word` at index `place` of its list."""
        if place < len(self.words):
            if self.words[place] != word:
                raise Violation(
                    f"states-agree: {who} has {word!r} at {place}, others {self.words[place]!r}")
            return
        if word in self._places:
            raise Violation(f"decided-once: {word!r} at {self._places[word]} and at {place}")
        self._places[word] = place
        self.words.append(word)

    def acknowledged(self, word: bytes, index: RaftIndex) -> None:
        if word not in self._places:
            raise Violation(f"decided-once: {word!r} was acknowledged at {index}, no state has it")
        self.acked[word] = index

    def acked_end(self) -> int:
        """The length of the shortest list that holds every acknowledged word."""
        return max((self._places[word] for word in self.acked), default=-1) + 1

    def leads(self, who: str, term: int) -> None:
        if self.leaders.setdefault(term, who) != who:
            raise Violation(f"one-leader-per-term: {who} and {self.leaders[term]} in {term}")


class RaftLogs:
    """Checks the logs of the Raft cores."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._written: dict[tuple[int, int], tuple[RaftEntry, int | None]] = {}  # by index and term
        self._committed: dict[int, int] = {}  # index -> term
        self._seen: dict[str, tuple[int, int, int, int]] = {}  # boot, last index and term, commit

    def look(self, machine: Machine | None) -> None:
        if machine is None or machine.is_dead or machine.program is None:
            return
        program = machine.program
        assert isinstance(program, QuorumProgram)
        if program.quorum is None:
            return
        raft = program.quorum._raft  # noqa: SLF001 checkers look inside
        log = raft.log
        if raft.is_leader:
            self._ledger.leads(machine.name, raft.term)
        before = self._seen.get(machine.name, (0, 0, 0, 0))
        if before[0] != machine.boots:
            before = (machine.boots, 0, 0, 0)
        now = (machine.boots, int(log.last_index), int(log.last_term), int(log.commit_index))
        if now != before:
            self._seen[machine.name] = now
            self._match(machine, log)
            self._stays(machine, log, before[3])

    def _match(self, machine: Machine, log: RaftLog) -> None:
        for index in range(log.last_index, log.snapshot_index, -1):
            entry, previous = log.entry(index), log.find_term(index - 1)
            known = self._written.get((index, entry.term))
            if known is None:
                self._written[index, entry.term] = (entry, previous)
                continue
            if known[0] != entry or previous is None or known[1] not in (None, previous):
                raise Violation(f"logs-match: {machine.name} has {entry} after term {previous}, "
                                f"others {known[0]} after {known[1]}")
            return  # all earlier entries match, too, by induction

    def _stays(self, machine: Machine, log: RaftLog, before: int) -> None:
        if log.commit_index < before:
            raise Violation(f"committed-stays: {machine.name}: {log.commit_index} after {before}")
        for index in range(max(before, log.snapshot_index) + 1, log.commit_index + 1):
            term = log.entry(index).term
            if self._committed.setdefault(index, term) != term:
                raise Violation(f"committed-stays: {machine.name} has term {term} at {index}, "
                                f"others {self._committed[index]}")


class Words(NoChecks):
    """A state machine: a list of words."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.words: list[bytes] = []
        self.index = 0
        self._name = name
        self._ledger = ledger

    def apply(self, index: RaftIndex, commands: Sequence[bytes]) -> None:
        if index <= self.index:
            raise Violation(f"applied-grows: {self._name} applied {index} after {self.index}")
        self.index = index
        self._ledger.decided(self._name, index, tuple(bytes(each) for each in commands))
        for command in commands:
            self._ledger.has(self._name, len(self.words), bytes(command))
            self.words.append(bytes(command))

    def snapshot(self) -> Iterable[bytes]:
        return list(self.words)

    def restore(self, items: Iterable[bytes]) -> None:
        self.words = []
        for item in items:
            self._ledger.has(self._name, len(self.words), bytes(item))
            self.words.append(bytes(item))

    def leadership(self, is_leader: bool) -> None:  # noqa: FBT001 as the protocol has it
        """Do nothing: the checkers see it after the step."""


class QuorumProgram:
    """A `Program`: a data directory, a quorum, and the connections to the others."""

    def __init__(
        self, machine: Machine, ids: dict[str, int], plan: "RaftWorldPlan", ledger: Ledger
    ) -> None:
        self.state = Words(machine.name, ledger)
        self._plan = plan
        self.quorum: Quorum | None = None
        self._machine = machine
        self._ids = ids
        self._voters = tuple(NodeId(node_id) for node_id in list(ids.values())[:plan.voters])

    async def start(self) -> None:
        machine = self._machine
        rng = machine.dice.fork(f"boot/{machine.boots}")
        node_id = NodeId(self._ids[machine.name])
        self._directory = DataDirectory.open(machine.disk, "data", machine.clock)
        log = self._directory.open_log(
            LOG_NAME, LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1,
                                segment_bytes=60_000), topic_id=LOG_ID)
        self._peers = machine.door.peers(
            Identity(node_id, machine.name, rng.uuid()), _peer_config(machine.name), rng)
        for name, other in self._ids.items():
            self._peers.know(NodeId(other), name, PEER_PORT)
        self.quorum = Quorum(
            self.state, QuorumConfig(
                node_id=node_id, voters=self._voters,
                election_timeout_ms=self._plan.election_timeout_ms,
                heartbeat_interval_ms=self._plan.election_timeout_ms // 5,
                snapshot_due_size=self._plan.snapshot_due_size,
                entries_kept=self._plan.entries_kept),
            log=log, clock=machine.clock, rng=rng, peers=self._peers)
        await self._peers.start()
        await self.quorum.start()

    async def stop(self) -> None:
        assert self.quorum is not None
        await self.quorum.stop(transfer=True)
        await self._peers.stop()
        self._directory.close()


def _peer_config(host: str) -> PeerConfig:
    return PeerConfig(listener=Address(host, PEER_PORT), secret=b"a secret of all nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftWorldPlan:
    """The parameters of one seed's world."""

    nodes: int
    voters: int  # the number of initial voters
    fault_seconds: float
    changes: bool  # whether voters are added and removed
    climate: Weather
    slowness: tuple[float, ...]  # of the disks
    election_timeout_ms: int
    snapshot_due_size: int
    entries_kept: int
    malice: Malice


class RaftWorld:
    """Quorums, proposers and faults."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.world = World(seed, echo=echo)
        self.plan = plan_of(self.world)
        self.ledger = Ledger()
        self._goes_on = True
        self._ids = {f"n{number}": number for number in range(1, self.plan.nodes + 1)}
        for name, slowness in zip(self._ids, self.plan.slowness, strict=True):
            machine = self.world.machine(name, partial(
                QuorumProgram, ids=self._ids, plan=self.plan, ledger=self.ledger))
            machine.worker.slowness = slowness
        self.nemesis = Nemesis(self.world, self.plan.malice, self._leader)
        self.world.checkers.append(RaftLogs(self.ledger))


    @property
    def trace(self) -> Trace:
        return self.world.trace

    @property
    def step_count(self) -> int:
        return self.world.loop.step_count

    @property
    def now(self) -> float:
        return self.world.loop.now

    def run(self) -> None:
        """Run both phases; raises `Violation`."""
        try:
            self._run()
        finally:
            self.world.end()

    def _run(self) -> None:
        world = self.world
        world.record("plan", self.plan)
        for machine in world.machines.values():
            machine.boot()
        world.run_until(lambda: self._leader() is not None, LEADER_SECONDS_MAX, "led")
        world.net.climate = self.plan.climate
        world.net.set_weather(self.plan.climate)
        for number in range(3):
            world.run(self._propose(f"p{number}"), f"p{number}")
        world.run(self._ask_barriers(), "barriers")
        if self.plan.changes:
            world.run(self._change_voters(), "changes")
        world.run(self.nemesis.run(), "nemesis")
        world.run_for(self.plan.fault_seconds)
        self.nemesis.heal()
        before = len(self.ledger.acked)
        world.run_until(lambda: len(self.ledger.acked) >= before + 5, CONVERGE_SECONDS_MAX, "led")
        self._goes_on = False
        world.run_for(1.0)
        try:
            world.run_until(self._converged, CONVERGE_SECONDS_MAX, "converged")
        except Violation as error:
            raise Violation(f"{error}: {self._describe()}") from error

    def _leader(self) -> Machine | None:
        for machine in self.world.machines.values():
            if machine.is_running and machine.is_up and quorum_of(machine).is_leader:
                return machine
        return None

    def _converged(self) -> bool:
        machines = self.world.machines.values()
        return all(machine.is_up for machine in machines) and all(
            words_of(machine) == self.ledger.words for machine in machines)

    def _describe(self) -> str:
        """The state of all nodes, for people."""
        return f"{len(self.ledger.words)} words; " + "; ".join(
            f"{machine.name} has {len(words_of(machine))}, follows {quorum_of(machine).leader} in "
            f"{quorum_of(machine).term} of {quorum_of(machine).voters}"
            for machine in self.world.machines.values() if machine.is_up)

    # -- clients

    async def _propose(self, name: str) -> None:
        """Propose one word after another, each once, to the node that seems to lead."""
        dice = self.world.dice.fork(f"client/{name}")
        number = 0
        while self._goes_on:
            await asyncio.sleep(dice.between(0.002, 0.08))
            machine = self._leader()
            if machine is None or not self._goes_on:
                continue
            words = [f"{name}-{number + index}".encode() for index in range(1 + dice.below(3))]
            number += len(words)
            task = self.world.run_on(machine, partial(self._decide, machine, words), name)
            await asyncio.wait([task], timeout=dice.between(0.2, 3.0))

    async def _decide(self, machine: Machine, words: list[bytes]) -> None:
        """Propose in the process of a node, and record the result."""
        try:
            index = await quorum_of(machine).propose(words)
        except RequestError:
            return
        machine.record("decided", f"{index} {words[0].decode()}")
        for word in words:
            self.ledger.acknowledged(word, index)
        self.world.happened("ack", machine.name)

    async def _ask_barriers(self) -> None:
        dice = self.world.dice.fork("barriers")
        while self._goes_on:
            await asyncio.sleep(dice.between(0.05, 0.3))
            running = [each for each in self.world.machines.values()
                       if each.is_running and each.is_up]
            if running:
                machine = dice.choose(running)
                self.world.run_on(machine, partial(self._barrier, machine), "barrier")

    async def _barrier(self, machine: Machine) -> None:
        wanted = self.ledger.acked_end()
        try:
            await quorum_of(machine).barrier()
        except RequestError:
            return
        if len(words_of(machine)) < wanted:
            raise Violation(f"barriers-see: {machine.name} has {len(words_of(machine))} words, "
                            f"{wanted} were acknowledged before its barrier")

    async def _change_voters(self) -> None:
        """Add or remove one voter now and then."""
        dice = self.world.dice.fork("changes")
        while self._goes_on:
            await asyncio.sleep(dice.between(0.5, 2.0))
            machine = self._leader()
            if machine is None or not self._goes_on:
                continue
            voters = set(quorum_of(machine).voters)
            one = NodeId(dice.choose(list(self._ids.values())))
            voters ^= {one}
            if voters and len(voters) >= min(3, self.plan.voters):
                self.world.run_on(
                    machine, partial(self._change, machine, sorted(voters)), "change")

    async def _change(self, machine: Machine, voters: list[NodeId]) -> None:
        machine.record("voters", voters)
        try:
            await quorum_of(machine).change_voters(voters)
        except RequestError:
            return
        machine.record("changed", voters)


def quorum_of(machine: Machine) -> Quorum:
    program = machine.program
    assert isinstance(program, QuorumProgram)
    assert program.quorum is not None
    return program.quorum


def words_of(machine: Machine) -> list[bytes]:
    program = machine.program
    assert isinstance(program, QuorumProgram)
    return program.state.words


def plan_of(world: World) -> RaftWorldPlan:
    """The parameters of a world, chosen by its seed."""
    dice = world.dice.fork("plan")
    nodes = dice.choose([1, 3, 3, 4, 5, 5])
    voters = nodes if nodes < 4 else dice.choose([3, nodes])
    return RaftWorldPlan(
        nodes=nodes, voters=voters, fault_seconds=dice.between(2, 5),
        changes=nodes > 3 and dice.flip(0.5),
        climate=dice.choose([CALM, ROUGH, WILD]),
        slowness=tuple(dice.choose([1.0, 1.0, 10.0]) for _ in range(nodes)),
        election_timeout_ms=dice.choose([60, 120, 300]),
        snapshot_due_size=dice.choose([200, 1000, 4 << 20]), entries_kept=dice.choose([0, 3, 1000]),
        malice=Malice(
            pause_min=0.01, pause_max=0.3, haste=dice.choose([2.0, 5.0, 20.0]),
            down_max=dice.choose([1, 2, nodes]), pauses=dice.flip(0.7), cuts=dice.flip(0.8),
            storms=dice.flip(0.8), slow_disks=dice.flip(0.5), outages=dice.flip(0.5)))
