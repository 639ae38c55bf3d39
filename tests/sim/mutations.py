"""Planted bugs: each changes one rule of one part, and must be found by a world of few seeds.

A mutation patches the real code while a world runs.  The rules are those that the parts' own
docstrings state; the names say what would be wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from quipu.broker.commits import Commits
from quipu.broker.handlers import k02_list_offsets
from quipu.broker.partition import Partition
from quipu.broker.quorum.wal import Wal
from quipu.broker.sequence_guard import SequenceGuard
from quipu.broker.settling import Marks
from quipu.chain.effects import Effect, ReportInSync
from quipu.chain.flow import Flow
from quipu.chain.messages import Message
from quipu.chain.outbound import Outbound
from quipu.chain.replica import Replica
from quipu.controller import chains
from quipu.controller.decision import Numbers
from quipu.controller.members import Chain, ChainMember, Process
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId, Offset
from quipu.raft.log import RaftLog
from quipu.raft.membership import Configuration
from quipu.raft.messages import Entry, HardState
from quipu.sim.chain_oracle import Oracle
from quipu.storage.flush import Flusher
from quipu.storage.producers import ProducerStates
from quipu.storage.segment import Segment
from quipu.wire.record_batch import BatchHeader


class Mutation(NamedTuple):
    """One planted bug, and where it is looked for."""

    name: str
    part: str
    world: str
    patch: Callable[[pytest.MonkeyPatch], None]
    seed: int = 0  # that finds it, the last time that somebody looked
    seeds_max: int = 40

    def seeds(self) -> Iterator[int]:
        """That one first, then the others."""
        yield self.seed
        yield from (seed for seed in range(self.seeds_max) if seed != self.seed)


# -- chain


def acks_alone(patch: pytest.MonkeyPatch) -> None:
    """C2: a node acknowledges what it has, whether its successor has it or not."""
    settle = Flow._settle

    def mutant(self: Flow) -> Any:
        link, self.link = self.link, None
        try:
            return settle(self)
        finally:
            self.link = link

    patch.setattr(Flow, "_settle", mutant)


def reports_early(patch: pytest.MonkeyPatch) -> None:
    """C5: a syncing member is said to have everything as soon as it has answered."""
    def mutant(self: Flow, link: Outbound) -> list[Effect]:
        if link.is_serving or self._standing.state is not MemberState.SERVING:
            return []
        return [ReportInSync(link.to, self._standing.members.version)]

    patch.setattr(Flow, "_weigh", mutant)


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """V15: messages of other epochs are taken for messages of this one."""
    receive = Replica._receive

    def mutant(self: Replica, sender: NodeId, message: Message) -> Any:
        return receive(self, sender, message._replace(epoch=self.epoch))

    patch.setattr(Replica, "_receive", mutant)


# -- raft


def half_is_most(patch: pytest.MonkeyPatch) -> None:
    """Half of the voters are taken for a majority."""
    patch.setattr(Configuration, "majority", property(
        lambda self: max(1, len(self.voters) // 2)))


def stale_candidate_wins(patch: pytest.MonkeyPatch) -> None:
    """E1: a candidate gets votes although it lacks entries."""
    patch.setattr(RaftLog, "is_up_to_date", lambda *_: True)


# -- the quorum's driver and its log


def without(patch: pytest.MonkeyPatch, kind: type) -> None:
    """What is of `kind` never gets to the disk."""
    add = Wal.add

    def mutant(self: Wal, items: Sequence[Any]) -> None:
        add(self, [item for item in items if not isinstance(item, kind)])

    patch.setattr(Wal, "add", mutant)


def terms_unwritten(patch: pytest.MonkeyPatch) -> None:
    """R1: a restart forgets the term, and the vote that was given in it."""
    without(patch, HardState)


def entries_unwritten(patch: pytest.MonkeyPatch) -> None:
    """Q1: what was said to be durable is lost by a restart."""
    without(patch, Entry)


# -- storage


def syncs_nothing(patch: pytest.MonkeyPatch) -> None:
    """S2: a log says that it is flushed, and it is not."""
    def mutant(self: Flusher) -> list[Segment]:
        self._target = (self._log.end_offset, self._log.log_end)
        return []

    patch.setattr(Flusher, "_sync", mutant)


def flushed_too_far(patch: pytest.MonkeyPatch) -> None:
    """G1: what was appended while a sync ran counts as flushed by it."""
    finished = Flusher._finished

    def mutant(self: Flusher, sealed: list[Segment], error: QuipuError | None) -> None:
        self._target = (self._log.end_offset, self._log.log_end)
        finished(self, sealed, error)

    patch.setattr(Flusher, "_finished", mutant)


def copies_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A batch that a producer sends again is stored again."""
    check = ProducerStates.check

    def mutant(self: ProducerStates, header: BatchHeader, log: str) -> Offset | None:
        check(self, header, log)
        return None

    patch.setattr(ProducerStates, "check", mutant)


# -- controller


def epoch_kept(patch: pytest.MonkeyPatch) -> None:
    """H3: others serve, under the same epoch."""
    def mutant(chain: Chain, members: tuple[ChainMember, ...], numbers: Numbers) -> Chain:
        return Chain(name=chain.name, version=numbers.version(), members=members,
                     epoch=chain.epoch)

    patch.setattr(chains, "with_members", mutant)


def anyone_serves(patch: pytest.MonkeyPatch) -> None:
    """C1: when no serving member is left, one that was catching up takes over."""
    reviewed = chains.reviewed

    def mutant(chain: Chain, up: Mapping[NodeId, Process], *, waited: bool
               ) -> tuple[ChainMember, ...]:
        if not any(member.node_id in up for member in chain.serving):
            for member in chain.members:
                if member.node_id in up:
                    heir = ChainMember(member.node_id, MemberState.SERVING, *up[member.node_id])
                    return (heir, *(other._replace(state=MemberState.OFFLINE)
                                    for other in chain.members if other is not member))
        return reviewed(chain, up, waited=waited)

    patch.setattr(chains, "reviewed", mutant)


def any_disk_serves(patch: pytest.MonkeyPatch) -> None:
    """C1: who served in the last epoch serves again, whatever its disk holds now."""
    patch.setattr(ChainMember, "has_directory_of", lambda *_: True)
    patch.setattr(Oracle, "_has_returned", lambda self, place: place.node_id in self.lives)


# -- replication and the broker


def answers_early(patch: pytest.MonkeyPatch) -> None:
    """V12: acks=all is answered as soon as the head has the batch."""
    def mutant(self: Commits, end: Offset, deadline: float, done: Callable[..., None]) -> None:
        done(None)

    patch.setattr(Commits, "wait", mutant)


def reads_past_committed(patch: pytest.MonkeyPatch) -> None:
    """P2: clients see what is stored, committed or not."""
    advance = Commits.advance

    def mutant(self: Partition, size: int) -> None:
        received(self, size)
        Commits.advance(self.commits, self.log.log_end, self.log.end_offset)

    received = Partition.received
    patch.setattr(Partition, "received", mutant)
    patch.setattr(Commits, "advance", lambda self, log, offset: advance(
        self, max(log, self.committed_log), max(offset, self.committed)))


def gives_too_early(patch: pytest.MonkeyPatch) -> None:
    """P7: a member gives records in an epoch whose configuration it does not know committed."""
    stand = Partition.stand

    def mutant(self: Partition, replica_set: ReplicaSet, **what: bool) -> None:
        stand(self, replica_set, **what)
        self.is_sure = self.is_serving

    patch.setattr(Partition, "stand", mutant)


def gaps_refused(patch: pytest.MonkeyPatch) -> None:
    """P6: a batch behind one that was refused a moment ago is out of order."""
    patch.setattr(SequenceGuard, "forbids", lambda *_: False)


def strangers_skip(patch: pytest.MonkeyPatch) -> None:
    """P6: of a producer that the log does not know, any batch is taken for its first."""
    skips = ProducerStates.skips

    def mutant(self: ProducerStates, header: BatchHeader) -> bool:
        return bool(self.seen(header.producer_id)) and skips(self, header)

    patch.setattr(ProducerStates, "skips", mutant)


def ends_as_heard(patch: pytest.MonkeyPatch) -> None:
    """E1: the head tells the end that it has heard of; the tail has given more."""
    async def at_once(_partitions: object) -> Marks:
        return {}

    patch.setattr(k02_list_offsets, "settle", at_once)
    patch.setattr(k02_list_offsets, "check_settled", lambda *_: None)


MUTATIONS = [
    Mutation("a node acknowledges alone", "chain", "chain", acks_alone),
    Mutation("a syncing member is reported early", "chain", "chain", reports_early),
    Mutation("epochs do not fence", "chain", "chain", no_fencing),
    Mutation("half is taken for a majority", "raft", "raft", half_is_most),
    Mutation("a candidate with a stale log wins", "raft", "raft", stale_candidate_wins),
    Mutation("entries are not written", "quorum", "raft", entries_unwritten),
    Mutation("terms and votes are not written", "quorum", "raft", terms_unwritten),
    Mutation("a flush syncs nothing", "storage", "node", syncs_nothing),
    Mutation("a flush covers too much", "storage", "node", flushed_too_far),
    Mutation("a producer's copies are stored", "storage", "node", copies_unnoticed),
    Mutation("others serve in the same epoch", "controller", "node", epoch_kept),
    Mutation("whoever is up serves", "controller", "node", anyone_serves),
    Mutation("an emptied disk serves", "controller", "node", any_disk_serves, 12),
    Mutation("an emptied disk serves in a chain", "controller", "chain", any_disk_serves, 3),
    Mutation("acks=all is answered early", "replication", "node", answers_early),
    Mutation("readers see what is not committed", "replication", "node", reads_past_committed),
    Mutation("records are given before their epoch is committed", "broker", "node",
             gives_too_early, 1),
    Mutation("a batch behind a refused one is out of order", "broker", "node", gaps_refused, 35),
    Mutation("a producer's second batch is taken first", "broker", "node", strangers_skip, 74),
    Mutation("the end is what the head has heard", "broker", "node", ends_as_heard, 3),
]
