"""Versions of a view: published as a whole, and read as they were written."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.tables.contract import CorruptFile, UnknownVersion
from quipu.pipeline.views import versions
from quipu.pipeline.views.append_files import RowFile
from quipu.pipeline.views.versions import AppendTable, SourceCounts, Version

ID = UUID(int=7)
FILES = (RowFile("a.rows", 3, 100), RowFile("b.rows", 1, 50))
VERSION = Version(
    7, 6, 1_700_000_000_000, (Reached({TopicPartition("t", 0): 23}, {"t": ID}),),
    (SourceCounts(4, 150, 1),), {0: AppendTable(FILES, FILES[1:])},
    {0: AppendTable(FILES[:1], ())})
WRITTEN_BY_0_3 = {  # these names are on disk: they stay
    "number": 7, "base": 6, "time_ms": 1_700_000_000_000,
    "places": {"0": {"t": {"0": 23}, "#topic_ids": {"t": str(ID)}}},
    "counts": [{"messages": 4, "size": 150, "dead": 1}],
    "grown": {"0": {"pieces": [["a.rows", 3, 100], ["b.rows", 1, 50]],
                    "added": [["b.rows", 1, 50]]}},
    "dead": {"0": {"pieces": [["a.rows", 3, 100]], "added": []}},
}


def test_what_quipu_0_3_has_written_is_read_and_written_the_same() -> None:
    """I11: views go on from the versions of older programs, and the other way round."""
    assert Version.from_json(json.dumps(WRITTEN_BY_0_3)) == VERSION
    assert json.loads(VERSION.to_json()) == WRITTEN_BY_0_3


def test_a_version_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """I11: pipeline.V1."""
    assert versions.latest(tmp_path) == Version()
    versions.publish(tmp_path, VERSION)
    assert versions.latest(tmp_path) == VERSION
    assert [path.name for path in tmp_path.iterdir()] == [f"{7:020d}.json"]  # no temporary file

    with pytest.raises(FileExistsError):  # it never changes
        versions.publish(tmp_path, Version(7, 5))
    assert versions.read(tmp_path, 7) == VERSION

    path = versions.version_path(tmp_path, 7)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptFile, match="checksum"):
        versions.read(tmp_path, 7)


def test_versions_that_are_not_kept_are_removed(tmp_path: Path) -> None:
    """I11: those that are kept stay."""
    for number in range(4):
        versions.publish(tmp_path, Version(number, number - 1))
    versions.remove(tmp_path, keep={2, 3})
    assert versions.numbers(tmp_path) == [2, 3]
    with pytest.raises(UnknownVersion, match="version 1 is not kept"):
        versions.read(tmp_path, 1)
