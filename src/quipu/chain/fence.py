"""Signs of a newer epoch: who may give one, and how a wrong one is taken back.

A message of a newer epoch proves that this one is over, if it is true.  It ends everything here
until the controller configures that epoch.  A node that is mistaken, or lies, must not end it for
good: a claim counts only if it comes from a member and is not far ahead, and it is taken back when
the metadata has been read and this epoch is still the newest.

Why taking it back is safe: an epoch is decided before any node speaks of it.  Whoever reads the
metadata after a claim has come, from a controller that surely was one then, reads that decision
too, if there was one.  `claim_count` tells whether more claims have come since the question.
"""

from typing import Final

from quipu.chain.events import EpochConfirmed
from quipu.chain.standing import Standing
from quipu.model.bounds import EPOCH_AHEAD_MAX
from quipu.model.ids import Epoch, NodeId

_NONE: Final = Epoch(-1)


class Fence:
    """The newest epoch that one replica has heard of."""

    __slots__ = ("_newest_epoch", "_standing", "claim_count")

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._newest_epoch = _NONE
        self.claim_count = 0  # messages of newer epochs that were believed

    @property
    def is_closed(self) -> bool:
        """Has somebody spoken of a newer epoch than the one that is configured?"""
        return self._newest_epoch > self._standing.epoch

    def claimed(self, sender: NodeId, epoch: Epoch) -> bool:
        """`sender` speaks of a newer epoch; is that believed?"""
        standing = self._standing
        if standing.members.state_of(sender) is None or (
                epoch > standing.epoch + EPOCH_AHEAD_MAX):
            return False
        self.claim_count += 1
        self._newest_epoch = max(self._newest_epoch, epoch)
        return True

    def confirmed(self, event: EpochConfirmed) -> bool:
        """Does `event` take back all that was claimed?"""
        if not self.is_closed or event != (self._standing.epoch, self.claim_count):
            return False
        self._newest_epoch = self._standing.epoch
        return True
