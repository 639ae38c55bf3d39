"""The receipts that a writer has not stored yet: they go into its next object.

Invariant
    diskless.W7  a receipt is held until an object with it is stored; only objects whose outcome is
                 known have one.  Of objects that failed, receipts are left out while NUMBERS_MAX
                 numbers are held: the store may be away for long
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.receipts import NOT_IN_USE, LogNote, Receipt, merge_notes

NUMBERS_MAX: Final = 1_000_000


class TakenReceipts(NamedTuple):
    """Receipts, and what they say of bounds, that an object is about to hold."""

    receipts: Sequence[Receipt] = ()
    notes: Sequence[LogNote] = ()


class UnsavedReceipts:
    """Receipts of one writer."""

    def __init__(self) -> None:
        self._receipts: list[Receipt] = []
        self._notes: list[LogNote] = []
        self._number_count = 0

    def __bool__(self) -> bool:
        return bool(self._receipts)

    def add(self, receipt: Receipt, notes: Iterable[LogNote]) -> None:
        """Hold the receipt of an object that was committed."""
        self._receipts.append(receipt)
        self._number_count += len(receipt.offsets)
        self._notes += notes

    def add_failed(self, name: ObjectName, batch_count: int) -> None:
        """Hold a receipt of an object that was not committed (diskless.W7)."""
        if self._number_count + batch_count <= NUMBERS_MAX:
            self.add(Receipt(name, (NOT_IN_USE,) * batch_count), ())

    def take(self) -> TakenReceipts:
        """All of them, for an object that is about to be stored."""
        taken = TakenReceipts(self._receipts, list(merge_notes(self._notes).values()))
        self._receipts, self._notes = [], []
        self._number_count = 0
        return taken

    def give_back(self, taken: TakenReceipts) -> None:
        """Hold them again: the object was not stored (diskless.W7)."""
        self._receipts[:0] = taken.receipts
        self._number_count += sum(len(receipt.offsets) for receipt in taken.receipts)
        self._notes[:0] = taken.notes
