"""The rules of sequences, by themselves."""

from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.control_plane.interface import PRODUCER_BATCHES
from quipu.diskless.control_plane.sequences import (
    ProducerHistory,
    SequencedBatch,
    SequenceVerdict,
    judge,
    recall,
    remember,
)
from quipu.diskless.values import BatchCoordinates, LogKey
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID, Offset, ProducerId, TimestampMs

LAST = 2**31 - 1
ACCEPTED = SequenceVerdict()
WRONG_EPOCH = SequenceVerdict(Code.INVALID_PRODUCER_EPOCH)
OUT_OF_ORDER = SequenceVerdict(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)


def batch(sequence: int, count: int = 1, *, epoch: int = 3, producer: int = 1) -> BatchCoordinates:
    return BatchCoordinates(LogKey(ZERO_UUID, 0), 0, 1, count, TimestampMs(7),
                            ProducerId(producer), epoch, sequence)


def history(*sequences: tuple[int, int], epoch: int = 3) -> ProducerHistory:
    found = None
    for offset, (sequence, count) in enumerate(sequences):
        found = remember(found, batch(sequence, count, epoch=epoch), Offset(offset * 100), 9)
    assert found is not None
    return found


def test_the_next_batch_is_accepted() -> None:
    """D3: diskless.C3: nothing else of that epoch is."""
    known = history((0, 5), (5, 2))
    assert judge(known, batch(7)) == ACCEPTED
    assert judge(known, batch(8)) == judge(known, batch(6)) == judge(known, batch(5, 3)) \
        == judge(known, batch(-1)) == OUT_OF_ORDER
    assert judge(None, batch(77)) == ACCEPTED
    assert judge(None, batch(-1)) == OUT_OF_ORDER
    assert judge(None, batch(0, epoch=-1)) == WRONG_EPOCH
    assert judge(known, batch(9, producer=-1)) == ACCEPTED


def test_a_duplicate_has_the_same_sequences_and_epoch() -> None:
    """D3: diskless.C3: of the last five; older ones are out of order."""
    known = history(*((2 * n, 2) for n in range(7)))
    assert len(known.batches) == PRODUCER_BATCHES
    assert judge(known, batch(4, 2)).duplicate_of == SequencedBatch(4, 5, Offset(200))
    assert judge(known, batch(2, 2)) == OUT_OF_ORDER
    assert judge(known, batch(4, 2, epoch=2)) == WRONG_EPOCH
    assert judge(known, batch(4, 2, epoch=4)) == OUT_OF_ORDER


def test_after_the_largest_sequence_comes_0() -> None:
    """D3: diskless.C3: between batches, and within one."""
    assert judge(history((LAST, 1)), batch(0)) == ACCEPTED
    assert judge(history((LAST, 1)), batch(1)) == OUT_OF_ORDER
    assert judge(history((LAST - 1, 5)), batch(3)) == ACCEPTED
    assert judge(history((LAST - 1, 5)), batch(LAST - 1, 5)).duplicate_of is not None
    assert judge(history((LAST - 3, 2), (LAST - 1, 2), (0, 1)), batch(LAST - 1, 2)) \
        .duplicate_of is not None


def test_a_new_epoch_begins_a_new_history() -> None:
    """D3: diskless.C3: at sequence 0."""
    known = history((0, 1), (1, 1))
    assert judge(known, batch(0, epoch=4)) == ACCEPTED
    assert judge(known, batch(2, epoch=4)) == OUT_OF_ORDER
    bumped = remember(known, batch(0, epoch=4), Offset(2), 10)
    assert bumped == (4, ((0, 0, 2),), 7, 10)


@given(st.permutations(range(9)))
def test_batches_may_be_found_again_in_any_order(order: list[int]) -> None:
    """D37: the history is the one that the producer's commits made."""
    batches = [batch(n % 5, epoch=n // 5) for n in range(9)]
    expected = None
    for offset, each in enumerate(batches):
        expected = remember(expected, each, Offset(offset), 9)
    found = None
    for offset in [*order, 3, 8]:
        found = recall(found, batches[offset], Offset(offset), 9)
    assert found == expected
