"""Receipts: the offsets that a commit gave to the batches of an object.

Offsets are assigned after an object is stored, so its own footer cannot have them.  A later object
has them: the next one of the same writer, or one that has receipts alone.  With them, a control
plane that is lost can be rebuilt from the objects (rebuild.py).

Invariants
    diskless.objects.O1  a receipt is a fact: it is made of the outcomes of a commit that has
                         returned, and two receipts for one object say the same
    diskless.objects.O2  an object is deleted only after its receipts for objects that stay are
                         stored in another one, and so are its notes of logs that stay

A number per batch, in the order of the object: the base offset; NOT_IN_USE if the batch was
refused; or -2 - n if it is a duplicate of the batch that has base offset n.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.values import BatchCoordinates, LogKey
from quipu.model.errors import Code
from quipu.model.ids import Offset

NOT_IN_USE: Final = Offset(-1)
_DUPLICATE: Final = -2


class Receipt(NamedTuple):
    """What a commit did with the batches of one object."""

    name: ObjectName
    offsets: tuple[int, ...]  # one per batch, as the module says


class LogNote(NamedTuple):
    """Bounds of a log at some moment, or lower ones; neither of them ever gets lower.

    An object has a high watermark that is not below the log start, also if a note of it, made of a
    duplicate that is gone since, has a lower one.
    """

    log: LogKey
    log_start_offset: Offset
    high_watermark: Offset


def encode_outcome(outcome: BatchOutcome) -> int:
    """The number that stands for an outcome in a receipt."""
    if outcome.code is not Code.NONE or outcome.base_offset < 0:
        return NOT_IN_USE
    return _DUPLICATE - outcome.base_offset if outcome.is_duplicate else outcome.base_offset


def duplicate_of(number: int) -> Offset | None:
    """The base offset of the batch of which this one is a duplicate; None if it is not."""
    return Offset(_DUPLICATE - number) if number <= _DUPLICATE else None


def make_receipt(name: ObjectName, outcomes: Iterable[BatchOutcome]) -> Receipt:
    """The receipt for an object, from the outcomes of its commit (diskless.objects.O1)."""
    return Receipt(name, tuple(map(encode_outcome, outcomes)))


def make_notes(
    batches: Sequence[BatchCoordinates], outcomes: Sequence[BatchOutcome]
) -> list[LogNote]:
    """What a commit says of the bounds of its logs."""
    notes: dict[LogKey, LogNote] = {}
    for batch, outcome in zip(batches, outcomes, strict=True):
        if outcome.code is Code.NONE and outcome.base_offset >= 0:
            start = max(Offset(0), outcome.log_start_offset)  # a duplicate may be below it
            end = max(start, Offset(outcome.base_offset + batch.record_count))
            _merge(notes, LogNote(batch.log, start, end))
    return list(notes.values())


def merge_notes(notes: Iterable[LogNote]) -> dict[LogKey, LogNote]:
    """The highest bounds of each log."""
    merged: dict[LogKey, LogNote] = {}
    for note in notes:
        _merge(merged, note)
    return merged


def _merge(notes: dict[LogKey, LogNote], note: LogNote) -> None:
    known = notes.get(note.log)
    if known is not None:
        note = LogNote(note.log, max(known.log_start_offset, note.log_start_offset),
                       max(known.high_watermark, note.high_watermark))
    notes[note.log] = note


def receipts_to_keep(
    receipts: Iterable[Receipt], is_kept: Callable[[ObjectName], bool]
) -> list[Receipt]:
    """Of the receipts in objects that are about to be deleted, those that must be stored elsewhere.

    Keeps diskless.objects.O2.  `is_kept` says whether an object stays: the control plane knows it,
    and it is not marked for deletion.
    """
    found = {receipt.name: receipt for receipt in receipts}
    return [receipt for name, receipt in found.items() if is_kept(name)]
