"""Tables that only grow: rows of sources without keys, and dead letters, in files.

Whoever reads messages writes their rows, so rows never travel through Spark; what travels is a
`Piece`, the name of a file.  A version of the table is a list of pieces (`versions.py`), and what
a version added is its own pieces.  Small pieces are put together now and then, so that neither
the list nor the number of files grows with the number of batches.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from quipu.pipeline.tables.files import SectionWriter, open_file, version_of

FILE_SIZE_MAX = 64 << 20  # of rows in memory, when they are written
TOGETHER = 16  # pieces of about one size that are put together
ORPHAN_NS = 3_600_000_000_000  # an hour: no batch takes that long


class Piece(NamedTuple):
    """Rows in a file."""

    file: str
    rows: int
    size: int


class GrowingWriter:
    """Gathers rows, and writes a file whenever there are enough."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        """Take rows; the pieces that were written because of them."""
        if rows.num_rows:
            self._batches.append(rows)
            self._size += rows.nbytes
        if self._size >= FILE_SIZE_MAX:
            yield from self.finish()

    def finish(self) -> Iterator[Piece]:
        """Write what is left."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._batches, self._size = [], 0
            yield write_piece(self._directory, table)


def write_piece(directory: Path, table: pa.Table) -> Piece:
    """Write rows into a file that nobody has written before."""
    writer = SectionWriter(table.num_rows)
    whole = table.combine_chunks()
    for index, field in enumerate(whole.schema):
        writer.add(f"c{index}", pa.table([whole.column(index)], pa.schema([field])))
    directory.mkdir(parents=True, exist_ok=True)
    name = writer.write(directory, time.time_ns(), 0, "rows")
    return Piece(name, table.num_rows, (directory / name).stat().st_size)


def read_pieces(
    directory: Path, schema: pa.Schema, pieces: Iterable[Piece], columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Rows, with some of their columns; without columns, as many empty rows as there are."""
    places = [schema.get_field_index(name) for name in columns]
    wanted = pa.schema([schema.field(place) for place in places])
    for piece in pieces:
        if not places:
            yield pa.RecordBatch.from_struct_array(pa.nulls(piece.rows, pa.struct([])))
            continue
        opened = open_file(directory / piece.file)
        yield from pa.table([opened.section(f"c{place}").column(0) for place in places],
                            schema=wanted).to_batches()


def tier(piece: Piece) -> int:
    """Pieces of one tier differ in size by a factor of `TOGETHER` at most."""
    size, found = piece.size, 0
    while size >= TOGETHER * 1024:
        size //= TOGETHER
        found += 1
    return found


def to_put_together(pieces: Sequence[Piece]) -> list[Piece]:
    """The smallest pieces, if there are enough of about one size; else none."""
    by_tier: dict[int, list[Piece]] = {}
    for piece in pieces:
        if piece.size < FILE_SIZE_MAX:
            by_tier.setdefault(tier(piece), []).append(piece)
    for _, those in sorted(by_tier.items()):
        if len(those) >= TOGETHER:
            return those
    return []


def put_together(directory: Path, schema: pa.Schema, pieces: Sequence[Piece]) -> list[Piece]:
    """The same rows in fewer files."""
    writer = GrowingWriter(directory)
    made: list[Piece] = []
    for rows in read_pieces(directory, schema, pieces, schema.names):
        made += writer.add(rows)
    return [*made, *writer.finish()]


def clean(directory: Path, needed: set[str], now_ns: int) -> int:
    """Take away files that no version needs, and that no batch can be about to need."""
    gone = 0
    for path in directory.glob("*.rows"):
        made_ns = version_of(path.name)
        if path.name not in needed and made_ns is not None and made_ns < now_ns - ORPHAN_NS:
            path.unlink(missing_ok=True)
            gone += 1
    return gone
