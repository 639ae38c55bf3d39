"""Planted bugs: each changes one rule of one part, and must be found by a world of few seeds.

A mutation patches the real code while a world runs.  The rules are those that the parts' own
docstrings state; the names say what would be wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from quipu.broker.cluster import caught_up
from quipu.broker.cluster.caught_up import CaughtUpReports
from quipu.broker.handlers import k02_list_offsets
from quipu.broker.partitions.commit_waiters import CommitWaiters
from quipu.broker.partitions.end_offset_barrier import LogEnds
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.partitions.sequence_guard import SequenceGuard
from quipu.broker.quorum.wal import Wal
from quipu.chain.effects import Effect, ReportInSync
from quipu.chain.messages import Message
from quipu.chain.outbound import Outbound
from quipu.chain.relay import Relay
from quipu.chain.replica import Replica
from quipu.chain.roles import Role
from quipu.chain.state import ReplicaState
from quipu.controller import chains, reassignment
from quipu.controller.decision import Numbers
from quipu.controller.members import BrokerProcess, Chain, ChainMember
from quipu.controller.state import ClusterState
from quipu.model.batch_types import CHECKPOINT
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import QuipuError
from quipu.model.ids import LogOffset, NodeId, Offset
from quipu.raft.log import RaftLog
from quipu.raft.membership import Configuration
from quipu.raft.messages import HardState, RaftEntry
from quipu.sim.worlds.chain_log import ModelLog
from quipu.sim.worlds.chain_oracle import Oracle
from quipu.storage import tiering
from quipu.storage.compaction.rewriting import Rewriter
from quipu.storage.derived.producers import ProducerStates
from quipu.storage.flush import Flusher
from quipu.storage.segments.segment import Segment
from quipu.wire.record_batch import BatchHeader
from tests.broker.tiering.planted import (
    bytes_before_metadata,
    cache_before_durable,
    fencing_off,
    no_orphans_collected,
    segments_before_log_start,
    tiered_before_finished,
)
from tests.sim import diskless_mutations as diskless
from tests.sim import placement_mutations as placement


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
    """chain.C2: a node acknowledges what it has, whether its successor has it or not."""
    advance = Relay._advance_committed

    def mutant(self: Relay) -> Any:
        link, self.outbound = self.outbound, None
        try:
            return advance(self)
        finally:
            self.outbound = link

    patch.setattr(Relay, "_advance_committed", mutant)


def copies_too_little(patch: pytest.MonkeyPatch) -> None:
    """storage.L6: a new member is sent the last segment, whatever the tier has."""
    def mutant(self: ModelLog) -> LogOffset:
        starts = [batch.log_offset for batch in self.batches if batch.batch_type == CHECKPOINT]
        return LogOffset(starts[-1] if starts else self.log_start)

    patch.setattr(ModelLog, "copy_start", property(mutant))


def reports_early(patch: pytest.MonkeyPatch) -> None:
    """chain.C5: a syncing member is reported as in sync as soon as it has replied."""
    def mutant(self: Relay, link: Outbound) -> list[Effect]:
        if link.is_serving or self._state.member_state is not MemberState.SERVING:
            return []
        return [ReportInSync(link.to, self._state.members.version)]

    patch.setattr(Relay, "_check_in_sync", mutant)


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """V15: messages of other epochs are taken for messages of this one."""
    receive = Replica._receive

    def mutant(self: Replica, sender: NodeId, message: Message) -> Any:
        return receive(self, sender, message._replace(epoch=self.epoch))

    patch.setattr(Replica, "_receive", mutant)


def leads_unrecovered(patch: pytest.MonkeyPatch) -> None:
    """chain.T1: any replica that has the epoch's configuration leads, head or not."""
    become = ReplicaState.become

    def mutant(self: ReplicaState, role: Role) -> None:
        become(self, Role.LEADING if role is Role.FOLLOWING else role)

    patch.setattr(ReplicaState, "become", mutant)


# -- raft


def half_is_most(patch: pytest.MonkeyPatch) -> None:
    """Half of the voters are taken for a majority."""
    patch.setattr(Configuration, "majority", property(
        lambda self: max(1, len(self.voters) // 2)))


def stale_candidate_wins(patch: pytest.MonkeyPatch) -> None:
    """raft.E1: a candidate gets votes although it lacks entries."""
    patch.setattr(RaftLog, "is_up_to_date", lambda *_: True)


# -- the quorum's driver and its log


def without(patch: pytest.MonkeyPatch, kind: type) -> None:
    """What is of `kind` never gets to the disk."""
    add = Wal.add

    def mutant(self: Wal, items: Sequence[Any]) -> None:
        add(self, [item for item in items if not isinstance(item, kind)])

    patch.setattr(Wal, "add", mutant)


def terms_unwritten(patch: pytest.MonkeyPatch) -> None:
    """raft.R1: a restart forgets the term, and the vote that was given in it."""
    without(patch, HardState)


def entries_unwritten(patch: pytest.MonkeyPatch) -> None:
    """broker.quorum.Q1: what was said to be durable is lost by a restart."""
    without(patch, RaftEntry)


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
        return replace(chain, version=numbers.version(), members=members)

    patch.setattr(chains, "with_members", mutant)


def anyone_serves(patch: pytest.MonkeyPatch) -> None:
    """C1: when no serving member is left, one that was catching up takes over."""
    reconciled = chains.reconciled

    def mutant(chain: Chain, up: Mapping[NodeId, BrokerProcess], *, waited: bool
               ) -> tuple[ChainMember, ...]:
        if not any(member.node_id in up for member in chain.serving):
            for member in chain.members:
                if member.node_id in up:
                    heir = ChainMember(member.node_id, MemberState.SERVING, *up[member.node_id])
                    return (heir, *(other._replace(state=MemberState.OFFLINE)
                                    for other in chain.members if other is not member))
        return reconciled(chain, up, waited=waited)

    patch.setattr(chains, "reconciled", mutant)


def any_disk_serves(patch: pytest.MonkeyPatch) -> None:
    """C1: a member that served in the last epoch serves again, with any disk."""
    patch.setattr(ChainMember, "has_directory_of", lambda *_: True)
    patch.setattr(Oracle, "_has_returned", lambda self, place: place.node_id in self.lives)


def moves_end_early(patch: pytest.MonkeyPatch) -> None:
    """controller.J1: a partition is on its new nodes before they have caught up."""
    for module in (reassignment, caught_up):
        patch.setattr(module, "awaited", lambda _state, _partition: frozenset())


def moves_keep_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """model.H3: other nodes serve after a move, under the same epoch."""
    add = reassignment._Moves.add

    def mutant(self: Any, topic: Any, partition: int, target: Any, *, new_epoch: bool) -> None:
        del new_epoch
        epoch = topic.partitions[partition].leader_epoch
        add(self, topic, partition, target._replace(epoch=epoch), new_epoch=False)

    patch.setattr(reassignment._Moves, "add", mutant)


def derived_chains_forget(patch: pytest.MonkeyPatch) -> None:
    """controller.C1: in a derived chain whoever is up serves; who served last is not known."""
    reconciled = chains.reconciled
    anyone_serves(patch)
    careless = chains.reconciled

    def mutant(chain: Chain, up: Mapping[NodeId, BrokerProcess], *, waited: bool
               ) -> tuple[ChainMember, ...]:
        return (careless if chain.is_derived else reconciled)(chain, up, waited=waited)

    patch.setattr(chains, "reconciled", mutant)


def promoted_in_all_orders(patch: pytest.MonkeyPatch) -> None:
    """V7: a member that has caught up in one order of its chain is promoted in all of them."""
    has_all = CaughtUpReports._has_all

    def mutant(self: CaughtUpReports, state: ClusterState, chain: Chain, node_id: NodeId) -> bool:
        return chain.is_derived or has_all(self, state, chain, node_id)

    patch.setattr(CaughtUpReports, "_has_all", mutant)


# -- replication and the broker


def answers_early(patch: pytest.MonkeyPatch) -> None:
    """V12: acks=all is acknowledged as soon as the head has the batch."""
    def mutant(
        self: CommitWaiters, end: Offset, deadline: float, done: Callable[..., None]
    ) -> None:
        done(None)

    patch.setattr(CommitWaiters, "wait", mutant)


def reads_past_committed(patch: pytest.MonkeyPatch) -> None:
    """broker.partitions.P2: clients see what is stored, committed or not."""
    advance = CommitWaiters.advance

    def mutant(self: ReplicatedPartition, size: int) -> None:
        received(self, size)
        CommitWaiters.advance(self.commit_waiters, self.log.log_end, self.log.end_offset)

    received = ReplicatedPartition.note_received
    patch.setattr(ReplicatedPartition, "note_received", mutant)
    patch.setattr(CommitWaiters, "advance", lambda self, log, offset: advance(
        self, max(log, self.committed_log), max(offset, self.committed)))


def gives_too_early(patch: pytest.MonkeyPatch) -> None:
    """broker.partitions.P6: a member gives records before it knows the epoch committed."""
    set_role = ReplicatedPartition.set_role

    def mutant(self: ReplicatedPartition, replica_set: ReplicaSet, **what: bool) -> None:
        set_role(self, replica_set, **what)
        self.is_readable = self.is_serving

    patch.setattr(ReplicatedPartition, "set_role", mutant)


def gaps_refused(patch: pytest.MonkeyPatch) -> None:
    """broker.partitions.P5: a batch behind one that was refused a moment ago is out of order."""
    patch.setattr(SequenceGuard, "forbids", lambda *_: False)


def strangers_skip(patch: pytest.MonkeyPatch) -> None:
    """broker.partitions.P5: of a producer that the log does not know, any batch is the first."""
    skips = ProducerStates.skips

    def mutant(self: ProducerStates, header: BatchHeader) -> bool:
        return bool(self.seen(header.producer_id)) and skips(self, header)

    patch.setattr(ProducerStates, "skips", mutant)


def ends_as_heard(patch: pytest.MonkeyPatch) -> None:
    """E1: the head returns the end that it knows of; the tail has served more."""
    async def at_once(_partitions: object) -> LogEnds:
        return {}

    patch.setattr(k02_list_offsets, "wait_until_committed", at_once)
    patch.setattr(k02_list_offsets, "check_committed", lambda *_: None)


# -- tiered and compacted logs of whole nodes; more are in tests/broker/tiering/planted.py


def members_lack_segments(patch: pytest.MonkeyPatch) -> None:
    """storage.L6: a new member is sent the last segment, whatever the tier has."""
    patch.setattr(tiering, "copy_start", lambda state: LogOffset(state.segments[-1].base_log))


def tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """storage.KR3: compaction removes tombstones before their time."""
    patch.setattr(Rewriter, "_may_drop", lambda *_: True)


MUTATIONS = [
    Mutation("a node acknowledges alone", "chain", "chain", acks_alone),
    Mutation("a syncing member is reported early", "chain", "chain", reports_early),
    Mutation("a new member is sent less than the tier lacks", "chain", "tiered-chain",
             copies_too_little, 17),
    Mutation("epochs do not fence", "chain", "chain", no_fencing),
    Mutation("a member leads that has not recovered", "chain", "chain", leads_unrecovered),
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
    Mutation("a move ends before its nodes have caught up", "controller", "moving-node",
             moves_end_early),
    Mutation("a partition that has moved keeps its epoch", "controller", "moving-node",
             moves_keep_the_epoch),
    Mutation("a derived chain forgets who served last", "controller", "ordered-node",
             derived_chains_forget, 6),
    Mutation("a member that lacks records of one order is promoted", "controller", "ordered-node",
             promoted_in_all_orders),
    Mutation("acks=all is answered early", "replication", "node", answers_early),
    Mutation("readers see what is not committed", "replication", "node", reads_past_committed),
    Mutation("records are given before their epoch is committed", "broker", "node",
             gives_too_early, 1),
    Mutation("a batch behind a refused one is out of order", "broker", "node", gaps_refused, 35),
    Mutation("a producer's second batch is taken first", "broker", "node", strangers_skip, 74),
    Mutation("the end is what the head has heard", "broker", "node", ends_as_heard, 3),
    Mutation("a deposed leader writes metadata", "tiering", "tiered-node", fencing_off, 150),
    Mutation("metadata is known before it is stored", "tiering", "tiered-node",
             cache_before_durable),
    Mutation("objects go before their metadata", "tiering", "tiered-node", bytes_before_metadata,
             2),
    Mutation("segments leave the disk before they are copied", "tiering", "tiered-node",
             tiered_before_finished),
    Mutation("remote segments go before the log start has passed them", "tiering", "tiered-node",
             segments_before_log_start, 2),
    Mutation("orphans stay", "tiering", "tiered-node", no_orphans_collected, 17),
    Mutation("a new member is sent less than the tier lacks, in a node", "tiering", "tiered-node",
             members_lack_segments, 14),
    Mutation("tombstones go at once", "compaction", "tiered-node", tombstones_go_at_once),
    Mutation("a batch is acknowledged before its commit", "diskless writing", "diskless",
             diskless.acks_before_commit),
    Mutation("an object is committed before it is stored", "diskless writing", "diskless",
             diskless.commits_before_upload),
    Mutation("a commit is repeated under another key", "diskless writing", "diskless",
             diskless.commits_again_under_another_key, 42, 80),
    Mutation("objects are committed as they are stored", "diskless writing", "diskless",
             diskless.commits_as_uploaded, 1),
    Mutation("batches behind a failed one are committed", "diskless writing", "diskless",
             diskless.followers_go_on, 8),
    Mutation("batches that come behind a failed one are taken", "diskless writing", "diskless",
             diskless.latecomers_go_on, 59, 100),
    Mutation("the end is what a broker has heard", "diskless reading", "diskless",
             diskless.ends_as_known),
    Mutation("own commits follow what a broker knows", "diskless reading", "diskless",
             diskless.own_commits_follow),
    Mutation("commits that were not announced are not seen", "diskless reading", "diskless",
             diskless.missed_commits_stay_missed),
    Mutation("a producer's copies are committed", "control plane", "diskless",
             diskless.copies_committed, 1),
    Mutation("one batch of a producer is remembered", "control plane", "diskless",
             diskless.one_batch_remembered, 1),
    Mutation("objects are marked with their first run", "control plane", "diskless",
             diskless.marked_too_early),
    Mutation("a rewrite moves runs that are gone", "control plane", "diskless",
             diskless.rewrites_unchecked, 7),
    Mutation("an object that was given up is committed", "control plane", "diskless",
             diskless.fences_down, 5),
    Mutation("objects go without grace", "diskless clean-up", "diskless",
             diskless.deletes_at_once),
    Mutation("orphans go before they are condemned", "diskless clean-up", "diskless",
             diskless.orphans_not_condemned, 5),
    Mutation("orphans of diskless topics stay", "diskless clean-up", "diskless",
             diskless.orphans_stay),
    Mutation("a new controller begins deadlines anew", "placement", "placement",
             placement.deadlines_begin_anew),
    Mutation("a clock that is set moves deadlines", "placement", "placement",
             placement.clocks_are_believed),
    Mutation("a rack is given up with its first broker", "placement", "placement",
             placement.one_broker_is_the_rack),
    Mutation("a rack that is down loses its replicas", "placement", "placement",
             placement.degraded_is_lost),
    Mutation("replicas of a rack that is down are placed in another", "placement", "placement",
             placement.replaced_elsewhere),
    Mutation("replicas are removed before others are added", "placement", "placement",
             placement.removes_first),
    Mutation("a rack keeps two replicas", "placement", "placement", placement.extras_stay),
    Mutation("a step makes the first replica lead", "placement", "placement",
             placement.preferred_at_once),
    Mutation("a replica that returns leads", "placement", "placement", placement.returns_lead),
    Mutation("moves are not paced", "placement", "placement", placement.unpaced),
    Mutation("what operators do is not noticed", "placement", "placement",
             placement.operators_unnoticed),
]
