"""A world of chains whose logs have a remote tier: the same faults, and less on local disks.

The head copies segments of committed batches, and says so in the log.  Nodes then delete them
locally; a member that has lost its disk, or is new, is sent only what the tier does not have.

Checker
    tier-covers   of a serving member's log, everything before its first batch is in the tier, and
                  its own batches say so (storage.L6): no record can be read from neither
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from quipu.chain.events import LOG_CHANGED
from quipu.model.batch_types import CHECKPOINT, TIERED
from quipu.sim.world import Violation
from quipu.sim.worlds.chain import FAULTS_MS, ChainNode, ChainWorld
from quipu.sim.worlds.chain_checkers import Witness
from quipu.sim.worlds.chain_log import TierMarks
from quipu.sim.worlds.chain_nemesis import ChainNemesis

COPY_MS: Final = 25.0  # between two copies, about


class TieredChainWorld(ChainWorld):
    """See the module."""

    def __init__(
        self, seed: int, *, echo: Callable[[str], None] | None = None,
        faults_ms: float = FAULTS_MS,
    ) -> None:
        super().__init__(seed, echo=echo, faults_ms=faults_ms)
        self._copier = self.dice.fork("tier")
        self.marks = TierMarks()
        self.witness = TierWitness(self)
        self.nemesis = TieredNemesis(self)
        for node in self.nodes.values():
            node.log.tier = self.marks
            node.log.committed_log = partial(_committed_log, node)

    def run(self) -> None:
        self._copy_later()
        super().run()

    def _copy_later(self) -> None:
        def copy() -> None:
            if not self.has_faults:
                return
            for node in self.nodes.values():
                if node.replica is not None and node.replica.is_leader:
                    self._copy(node)
            self._copy_later()

        self.later(self._copier.between(1, 2 * COPY_MS), copy)

    def _copy(self, node: ChainNode) -> None:
        """Copy complete segments of committed batches, and append that they are copied."""
        log = node.log
        starts = [batch.log_offset for batch in log.batches if batch.batch_type == CHECKPOINT
                  and log.tiered_end(log.log_end) < batch.log_offset <= node.committed.log]
        if not starts:
            return
        end = self._copier.choose(starts)
        number = next(self.numbers)
        self.marks.ends[number] = end
        self.record(node, "tiers", end)
        node.write(TIERED, node.epoch, number)
        node.happens(LOG_CHANGED)


def _committed_log(node: ChainNode) -> int:
    return node.committed.log


class TieredNemesis(ChainNemesis):
    """Faults of a world with a tier: what retention removes locally, the tier has."""

    def _trim(self) -> None:
        running = self._running()
        if not running:
            return
        node = self._dice.choose(running)
        log = node.log
        end = log.tiered_end(min(node.committed.log, log.flushed_end))  # storage.W1
        starts = [batch.log_offset for batch in log.batches
                  if batch.batch_type == CHECKPOINT and 0 < batch.log_offset <= end]
        if starts:
            start = self._dice.choose(starts)
            self._world.record(node, "trim", start)
            log.trim(start)
            self._world.witness.look(node)


class TierWitness(Witness):
    """Also checks that no record is in neither place."""

    def look(self, node: ChainNode) -> None:
        super().look(node)
        replica, log = node.replica, node.log
        if replica is None or not replica.is_serving or self._world.is_lossy:
            return
        if log.log_start > log.tiered_end(log.log_end):
            raise Violation(f"tier-covers: {node} begins at {log.log_start}, its log says that the "
                            f"tier has what is before {log.tiered_end(log.log_end)}")
