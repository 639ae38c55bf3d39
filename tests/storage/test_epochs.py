"""Who led when."""

from typing import NamedTuple

import pytest

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import Epoch, Offset
from quipu.storage.epochs import EpochHistory


class Case(NamedTuple):
    why: str
    history: list[tuple[int, int]]
    asked: int
    want: tuple[int, int] | None


CASES = [
    Case("nothing is known yet", [], 0, None),
    Case("the latest ends where the log does", [(0, 0), (2, 10)], 2, (2, 50)),
    Case("one before it ends where the next begins", [(0, 0), (2, 10)], 0, (0, 10)),
    Case("one in between: the last before it", [(0, 0), (2, 10)], 1, (0, 10)),
    Case("one after the latest is unknown", [(0, 0), (2, 10)], 3, None),
    Case("one before the first ended where the first begins", [(5, 7)], 3, (3, 7)),
    Case("no epoch at all", [(0, 0)], -1, None),
]


def history(entries: list[tuple[int, int]]) -> EpochHistory:
    found = EpochHistory()
    for epoch, offset in entries:
        found.note(epoch, offset)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_end(case: Case) -> None:
    """K2: as OffsetForLeaderEpoch answers."""
    assert history(case.history).end(Epoch(case.asked), Offset(50)) == case.want


def test_a_leader_that_wrote_nothing_leaves_no_entry() -> None:
    """V1: two epochs that start at one offset are one place."""
    assert history([(0, 0), (1, 5), (2, 5)]).entries() == [(0, 0), (2, 5)]


def test_an_epoch_is_noted_once_and_never_goes_back() -> None:
    """V1: batches without an epoch say nothing."""
    found = history([(0, 0), (0, 4), (3, 6), (3, 9), (-1, 9)])
    assert found.entries() == [(0, 0), (3, 6)]
    with pytest.raises(RequestError) as caught:
        found.note(2, 9)
    assert caught.value.code is Code.FENCED_LEADER_EPOCH


def test_the_start_moves_with_the_log_start() -> None:
    """K5: epochs whose records are all gone are forgotten."""
    found = history([(0, 0), (1, 5), (4, 9)])
    found.advance_start(Offset(7))
    assert found.entries() == [(1, 7), (4, 9)]
    found.advance_start(Offset(9))
    assert found.entries() == [(4, 9)]
    found.advance_start(Offset(30))
    assert found.entries() == [(4, 30)]


def test_the_history_survives_its_bytes() -> None:
    """T7: and refuses bytes that cannot be one."""
    found = history([(0, 0), (1, 5), (4, 9)])
    assert EpochHistory.decode(found.encode()).entries() == found.entries()
    with pytest.raises(MalformedBytes):
        EpochHistory.decode(found.encode()[:-1])
    with pytest.raises(MalformedBytes):
        EpochHistory.decode(found.encode()[12:] + found.encode()[:12])
