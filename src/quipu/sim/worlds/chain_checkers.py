"""Checkers of a world of chains, which run after every step.

    log-matching         one epoch, one writer: the same epoch and log offset is the same batch,
                         after the same batch, in every log there ever was (chain.I2)
    update-propagation   a serving member's log is a prefix of its predecessor's, in one epoch
                         (chain.I1)
    in-process           what they differ in is in flight: a predecessor counts as acknowledged only
                         what its successor has durably (chain.C2), and can still send the rest
    committed-grows      a replica's commit point never moves back (chain.N1), and all replicas'
                         commit points are on one history
    committed-everywhere a batch is committed only when all that serve in that epoch have it
                         (chain.C3, chain.C5)
    acknowledged-stays   every serving member of the controller's metadata has every committed batch
                         durably; unless its disk was emptied, which the controller learns before it
                         lets that node serve again
    one-head             only one process ever leads in an epoch (chain.T1)
    serves-its-epoch     a serving replica has a batch of its epoch, and is a serving member of it
                         (chain.C1)
    log-refuses          every batch that is sent continues the log of its receiver
    no-cut               nothing committed is truncated or dropped (chain.I3)
    sound                each replica's own invariants and transitions of its role (chain.T1); what
                         it acknowledges is durable

In a world whose disks lose acknowledged batches (`is_lossy`), the checks that such losses violate
are left out.
"""

from typing import TYPE_CHECKING

from quipu.chain.messages import Mark
from quipu.chain.replica import Replica
from quipu.model.chains import MemberState
from quipu.sim.world import Violation
from quipu.sim.worlds.chain_log import Batch

if TYPE_CHECKING:
    from quipu.sim.worlds.chain import ChainNode, ChainWorld


class Witness:
    """Remembers earlier states of all nodes, and compares."""

    def __init__(self, world: "ChainWorld") -> None:
        self._world = world
        self._written: dict[tuple[int, int], tuple[Batch, Batch | None]] = {}
        self._heads: dict[int, tuple[int, int]] = {}
        self._committed: dict[int, Batch] = {}  # by its end
        self._last_committed: Batch | None = None
        self._known: dict[tuple[int, int], Mark] = {}  # by node and life
        self.committed_count = 0

    # --- as it happens ----------------------------------------------------------------------

    def wrote(self, node: "ChainNode", batch: Batch) -> None:
        """`node` has appended `batch`, its own or a copy."""
        before = node.log.ending_at(batch.log_offset)
        known = self._written.setdefault((batch.epoch, batch.log_offset), (batch, before))
        is_same = known[0] == batch and (before is None or known[1] is None or known[1] == before)
        if not is_same:
            raise Violation(f"log-matching: {node} has {batch} after {before}, others {known}")

    def cuts(self, node: "ChainNode", log_end: int) -> None:
        """`node` is about to cut at `log_end`."""
        if log_end < node.committed.log:
            raise Violation(f"no-cut: {node} cuts at {log_end}, committed {node.committed}")

    def restarts(self, node: "ChainNode", log_start: int) -> None:
        """`node` is about to drop its log, and to start again at `log_start`."""
        if log_start < node.committed.log > node.log.log_start:
            raise Violation(f"no-cut: {node} restarts at {log_start}, committed {node.committed}")

    def committed(self, node: "ChainNode", mark: Mark) -> None:
        """`node` regards everything before `mark` as committed."""
        if mark.log <= node.log.log_start:
            return  # before the start of a log that began with a copy
        batch = node.log.ending_at(mark.log)
        if batch is None or batch.next_offset != mark.offset:
            raise Violation(f"committed-grows: {node} commits {mark}, inside of {batch}")
        if self._world.is_lossy:
            return
        if self._committed.setdefault(batch.next_log, batch) != batch:
            raise Violation(f"committed-grows: {node} commits {batch}, others "
                            f"{self._committed[batch.next_log]}")
        last = self._last_committed
        if last is not None and last.next_log <= batch.next_log and not node.log.holds(last):
            raise Violation(f"committed-grows: {node} commits {batch} without {last}")
        self._check_everywhere(node, batch)
        if last is None or batch.next_log > last.next_log:
            self._last_committed = batch
            self.committed_count += 1

    def _check_everywhere(self, node: "ChainNode", batch: Batch) -> None:
        world = self._world
        now_serving = {place.node_id for place in world.oracle.serving()
                       if place.disk == world.nodes[place.node_id].disk}
        for name in world.oracle.history[node.epoch]:
            if name in now_serving and not world.nodes[name].has_durably(batch):
                raise Violation(f"committed-everywhere: {node} commits {batch}, but node {name} "
                                "does not have it")

    # --- after every step -------------------------------------------------------------------

    def look(self, node: "ChainNode") -> None:
        """Check the world; only `node` has changed."""
        replica = node.replica
        if replica is not None:
            self._look_at_replica(node, replica)
            self._look_at_commit_point(node)
            if replica.is_serving:
                self._look_at_service(node)
                self._look_at_neighbours(node)
        if not self._world.is_lossy:
            self._look_at_promises()

    def _look_at_replica(self, node: "ChainNode", replica: Replica) -> None:
        try:
            replica.invariants()
        except AssertionError as error:
            raise Violation(f"sound: {node}: {error!r}") from error
        acknowledged, durable = replica._state.acknowledged, node.log.durable  # noqa: SLF001
        if acknowledged > durable:  # in production, flush.messages may have been changed since
            raise Violation(f"sound: {node} acknowledges {acknowledged}, durable is {durable}")

    def _look_at_commit_point(self, node: "ChainNode") -> None:
        key = (node.node_id, node.life)
        before = self._known.get(key)
        if before is not None and node.committed < before:
            raise Violation(f"committed-grows: {node} was at {before}, is at {node.committed}")
        self._known[key] = node.committed

    def _look_at_service(self, node: "ChainNode") -> None:
        replica = node.replica
        assert replica is not None
        replica_set = replica.replica_set
        if (replica_set is None or node.log.last_epoch != replica.epoch
                or replica_set.state_of(node.node_id) is not MemberState.SERVING):
            raise Violation(f"serves-its-epoch: {node} serves {replica_set} with a log of "
                            f"epoch {node.log.last_epoch}")
        if replica.is_leader:
            who = (node.node_id, node.life)
            if self._heads.setdefault(replica.epoch, who) != who:
                raise Violation(f"one-head: {who} and {self._heads[replica.epoch]} "
                                f"lead in epoch {replica.epoch}")

    def _look_at_neighbours(self, node: "ChainNode") -> None:
        replica = node.replica
        assert replica is not None
        assert replica.replica_set is not None
        before = replica.replica_set.predecessor(node.node_id)
        after = replica.replica_set.successor(node.node_id)
        for first, second in ((before, node.node_id), (node.node_id, after)):
            if first is None or second is None:
                continue
            one, other = self._world.nodes[first], self._world.nodes[second]
            if (one.replica is not None and other.replica is not None
                    and one.replica.is_serving and other.replica.is_serving
                    and one.epoch == other.epoch):
                self._look_at_pair(one, other)

    def _look_at_pair(self, one: "ChainNode", other: "ChainNode") -> None:
        last = other.log.batches[-1]
        if other.log.log_end > one.log.log_end or not one.log.holds(last):
            raise Violation(f"update-propagation: {other} ends with {last}, "
                            f"{one} before it does not have that")
        acked = one.acked_by(other.node_id)
        if acked is not None and acked > other.log.durable.log:
            raise Violation(f"in-process: {other} has {other.log.durable.log}, "
                            f"{one} takes {acked} for acknowledged")
        if one.log.log_start > other.log.log_end:
            raise Violation(f"in-process: {other} ends at {other.log.log_end}, {one} cannot send "
                            f"what is before {one.log.log_start}")

    def _look_at_promises(self) -> None:
        last = self._last_committed
        if last is None:
            return
        world = self._world
        for place in world.oracle.serving():
            node = world.nodes[place.node_id]
            if node.disk == place.disk and not node.has_durably(last):
                raise Violation(f"acknowledged-stays: node {place.node_id} serves in epoch "
                                f"{world.oracle.epoch} without {last}")
