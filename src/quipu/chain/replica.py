"""One replica of a partition: what it does about everything that can happen to it.

What a driver owes it
    * effects are carried out in their order before the next event is handled; after a list with
      log effects comes `Appended`; every `SendEntries` is answered by `Sent` or `Refused`
    * a `Configured` in which this node is a member is given only if the controller listed it
      under the life (incarnation) of this process: whoever restarts has a new epoch to wait for
    * `life` grows with each start of the node (its broker epoch does)
    * `committed` is what was remembered of `Advance`; it may be old, never too new
"""

from quipu.chain.effects import Effect
from quipu.chain.events import Event
from quipu.chain.messages import Mark
from quipu.chain.standing import LogView, Standing
from quipu.model.ids import Epoch, NodeId


class Replica:
    """The state machine of one partition on one node."""

    def __init__(
        self, node_id: NodeId, log: LogView, *, committed: Mark, life: int, window_size: int
    ) -> None:
        self._standing = Standing(node_id, log, committed=committed, life=life,
                                  window_size=window_size)

    def handle(self, event: Event) -> list[Effect]:
        raise NotImplementedError

    @property
    def epoch(self) -> Epoch:
        return self._standing.epoch

    @property
    def committed(self) -> Mark:
        """Up to here every serving member has the log, and always will."""
        return self._standing.committed

    @property
    def is_serving(self) -> bool:
        """May clients read here, below `committed`?"""
        raise NotImplementedError

    @property
    def is_leading(self) -> bool:
        """May clients write here?"""
        raise NotImplementedError

    @property
    def is_quiet(self) -> bool:
        """Is there nothing to repeat?  Then ticks may be left out."""
        raise NotImplementedError

    def invariants(self) -> None:
        """Assert what always holds; for checkers."""
        raise NotImplementedError
