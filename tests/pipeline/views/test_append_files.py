"""Append-only tables: rows in files, compacted now and then, deleted when no version needs them."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.views import append_files
from quipu.pipeline.views.append_files import (
    COMPACT_COUNT,
    ORPHAN_NS,
    AppendWriter,
    RowFile,
    compact,
    files_to_compact,
    read_rows,
    remove_unused,
    tier,
    write_rows,
)

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows_of(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": each, "text": f"t{each}"} for each in numbers], SCHEMA)


def read(folder: Path, files: list[RowFile]) -> list[int]:
    return [n for batch in read_rows(folder, SCHEMA, files, ["n"])
            for n in batch.column(0).to_pylist()]


def test_rows_are_written_in_files_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I13: rows come back in order, with the columns requested, or only their number."""
    monkeypatch.setattr(append_files, "FILE_SIZE_MAX", 100)
    writer = AppendWriter(tmp_path)
    files = [file for number in range(20) for file in writer.add(rows_of(number))]
    files += writer.finish()
    assert len(files) > 1
    assert list(writer.finish()) == []
    assert read(tmp_path, files) == list(range(20))
    texts = next(read_rows(tmp_path, SCHEMA, files[:1], ["text", "n"]))
    assert texts.schema.names == ["text", "n"]
    assert sum(batch.num_rows for batch in read_rows(tmp_path, SCHEMA, files, [])) == 20


def test_compaction_keeps_rows_and_makes_few_files(tmp_path: Path) -> None:
    """I13: small files become one."""
    files = [write_rows(tmp_path, pa.Table.from_batches([rows_of(number)]))
             for number in range(COMPACT_COUNT)]
    assert files_to_compact(files[1:]) == []
    assert files_to_compact(files) == files
    (one,) = compact(tmp_path, SCHEMA, files)
    assert one.rows == COMPACT_COUNT
    assert read(tmp_path, [one]) == read(tmp_path, files) == list(range(COMPACT_COUNT))


@given(st.lists(st.integers(1, 1 << 30), max_size=200))
def test_files_of_one_size_class_are_compacted_together(sizes: list[int]) -> None:
    """I13: a byte is written again once for each class, not with each batch."""
    files = [RowFile(str(number), 1, size) for number, size in enumerate(sizes)]
    chosen = files_to_compact(files)
    assert len({tier(file) for file in chosen}) <= 1
    assert not chosen or len(chosen) >= COMPACT_COUNT
    if chosen and tier(chosen[0]):
        assert max(file.size for file in chosen) < COMPACT_COUNT * min(
            file.size for file in chosen) + COMPACT_COUNT


def test_files_go_when_no_version_needs_them_and_no_batch_can(tmp_path: Path) -> None:
    """I13: files of a batch that runs are not in a version yet, and stay."""
    needed, orphan = (write_rows(tmp_path, pa.Table.from_batches([rows_of(number)]))
                      for number in range(2))
    assert remove_unused(tmp_path, {needed.file}, time.time_ns()) == 0
    assert remove_unused(tmp_path, {needed.file}, time.time_ns() + 2 * ORPHAN_NS) == 1
    assert read(tmp_path, [needed]) == [0]
    assert not (tmp_path / orphan.file).exists()
