"""Which batches are hidden from a reader of committed records.

A Fetch response lists the aborted transactions that it contains: producer and first offset.  From
that offset on, all transactional batches of the producer are aborted, until its abort marker.
Markers have offsets, but are no records: control batches are hidden from every reader.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.pipeline.records.batches import BATCH_SIZE_MAX, CorruptRecords
from quipu.wire.record_batch import decode_records, parse_header

_ABORT: Final = b"\x00\x00"  # after the marker's version


class Aborted(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int


class Transactions:
    """Says which batches are hidden; `hide` must be called in the order of the log.

    `aborted` is None for readers of uncommitted records.
    """

    def __init__(self, aborted: Iterable[Aborted] | None) -> None:
        self._reads_committed = aborted is not None
        # In reverse order, so that the next one can be popped from the end.
        self._ahead = sorted(aborted or (), key=lambda one: -one.first_offset)
        self._open: set[int] = set()  # producers whose aborted transaction has begun

    def hide(self, batch: memoryview) -> bool:
        """Is a batch that is transactional or a marker hidden?  Its checksum must be right."""
        header = parse_header(batch)
        if not self._reads_committed:
            return header.is_control
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._open.add(self._ahead.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._open and _is_abort(batch):
                self._open.remove(header.producer_id)
            return True
        return header.producer_id in self._open


def _is_abort(batch: memoryview) -> bool:
    header = parse_header(batch)
    try:
        marker = next(decode_records(batch, size_max=BATCH_SIZE_MAX), None)
    except MalformedBytes as error:
        raise CorruptRecords(header.base_offset, str(error)) from error
    return marker is not None and (marker.key or b"")[2:4] == _ABORT
