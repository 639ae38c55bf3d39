"""What the tasks of a view's stream do: read, decode, and pack for the tables.

Events are packed into parcels, one per bucket.  Rows of sources that only grow, and dead letters,
are written to files at once, and only their names are handed on.
"""

from collections.abc import Iterator, Sequence

from quipu.pipeline.envelopes.events import event_shape
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.reading.stream import on_loss
from quipu.pipeline.spark.feed import Feed, Share, Tributary, take_note
from quipu.pipeline.spark.growing import GrowingWriter, Piece
from quipu.pipeline.spark.opening import Found, opener_of
from quipu.pipeline.spark.pruning import options_of
from quipu.pipeline.spark.tasks import NO_BUCKET, Item, Kind, json_item
from quipu.pipeline.spark.versions import Counts

PARCELS_SIZE_MAX = 64 << 20  # of events in memory, before they are handed on


def read_shares(feed: Feed, shares: Sequence[Share]) -> Iterator[Item]:
    """Everything that one task reads."""
    for share in shares:
        tributary = feed.tributaries[share.tributary]
        found = opener_of(tributary.source).run(share.ranges, on_loss(
            options_of(tributary.source.source), take_note))
        yield from _items(share.tributary, tributary, found)


def _items(number: int, tributary: Tributary, found: Iterator[Found]) -> Iterator[Item]:
    counts = Counts()
    packing = _Packing(number, tributary)
    dead = GrowingWriter(tributary.dead)
    for part in found:
        letters = part.opened.letters
        records = part.messages.records
        counts = counts.plus(Counts(records.num_rows, records.nbytes, letters.num_rows))
        yield from packing.add(part)
        yield from _pieces(number, Kind.DEAD, dead.add(letters))
    yield from packing.finish()
    yield from _pieces(number, Kind.DEAD, dead.finish())
    yield json_item(number, NO_BUCKET, Kind.COUNTS, vars(counts))


def _pieces(number: int, kind: Kind, pieces: Iterator[Piece]) -> Iterator[Item]:
    return (json_item(number, NO_BUCKET, kind, piece) for piece in pieces)


class _Packing:
    """Rows to files, or events to parcels."""

    def __init__(self, number: int, tributary: Tributary) -> None:
        self._number = number
        self._writer = GrowingWriter(tributary.rows)
        self._packer = None
        if tributary.buckets:
            shape = event_shape(tributary.source.source)
            self._packer = Packer(shape, buckets=tributary.buckets)

    def add(self, part: Found) -> Iterator[Item]:
        batch = part.opened.batch
        if self._packer is None:
            yield from _pieces(self._number, Kind.GROWN, self._writer.add(batch))
            return
        self._packer.add(part.messages, batch)
        if self._packer.size >= PARCELS_SIZE_MAX:
            yield from self._parcels()

    def finish(self) -> Iterator[Item]:
        yield from _pieces(self._number, Kind.GROWN, self._writer.finish())
        yield from self._parcels()

    def _parcels(self) -> Iterator[Item]:
        if self._packer is not None:
            for parcel in self._packer.parcels():
                yield Item(self._number, parcel.bucket, Kind.PARCEL, parcel.data)
