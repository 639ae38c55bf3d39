"""The errors of records: which records of a batch are bad, and the texts of their errors.

    Envelope error: Flat: Value not present for message
    Decode error: <error of the format> (original text: abc, original bytes: "616263")

Only the first bytes of a record are in such a text, so that a large record has no large error.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

SHOWN_SIZE_MAX: Final = 64  # bytes of a record that an error shows
TEXT_SIZE_MAX: Final = 1000  # characters of a format's error that are shown

VALUE_MISSING: Final = "Envelope error: Flat: Value not present for message"
KEY_MISSING: Final = (
    "Envelope error: Upsert: record with NULL key in UPSERT source; to retract this error, "
    "produce a record upstream with a NULL key and NULL value")
BEFORE_MISSING: Final = (
    "Envelope error: Debezium: the change has no row `before`, which it would remove; "
    "let the database log whole rows (REPLICA IDENTITY FULL), or give the source a KEY FORMAT and "
    "ENVELOPE DEBEZIUM UPSERT")


class RowErrors:
    """The first error of each record of a batch."""

    def __init__(self, count: int) -> None:
        self.mask: Mask = np.zeros(count, np.bool_)
        self._texts: Texts | None = None

    def __bool__(self) -> bool:
        return self._texts is not None

    def add(self, rows: npt.NDArray[np.int64], texts: Iterable[str]) -> None:
        """Set the errors of records that have none yet."""
        for row, text in zip(rows.tolist(), texts, strict=True):
            if not self.mask[row]:
                self._filled()[row] = text
                self.mask[row] = True

    def add_where(self, mask: Mask, text: str) -> None:
        """Set one error for all records of a mask that have none yet."""
        fresh = mask & ~self.mask
        if fresh.any():
            self._filled()[fresh] = text
            self.mask |= fresh

    def texts(self) -> pa.StringArray:
        """The error of each record, null for a good record."""
        if self._texts is None:
            return pa.nulls(len(self.mask), pa.string())
        return pa.array(self._texts, pa.string())

    def _filled(self) -> Texts:
        if self._texts is None:
            self._texts = np.full(len(self.mask), None, np.object_)
        return self._texts


def bad_rows(errors: pa.Array) -> npt.NDArray[np.int64]:
    """The indexes of the messages that could not be decoded."""
    if errors.null_count == len(errors):
        return np.zeros(0, np.int64)
    return np.flatnonzero(pc.is_valid(errors).to_numpy(zero_copy_only=False))


def decode_errors(
    errors: pa.Array, rows: npt.NDArray[np.int64], data: pa.Array | None, what: str = "",
) -> list[str]:
    """The errors of messages that could not be decoded; `data`, if known, are all messages."""
    kinds = errors.take(pa.array(rows)).to_pylist()
    originals = [None] * len(rows) if data is None else data.take(pa.array(rows)).to_pylist()
    return [f"Decode error: {what}{_cut(kind)}{_shown(original)}"
            for kind, original in zip(kinds, originals, strict=True)]


def _cut(kind: str) -> str:
    return kind if len(kind) <= TEXT_SIZE_MAX else kind[:TEXT_SIZE_MAX] + "…"


def _shown(data: bytes | None) -> str:
    if data is None:
        return ""
    head = data[:SHOWN_SIZE_MAX]
    more = "…" if len(data) > len(head) else ""
    # cut in the middle of a character: the rest of it is not an error of the record
    text = head.decode("utf-8", "ignore") if more else head.decode("utf-8", "replace")
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return f' (original text: {plain}{more}, original bytes: "{head.hex()}{more}")'


def flags(array: pa.Array) -> Mask:
    """A column of booleans without nulls as a mask."""
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found
