"""Where two logs diverge."""

from typing import NamedTuple

import pytest

from quipu.chain.history import common_end, epoch_before, find_opening
from quipu.chain.messages import OPEN, RESTART, TRUNCATE, DescribeReason, LogDescription
from quipu.model.ids import Epoch, LogOffset
from quipu.sim.worlds.chain_log import ModelLog, TierMarks

History = list[tuple[Epoch, LogOffset]]


def history(*entries: tuple[int, int]) -> History:
    return [(Epoch(epoch), LogOffset(start)) for epoch, start in entries]


class Case(NamedTuple):
    why: str
    mine: History
    my_end: int
    theirs: History
    their_end: int
    want: int | None


CASES = [
    Case("the same log", history((1, 0)), 5, history((1, 0)), 5, 5),
    Case("theirs is a prefix", history((1, 0), (2, 5)), 9, history((1, 0)), 3, 3),
    Case("mine is a prefix", history((1, 0)), 3, history((1, 0), (2, 5)), 9, 3),
    Case("theirs went on in an epoch that I ended before",
         history((1, 0), (3, 4)), 9, history((1, 0)), 7, 4),
    Case("both went on in epochs of their own",
         history((1, 0), (3, 4)), 9, history((1, 0), (2, 6)), 8, 4),
    Case("an epoch of theirs that I lack lies between",
         history((1, 0), (3, 4)), 9, history((1, 0), (2, 4), (4, 6)), 8, 4),
    Case("no epoch is shared", history((3, 0)), 9, history((1, 0), (2, 4)), 8, None),
    Case("one is empty", history((3, 0)), 9, history(), 0, None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_the_end_of_what_two_logs_share(case: Case) -> None:
    """V14: the end of the last epoch that both have, in whichever it ends first."""
    assert common_end(case.mine, LogOffset(case.my_end),
                      case.theirs, LogOffset(case.their_end)) == case.want
    assert common_end(case.theirs, LogOffset(case.their_end),
                      case.mine, LogOffset(case.my_end)) == case.want


def test_the_epoch_before_a_position() -> None:
    found = history((1, 2), (4, 5))

    assert [epoch_before(found, LogOffset(position)) for position in (0, 2, 3, 5, 6, 99)] == [
        -1, -1, 1, 1, 4, 4]


def log_of(*epochs: int, start: int = 0, tiered: int = 0, committed: int = 99) -> ModelLog:
    """A segment begins at `start`, and at `tiered`, below which a tier has everything."""
    log = ModelLog(is_durable=False, clamps_epochs=True)
    log.tier, log.committed_log = TierMarks(), lambda: committed
    log.tier.ends = {len(epochs) - 1: tiered} if tiered else {}
    for place, epoch in enumerate(epochs):
        log.add(width=1, epoch=epoch, number=place,
                batch_type=5 if place in {0, start, tiered} else 1)
    if start:
        log.trim(start)
    return log


def described(*entries: tuple[int, int], start: int = 0, end: int) -> LogDescription:
    return LogDescription(Epoch(9), DescribeReason.REJECTION, 1, LogOffset(start), LogOffset(end),
                          LogOffset(0), tuple(history(*entries)))


OPENINGS = [
    ("it goes on where it ends", log_of(1, 1, 1), described((1, 0), end=2), (2, OPEN)),
    ("it has everything", log_of(1, 1), described((1, 0), end=2), (2, OPEN)),
    ("it is empty, as all logs are at first", log_of(1, 1), described(end=0), (0, OPEN)),
    ("it is empty, and this log begins later", log_of(1, 1, 1, start=2), described(end=0),
     (2, OPEN | RESTART)),
    ("it went on with something else", log_of(1, 2, 2), described((1, 0), end=2),
     (1, OPEN | TRUNCATE)),
    ("it ends before this log begins", log_of(1, 1, 1, 1, start=3), described((1, 0), end=2),
     (3, OPEN | RESTART)),
    ("it ends where this log begins, and the epoch before that is unknown",
     log_of(1, 1, 1, 1, start=3), described((1, 0), end=3), (3, OPEN | RESTART)),
    ("it shares no epoch", log_of(3, 3), described((1, 0), end=2), (0, OPEN | RESTART)),
    ("it has more of the same", log_of(1, 1), described((1, 0), end=3), None),
    ("it has more of the same, and begins after this log ends", log_of(1, 1),
     described((1, 2), start=2, end=3), None),
    ("it is empty, and a tier has the first batches", log_of(1, 1, 1, 1, tiered=2),
     described(end=0), (2, OPEN | RESTART)),
    ("it is empty, and that a tier has the first is not committed",
     log_of(1, 1, 1, 1, tiered=2, committed=3), described(end=0), (0, OPEN)),
    ("it shares no epoch, and a tier has the first batches", log_of(3, 3, 3, 3, tiered=2),
     described((1, 0), end=2), (2, OPEN | RESTART)),
    ("it goes on where it ends, whatever a tier has", log_of(1, 1, 1, 1, tiered=2),
     described((1, 0), end=1), (1, OPEN)),
    ("there is nothing to give", log_of(), described((1, 0), end=3), None),
]


@pytest.mark.parametrize(("log", "other", "want"), [case[1:] for case in OPENINGS],
                         ids=[case[0] for case in OPENINGS])
def test_how_another_log_is_made_to_continue(
    log: ModelLog, other: LogDescription, want: tuple[int, int] | None
) -> None:
    """V11, V14, V16: continue, truncate what differs, or replace; never because a log is longer."""
    found = find_opening(log, other)

    assert (None if found is None else (found.start, found.flags)) == want


@pytest.mark.parametrize(("floor", "end", "flags"), [
    (2, 2, OPEN), (3, 2, OPEN | RESTART), (4, 4, OPEN)])
def test_a_log_that_lacks_removed_tombstones_is_replaced(floor: int, end: int, flags: int) -> None:
    """K5: it may have records that they deleted; one that has everything goes on."""
    log = log_of(1, 1, 1, 1)
    log.sync_floor = LogOffset(floor)
    found = find_opening(log, described((1, 0), end=end))
    assert found is not None
    assert found.flags == flags
