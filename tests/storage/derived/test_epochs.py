"""Who led when."""

import struct
from typing import NamedTuple

import pytest

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset
from quipu.storage.derived.epochs import EpochHistory, EpochStart


class Case(NamedTuple):
    why: str
    history: list[tuple[int, int]]
    epoch: int
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
    """Each epoch begins three log offsets after what came before: an internal batch is first."""
    found = EpochHistory()
    for number, (epoch, offset) in enumerate(entries):
        found.note(epoch, offset, offset + 3 * number)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_end(case: Case) -> None:
    """K2: as in a response to OffsetForLeaderEpoch."""
    # Shows storage.E2.
    assert history(case.history).end(Epoch(case.epoch), Offset(50)) == case.want


def test_an_epoch_without_client_records_is_known_to_replicas_and_not_to_clients() -> None:
    """V14: the log itself says who led; K2: clients see epochs of their own records only."""
    found = history([(0, 0), (1, 5), (2, 5), (3, 5)])
    assert found.by_log_offset() == [(0, 0), (1, 8), (2, 11), (3, 14)]
    assert found.end(Epoch(1), Offset(9)) == (0, 5)
    assert found.end(Epoch(2), Offset(9)) == (0, 5)
    assert found.end(Epoch(3), Offset(9)) == (3, 9)
    assert history([(1, 0), (2, 0)]).end(Epoch(1), Offset(9)) == (1, 0)


def test_a_leader_that_wrote_no_batch_at_all_leaves_no_entry() -> None:
    """V14: two epochs that start at one log offset are one place."""
    found = EpochHistory()
    for epoch, log_offset in ((0, 0), (1, 5), (2, 5)):
        found.note(epoch, 4, log_offset)
    assert found.by_log_offset() == [(0, 0), (2, 5)]
    found.forget_unwritten(6)
    assert found.latest == 2
    found.forget_unwritten(5)
    assert found.latest == 0


def test_an_epoch_is_noted_once_and_never_goes_back() -> None:
    """V1: batches without an epoch say nothing."""
    # Shows storage.E1.
    found = history([(0, 0), (0, 4), (3, 6), (3, 9), (-1, 9)])
    assert found.entries() == [(0, 0, 0), (3, 6, 12)]
    with pytest.raises(RequestError) as caught:
        found.note(2, 9, 30)
    assert caught.value.code is Code.FENCED_LEADER_EPOCH


def test_epochs_go_with_their_segments() -> None:
    """K5: those of which no batch is left are forgotten; the one that holds the start stays."""
    # Shows storage.E3.
    found = history([(0, 0), (1, 5), (4, 9)])  # at log offsets 0, 8 and 15
    found.advance_start(7, 99)
    assert found.by_log_offset() == [(0, 0), (1, 8), (4, 15)]
    found.advance_start(8, 99)
    assert found.by_log_offset() == [(1, 8), (4, 15)]
    found.advance_start(99, 99)
    assert found.by_log_offset() == [(4, 15)]


def at(offset: int) -> EpochStart:
    """Where a segment begins."""
    return EpochStart(NO_EPOCH, Offset(offset), LogOffset(10 * offset))


def test_epochs_of_records_that_only_a_tier_has_are_kept() -> None:
    """R13: the log start is below the first segment then.  Shows storage.E3."""
    found = history([(0, 0), (1, 5), (4, 9)])
    found.advance_start(99, 4)
    assert found.by_log_offset() == [(0, 0), (1, 8), (4, 15)]
    found.advance_start(99, 5)
    assert found.by_log_offset() == [(1, 8), (4, 15)]
    assert [found.at(offset) for offset in (4, 5, 8, 9, 50)] == [-1, 1, 1, 4, 4]
    assert [each[:2] for each in found.within(at(6), 20)] == [(1, 6), (4, 9)]
    assert [each[:2] for each in found.within(at(9), 20)] == [(4, 9)]
    assert found.within(at(6), 8) == [(1, 6, 60)]
    assert EpochHistory().within(at(0), 5) == []
    assert EpochHistory().at(0) == -1


def test_deleted_records_have_no_epoch_for_clients() -> None:
    """K5: an epoch whose records are all deleted ended where the log starts."""
    found = history([(0, 0), (1, 5), (4, 9)])
    assert found.end(Epoch(0), Offset(50), start_offset=7) == (0, 7)
    assert found.end(Epoch(1), Offset(50), start_offset=7) == (1, 9)
    assert found.end(Epoch(1), Offset(50), start_offset=20) == (1, 20)


def test_the_history_survives_its_bytes() -> None:
    """T7: and refuses bytes that cannot be one."""
    found = history([(0, 0), (1, 5), (4, 5)])
    assert EpochHistory.decode(found.encode()).entries() == found.entries()
    with pytest.raises(MalformedBytes):
        EpochHistory.decode(found.encode()[:-1])
    with pytest.raises(MalformedBytes):
        EpochHistory.decode(found.encode()[20:] + found.encode()[:20])


def test_a_history_without_log_offsets_is_read() -> None:
    """T7: as directories of single nodes have it; their one epoch begins with the log."""
    old = struct.pack(">iqiq", 0, 7, 3, 9)
    assert EpochHistory.decode_old(old).entries() == [(0, 7, 0), (3, 9, 9)]
    with pytest.raises(MalformedBytes):
        EpochHistory.decode_old(old[:-1])
    with pytest.raises(MalformedBytes):
        EpochHistory.decode_old(old[12:] + old[:12])
