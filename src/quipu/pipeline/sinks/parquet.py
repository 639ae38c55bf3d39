"""A directory of Parquet files as the target of a sink; each version is written once.

    folder/v000000000007-0-<sink>.parquet   a file per version, or several of a large one
    folder/_quipu/<sink>.json               the last version that is whole

Files are named by the version, and get their names when they are complete; a version that was
interrupted is written again, over its files (pipeline.S1).  For a view that only grows, files have
its rows.  For a view that can remove rows, each row has two more columns: `_version`, and `_diff`,
1 for a row that was added and -1 for one that was removed.  The sums of `_diff` by row are the
view.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from quipu.pipeline.durable import replace_file
from quipu.pipeline.views.changes import DIFF, ViewChange

FILE_ROWS_MAX = 5_000_000


class ParquetTarget:
    """A folder of Parquet files."""

    def __init__(self, name: str, folder: Path, *, only_grows: bool) -> None:
        self._name = name
        self._folder = folder
        self._checkpoint = folder / "_quipu" / f"{name}.json"
        self._only_grows = only_grows
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)

    def position(self) -> int | None:
        """The last version that was written as a whole; None before the first."""
        if not self._checkpoint.exists():
            return None
        return int(json.loads(self._checkpoint.read_text())["version"])

    def write(self, change: ViewChange) -> None:
        """Write the files of a version, then record it in the checkpoint."""
        for number, batches in enumerate(_files(change.batches)):
            name = f"v{change.version:012d}-{number}-{self._name}.parquet"
            self._write_file(name, change.version, batches)
        replace_file(self._checkpoint, json.dumps({"version": change.version}).encode())

    def close(self) -> None:
        """Nothing is held open between versions."""

    def _write_file(self, name: str, version: int, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches)
        diffs = table.column(DIFF)
        rows = table.drop_columns([DIFF])
        if not self._only_grows:
            rows = rows.append_column("_version", pa.repeat(pa.scalar(version), len(rows)))
            rows = rows.append_column("_diff", diffs)
        hidden = self._checkpoint.parent / name  # in a directory that readers of Parquet ignore
        with hidden.open("wb") as file:
            pq.write_table(rows, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(self._folder / name)


def _files(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches grouped into files of about `FILE_ROWS_MAX` rows."""
    together: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            together.append(batch)
        if sum(each.num_rows for each in together) >= FILE_ROWS_MAX:
            yield together
            together = []
    if together:
        yield together
