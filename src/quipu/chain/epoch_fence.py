"""Fencing: claims of a newer epoch, which of them count, and how a wrong one is withdrawn.

A message of a newer epoch claims that this one is over.  It stops the replica until the controller
configures that epoch.  A node that is mistaken, or lies, must not stop the replica for good: so the
fence is lifted when the metadata has been read and this epoch is still the newest.

Invariants
    chain.F1  a claim of a newer epoch counts only if it comes from a member and is at most
              EPOCH_AHEAD_MAX ahead
    chain.F2  the fence is lifted only by metadata that was read after the last claim came: an epoch
              is committed before any node sends it, so metadata that is read after a claim, from a
              controller that was one then, has that epoch, if there is one.  `claim_count` shows
              whether more claims have come since the metadata was requested
"""

from typing import Final

from quipu.chain.events import EpochConfirmed
from quipu.chain.state import ReplicaState
from quipu.model.bounds import EPOCH_AHEAD_MAX
from quipu.model.ids import Epoch, NodeId

_NONE: Final = Epoch(-1)


class EpochFence:
    """The newest epoch that one replica has heard of."""

    __slots__ = ("_state", "claim_count", "newest_epoch")

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self.newest_epoch = _NONE
        self.claim_count = 0  # messages of newer epochs that counted

    @property
    def is_fenced(self) -> bool:
        """Whether a member has claimed a newer epoch than the one that is configured."""
        return self.newest_epoch > self._state.epoch

    def claim(self, sender: NodeId, epoch: Epoch) -> bool:
        """Note that `sender` claims a newer epoch; return whether that counts (chain.F1)."""
        state = self._state
        assert epoch > state.epoch, (epoch, state.epoch)
        if state.members.state_of(sender) is None or epoch > state.epoch + EPOCH_AHEAD_MAX:
            return False
        self.claim_count += 1
        self.newest_epoch = max(self.newest_epoch, epoch)
        assert self.is_fenced
        assert self.newest_epoch <= state.epoch + EPOCH_AHEAD_MAX, self.newest_epoch  # chain.F1
        return True

    def lift(self, event: EpochConfirmed) -> bool:
        """Withdraw all claims if `event` disproves them; return whether it does (chain.F2)."""
        if not self.is_fenced or event != (self._state.epoch, self.claim_count):
            return False
        assert self.newest_epoch > self._state.epoch, (self.newest_epoch, self._state.epoch)
        self.newest_epoch = self._state.epoch
        return True
