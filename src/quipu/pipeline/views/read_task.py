"""The task side of a batch, in one call: read, decode, open envelopes, and pack by bucket.

Events are packed into parcels, one per bucket.  Rows of sources without keys, and dead letters, are
written to files at once, and only the names of the files are handed on.
"""

from collections.abc import Iterator

from quipu.pipeline.envelopes.events import event_shape
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.execution.pruning import read_options
from quipu.pipeline.execution.source_reader import OpenedMessages, source_reader_of
from quipu.pipeline.execution.task_rows import NO_BUCKET, TaskRow, TaskRowKind, json_row
from quipu.pipeline.reading.stream import on_loss
from quipu.pipeline.views.append_files import AppendWriter, RowFile
from quipu.pipeline.views.inputs import SourceInput, TaskInput, ViewInputs, warn_recreated
from quipu.pipeline.views.versions import SourceCounts

PARCELS_SIZE_MAX = 64 << 20  # of events in memory, before they are handed on


def read_task(inputs: ViewInputs, given: TaskInput) -> Iterator[TaskRow]:
    """Read all messages of one task: parcels of events, names of files with rows, and counts."""
    for part in given:
        source_input = inputs.sources[part.source]
        opened = source_reader_of(source_input.source).read(part.ranges, on_loss(
            read_options(source_input.source.source), warn_recreated))
        yield from _packed(part.source, source_input, opened)


def _packed(
    number: int, source_input: SourceInput, opened: Iterator[OpenedMessages],
) -> Iterator[TaskRow]:
    counts = SourceCounts()
    packing = _Packing(number, source_input)
    dead = AppendWriter(source_input.dead)
    for part in opened:
        letters = part.opened.letters
        records = part.messages.records
        counts = counts.plus(SourceCounts(records.num_rows, records.nbytes, letters.num_rows))
        yield from packing.add(part)
        yield from _written(number, TaskRowKind.DEAD_LETTERS, dead.add(letters))
    yield from packing.finish()
    yield from _written(number, TaskRowKind.DEAD_LETTERS, dead.finish())
    yield json_row(number, NO_BUCKET, TaskRowKind.COUNTS, vars(counts))


def _written(number: int, kind: TaskRowKind, files: Iterator[RowFile]) -> Iterator[TaskRow]:
    return (json_row(number, NO_BUCKET, kind, file) for file in files)


class _Packing:
    """Writes the rows of a source to files, or packs its events by bucket."""

    def __init__(self, number: int, source_input: SourceInput) -> None:
        self._number = number
        self._writer = AppendWriter(source_input.rows)
        self._packer = None
        if source_input.buckets:
            shape = event_shape(source_input.source.source)
            self._packer = Packer(shape, buckets=source_input.buckets)

    def add(self, part: OpenedMessages) -> Iterator[TaskRow]:
        batch = part.opened.batch
        if self._packer is None:
            yield from _written(self._number, TaskRowKind.APPENDED, self._writer.add(batch))
            return
        self._packer.add(part.messages, batch)
        if self._packer.size >= PARCELS_SIZE_MAX:
            yield from self._parcels()

    def finish(self) -> Iterator[TaskRow]:
        yield from _written(self._number, TaskRowKind.APPENDED, self._writer.finish())
        yield from self._parcels()

    def _parcels(self) -> Iterator[TaskRow]:
        if self._packer is not None:
            for parcel in self._packer.parcels():
                yield TaskRow(self._number, parcel.bucket, TaskRowKind.PARCEL, parcel.data)
