"""Whether a batch of an idempotent producer is the next one, a duplicate, or wrong (diskless.C3).

Pure; the function that PostgreSQL runs (migrations/postgres.py) follows the same rules, and is
tested against this one.
"""

from typing import Final, NamedTuple

from quipu.diskless.control_plane.interface import PRODUCER_BATCHES
from quipu.diskless.values import BatchCoordinates
from quipu.model.errors import Code
from quipu.model.ids import Offset, TimestampMs

SEQUENCE_MASK: Final = 0x7FFFFFFF  # after 2^31 - 1 comes 0


class SequencedBatch(NamedTuple):
    """A batch that a log has accepted from a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset


class ProducerHistory(NamedTuple):
    """What a log remembers of a producer: its last batches, all of one epoch, oldest first."""

    epoch: int
    batches: tuple[SequencedBatch, ...]  # at least one, at most PRODUCER_BATCHES
    last_timestamp: TimestampMs  # of the last batch
    last_commit_ms: TimestampMs


class SequenceVerdict(NamedTuple):
    """What to do with a batch: accept it if `code` is NONE and it is no duplicate."""

    code: Code = Code.NONE
    duplicate_of: SequencedBatch | None = None


_ACCEPTED: Final = SequenceVerdict()
_WRONG_EPOCH: Final = SequenceVerdict(Code.INVALID_PRODUCER_EPOCH)
_OUT_OF_ORDER: Final = SequenceVerdict(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)


def judge(history: ProducerHistory | None, batch: BatchCoordinates) -> SequenceVerdict:
    """diskless.C3: whether a log with this history of the batch's producer accepts the batch."""
    if batch.producer_id < 0:
        return _ACCEPTED
    epoch, base = batch.producer_epoch, batch.base_sequence
    if epoch < 0 or (history is not None and epoch < history.epoch):
        return _WRONG_EPOCH
    if base < 0:
        return _OUT_OF_ORDER
    if history is None:
        return _ACCEPTED
    if epoch > history.epoch:
        return _ACCEPTED if base == 0 else _OUT_OF_ORDER
    for known in history.batches:
        if known.base_sequence == base and known.last_sequence == batch.last_sequence:
            return SequenceVerdict(duplicate_of=known)
    last = history.batches[-1].last_sequence
    return _ACCEPTED if base == (last + 1) & SEQUENCE_MASK else _OUT_OF_ORDER


def remember(
    history: ProducerHistory | None, batch: BatchCoordinates, base_offset: Offset, now_ms: int
) -> ProducerHistory:
    """The history after a batch was accepted; a new epoch begins a new one."""
    added = SequencedBatch(batch.base_sequence, batch.last_sequence, base_offset)
    before = () if history is None or history.epoch != batch.producer_epoch else history.batches
    return ProducerHistory(batch.producer_epoch, (*before, added)[-PRODUCER_BATCHES:],
                           batch.max_timestamp, TimestampMs(now_ms))


def recall(
    history: ProducerHistory | None, batch: BatchCoordinates, base_offset: Offset, now_ms: int
) -> ProducerHistory:
    """The history with a batch that is found again, in whichever order batches are found."""
    if history is None or batch.producer_epoch > history.epoch:
        return remember(None, batch, base_offset, now_ms)
    if batch.producer_epoch < history.epoch:
        return history
    added = SequencedBatch(batch.base_sequence, batch.last_sequence, base_offset)
    ordered = sorted({*history.batches, added}, key=lambda each: each.base_offset)
    is_last = ordered[-1] == added
    return ProducerHistory(
        history.epoch, tuple(ordered[-PRODUCER_BATCHES:]),
        batch.max_timestamp if is_last else history.last_timestamp,
        TimestampMs(max(now_ms, history.last_commit_ms)))
