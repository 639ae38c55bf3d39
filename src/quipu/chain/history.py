"""Where two logs diverge, found by their histories of epochs.

One head writes each epoch, and every batch is taken only after the one that the head wrote before
it.  So two logs that both have epoch e are the same up to the point where e ends in one of them:
nothing but the histories needs to be compared.  Compaction changes what the batches hold, and not
where they begin and end; but a log that lacks tombstones which compaction has removed from the
other is copied anew (`LogView.sync_floor`), or deleted records would come back.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from quipu.chain.messages import OPEN, RESTART, TRUNCATE, LogDescription
from quipu.chain.state import LogView
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset

History = Sequence[tuple[Epoch, LogOffset]]


class Opening(NamedTuple):
    """How to make another log continue like this one: where it continues, and after what."""

    start: LogOffset
    flags: int  # of `Replicate`

    @property
    def is_destructive(self) -> bool:
        """Whether the other log is truncated or replaced first."""
        return bool(self.flags & (TRUNCATE | RESTART))


def epoch_before(history: History, position: LogOffset) -> Epoch:
    """Return the epoch of the batch that ends at `position`; NO_EPOCH if it has none."""
    index = bisect_left(history, position, key=lambda entry: entry[1])
    assert index == 0 or history[index - 1][1] < position, (history[index - 1], position)
    return history[index - 1][0] if index else NO_EPOCH


def common_end(
    mine: History, my_end: LogOffset, theirs: History, their_end: LogOffset
) -> LogOffset | None:
    """Return the end of what both logs have; None if they share no epoch."""
    ends = _ends(mine, my_end)
    for epoch, end in reversed(_ends(theirs, their_end).items()):
        if epoch in ends:
            found = min(end, ends[epoch])
            assert found <= my_end, (found, my_end)
            assert found <= their_end, (found, their_end)
            return found
    return None


def find_opening(log: LogView, other: LogDescription) -> Opening | None:
    """Return how `other` can be made to continue like `log`; None if `log` has nothing to send.

    It has nothing if it is empty, or if the other log has all its batches and more.  A log that is
    begun anew gets no records that a remote tier has.
    """
    if log.log_start == log.log_end:
        return None
    if other.is_empty:
        start = log.copy_start
        begins_alike = other.log_end == start == 0
        return Opening(start, OPEN if begins_alike else OPEN | RESTART)
    history = log.epochs()
    end = common_end(history, log.log_end, other.epochs, other.log_end)
    if end == log.log_end < other.log_end:
        return None
    if (end is None or end < log.log_start or end <= other.log_start
            or (end < log.log_end and end < log.sync_floor)
            or epoch_before(history, end) == NO_EPOCH):  # nothing is left to continue from
        return Opening(log.copy_start, OPEN | RESTART)
    assert end >= log.log_start, (end, log.log_start)
    assert end <= log.log_end, (end, log.log_end)
    if end < other.log_end:
        return Opening(end, OPEN | TRUNCATE)
    return Opening(end, OPEN)


def _ends(history: History, log_end: LogOffset) -> dict[Epoch, LogOffset]:
    """Return where each epoch ends, oldest first."""
    if not history:
        return {}
    assert history[-1][1] <= log_end, (history[-1], log_end)
    starts = [start for _, start in history[1:]]
    return {epoch: end for (epoch, _), end in zip(history, [*starts, log_end], strict=True)}
