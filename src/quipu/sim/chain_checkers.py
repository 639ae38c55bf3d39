"""What must never be so in a world of chains; looked at after every step.

    log-matching         one epoch, one writer: the same epoch and log offset is the same batch,
                         after the same batch, in every log there ever was
    update-propagation   a serving member's log is a prefix of its predecessor's, in one epoch
    in-process           what they differ in is what is on its way: acknowledged is what the other
                         has, and what it lacks can still be read and sent
    committed-grows      a replica's commit point never moves back, and all replicas' commit points
                         lie on one history
    committed-everywhere a batch is committed only when all that serve in that epoch have it
    acknowledged-stays   whoever serves by the controller's word has every committed batch, durable;
                         unless its disk was emptied, which the controller hears before it counts on
                         that node again
    one-head             nobody leads in an epoch in which somebody else did
    serves-its-epoch     whoever serves has a batch of its epoch, and is a serving member of it
    log-refuses          every batch that is sent continues the log of whoever takes it
    no-cut               nothing committed is cut or dropped
    sound                each replica's own invariants

In a world whose disks lose what was acknowledged (`is_lossy`), those that promise more than the
disks do are left out.
"""

from typing import TYPE_CHECKING

from quipu.chain.messages import Mark
from quipu.model.chains import MemberState
from quipu.sim.chain_log import Batch
from quipu.sim.world import Violation

if TYPE_CHECKING:
    from quipu.sim.chain_world import ChainNode, ChainWorld


class Witness:
    """Remembers what was, and compares."""

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
        """`node` has appended `batch`, be it its own or a copy."""
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
        """`node` is about to drop its log, and to begin at `log_start`."""
        if log_start < node.committed.log > node.log.log_start:
            raise Violation(f"no-cut: {node} restarts at {log_start}, committed {node.committed}")

    def committed(self, node: "ChainNode", mark: Mark) -> None:
        """`node` says that everything before `mark` is committed."""
        if mark.log <= node.log.log_start:
            return  # before a log that began in the middle
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
        """Only `node` has moved."""
        replica = node.replica
        if replica is not None:
            try:
                replica.invariants()
            except AssertionError as error:
                raise Violation(f"sound: {node}: {error!r}") from error
            self._look_at_commit_point(node)
            if replica.is_serving:
                self._look_at_service(node)
                self._look_at_neighbours(node)
        if not self._world.is_lossy:
            self._look_at_promises()

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
        if replica.is_leading:
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
