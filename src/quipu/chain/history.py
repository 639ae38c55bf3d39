"""Where two logs part, told from their histories of epochs.

One head writes each epoch, and every batch is taken only after the one that the head wrote before
it.  So two logs that both have epoch e are the same up to the point where e ends in one of them:
nothing but the histories needs to be compared.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from quipu.chain.messages import CUT, OPEN, RESTART, Described
from quipu.chain.standing import LogView
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset

History = Sequence[tuple[Epoch, LogOffset]]


class Opening(NamedTuple):
    """How to make another log continue as this one: from where, and what it must do first."""

    start: LogOffset
    flags: int  # of `Replicate`

    @property
    def is_destructive(self) -> bool:
        """Does the other log lose batches by it?"""
        return bool(self.flags & (CUT | RESTART))


def epoch_before(history: History, position: LogOffset) -> Epoch:
    """The epoch of the batch that ends at `position`; NO_EPOCH if it has none."""
    index = bisect_left(history, position, key=lambda entry: entry[1])
    return history[index - 1][0] if index else NO_EPOCH


def common_end(
    mine: History, my_end: LogOffset, theirs: History, their_end: LogOffset
) -> LogOffset | None:
    """The end of what both logs have; None if they share no epoch."""
    ends = _ends(mine, my_end)
    for epoch, end in reversed(_ends(theirs, their_end).items()):
        if epoch in ends:
            return min(end, ends[epoch])
    return None


def find_opening(log: LogView, other: Described) -> Opening | None:
    """How `other` can be made to continue as `log`; None while `log` has nothing to give it:
    because it is empty, or because the other has all of it and more.
    """
    if log.log_start == log.log_end:
        return None
    if other.is_empty:
        begins_alike = other.log_end == log.log_start == 0
        flags = OPEN if begins_alike else OPEN | RESTART
        return Opening(log.log_start, flags)
    history = log.epochs()
    end = common_end(history, log.log_end, other.epochs, other.log_end)
    if end == log.log_end < other.log_end:
        return None
    if (end is None or end < log.log_start or end <= other.log_start
            or epoch_before(history, end) == NO_EPOCH):  # nothing is left to continue from
        return Opening(log.log_start, OPEN | RESTART)
    if end < other.log_end:
        return Opening(end, OPEN | CUT)
    return Opening(end, OPEN)


def _ends(history: History, log_end: LogOffset) -> dict[Epoch, LogOffset]:
    """Where each epoch ends, oldest first."""
    if not history:
        return {}
    starts = [start for _, start in history[1:]]
    return {epoch: end for (epoch, _), end in zip(history, [*starts, log_end], strict=True)}
