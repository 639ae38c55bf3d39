"""Rows into a folder of Parquet files, each version once.

    folder/v000000000007-0-<sink>.parquet   a file per version, or several of a large one
    folder/_quipu/<sink>.json               the last version that is whole

Files have names that follow from the version, and take them when they are complete; a version that
was cut short is written again over what is there.  A view that only grows gives its rows as they
are.  Of one that takes rows back, each row says what it is by two more columns: `_version`, and
`_diff`, 1 for a row that came and -1 for one that went.  Adding up `_diff` gives the view.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from quipu.pipeline.durable import replace_file
from quipu.pipeline.spark.following import Step
from quipu.pipeline.spark.relations import DIFF

FILE_ROWS_MAX = 5_000_000


class ParquetTarget:
    """See above."""

    def __init__(self, name: str, folder: Path, *, only_grows: bool) -> None:
        self._name = name
        self._folder = folder
        self._mark = folder / "_quipu" / f"{name}.json"
        self._only_grows = only_grows
        self._mark.parent.mkdir(parents=True, exist_ok=True)

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        if not self._mark.exists():
            return None
        return int(json.loads(self._mark.read_text())["version"])

    def write(self, step: Step) -> None:
        """Write a version, whole."""
        for number, batches in enumerate(_files(step.batches)):
            name = f"v{step.version:012d}-{number}-{self._name}.parquet"
            self._write_file(name, step.version, batches)
        replace_file(self._mark, json.dumps({"version": step.version}).encode())

    def close(self) -> None:
        """Nothing is held open between versions."""

    def _write_file(self, name: str, version: int, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches)
        diffs = table.column(DIFF)
        rows = table.drop_columns([DIFF])
        if not self._only_grows:
            rows = rows.append_column("_version", pa.repeat(pa.scalar(version), len(rows)))
            rows = rows.append_column("_diff", diffs)
        hidden = self._mark.parent / name  # where nobody looks for rows
        with hidden.open("wb") as file:
            pq.write_table(rows, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(self._folder / name)

def _files(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches, as many as fit one file at a time."""
    together: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            together.append(batch)
        if sum(each.num_rows for each in together) >= FILE_ROWS_MAX:
            yield together
            together = []
    if together:
        yield together
