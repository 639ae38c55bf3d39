"""Where two logs part."""

from typing import NamedTuple

import pytest

from quipu.chain.history import common_end, epoch_before, find_opening
from quipu.chain.messages import CUT, OPEN, RESTART, Described, Why
from quipu.model.ids import Epoch, LogOffset
from quipu.sim.chain_log import ModelLog

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


def log_of(*epochs: int, start: int = 0) -> ModelLog:
    log = ModelLog(is_durable=False, clamps_epochs=True)
    for place, epoch in enumerate(epochs):
        log.add(width=1, epoch=epoch, batch_type=5 if place in {0, start} else 1, number=place)
    if start:
        log.trim(start)
    return log


def described(*entries: tuple[int, int], start: int = 0, end: int) -> Described:
    return Described(Epoch(9), Why.REFUSAL, 1, LogOffset(start), LogOffset(end), LogOffset(0),
                     tuple(history(*entries)))


OPENINGS = [
    ("it goes on where it ends", log_of(1, 1, 1), described((1, 0), end=2), (2, OPEN)),
    ("it has everything", log_of(1, 1), described((1, 0), end=2), (2, OPEN)),
    ("it is empty, as all logs are at first", log_of(1, 1), described(end=0), (0, OPEN)),
    ("it is empty, and this log begins later", log_of(1, 1, 1, start=2), described(end=0),
     (2, OPEN | RESTART)),
    ("it went on with something else", log_of(1, 2, 2), described((1, 0), end=2), (1, OPEN | CUT)),
    ("it ends before this log begins", log_of(1, 1, 1, 1, start=3), described((1, 0), end=2),
     (3, OPEN | RESTART)),
    ("it ends where this log begins, and nobody knows what was before",
     log_of(1, 1, 1, 1, start=3), described((1, 0), end=3), (3, OPEN | RESTART)),
    ("it shares no epoch", log_of(3, 3), described((1, 0), end=2), (0, OPEN | RESTART)),
    ("it has more of the same", log_of(1, 1), described((1, 0), end=3), None),
    ("it has more of the same, and begins after this log ends", log_of(1, 1),
     described((1, 2), start=2, end=3), None),
    ("there is nothing to give", log_of(), described((1, 0), end=3), None),
]


@pytest.mark.parametrize(("log", "other", "want"), [case[1:] for case in OPENINGS],
                         ids=[case[0] for case in OPENINGS])
def test_how_another_log_is_made_to_continue(
    log: ModelLog, other: Described, want: tuple[int, int] | None
) -> None:
    """V11, V14, V16: go on, cut what parts, or begin anew; never for being merely longer."""
    found = find_opening(log, other)

    assert (None if found is None else (found.start, found.flags)) == want
