"""Files: what was written is what is read, or an error that names the file."""

from pathlib import Path

import pyarrow as pa
import pytest

from quipu.pipeline.tables import commits, files, reading
from quipu.pipeline.tables.contract import CorruptFile, MissingFile, TableError
from quipu.pipeline.tables.files import SectionWriter, TableFile, close_files, open_file, version_of
from tests.pipeline.tables.table_maker import LATEST, Event, Table


def written(directory: Path) -> Path:
    writer = SectionWriter(3)
    writer.add("a", pa.table({"x": [1, 2, 3]}))
    writer.add("b", pa.table({"y": ["one", None, "three"]}))
    return directory / writer.write(directory, 5, 2, "data")


def test_sections_are_read_back(tmp_path: Path) -> None:
    path = written(tmp_path)
    file = TableFile(path)

    assert file.rows == 3
    assert file.section("a").column("x").to_pylist() == [1, 2, 3]
    assert file.section("b").column("y").to_pylist() == ["one", None, "three"]
    assert version_of(path.name) == 5
    assert version_of("notes.txt") is None
    assert [each.name for each in tmp_path.iterdir()] == [path.name]  # nothing temporary is left


def test_the_same_content_has_the_same_name(tmp_path: Path) -> None:
    """pipeline.T1: so that a merge that is tried again does not leave two files."""
    assert written(tmp_path) == written(tmp_path)


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    """One bit of each byte: reading fails, naming the file, or the byte is padding."""
    path = written(tmp_path)
    good = path.read_bytes()
    missed = 0
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1:])
        try:
            file = TableFile(path)
            found = [file.section("a"), file.section("b")]
            assert found[0].column("x").to_pylist() == [1, 2, 3]
            missed += 1
        except CorruptFile as error:
            assert str(path) in str(error)  # noqa: PT017 not every byte raises
    assert missed <= 2 * 63 + 8  # padding between sections, and the magic in front


def test_a_file_that_was_cut_is_found(tmp_path: Path) -> None:
    path = written(tmp_path)
    good = path.read_bytes()
    for size in (0, 1, 8, 40, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(CorruptFile, match=path.name):
            TableFile(path)


def test_a_section_is_checked_when_it_is_asked_for(tmp_path: Path) -> None:
    """Columns that nobody reads cost nothing, not even a check."""
    path = written(tmp_path)
    good = path.read_bytes()
    place = good.index(b"onethree")
    path.write_bytes(good[:place] + b"?" + good[place + 1:])
    file = TableFile(path)

    assert file.section("a").num_rows == 3
    with pytest.raises(CorruptFile, match="section 'b'"):
        file.section("b")
    with pytest.raises(CorruptFile, match="no section 'c'"):
        file.section("c")


def test_files_stay_open_but_not_for_ever(tmp_path: Path) -> None:
    """Those that were deleted must let go of the disk."""
    path = written(tmp_path)
    file = open_file(path)
    assert open_file(path) is file
    path.unlink()
    assert open_file(path) is file
    assert written(tmp_path) == path
    for number in range(files._OPEN_FILES_MAX):
        other = tmp_path / f"{number}.data"
        other.hardlink_to(path)
        open_file(other)
    with pytest.raises(MissingFile, match="the file is gone"):
        open_file(tmp_path / "no.data")
    path.unlink()
    with pytest.raises(MissingFile):
        open_file(path)


def test_a_table_with_a_damaged_or_lost_file_says_which(tmp_path: Path) -> None:
    table = Table(tmp_path, LATEST, buckets=1)
    state = table.merge(0, [[Event("a"), Event("b")]]).bucket(0)
    path = tmp_path / "files" / state.data[0].file
    good = path.read_bytes()

    middle = slice(100, len(good) // 2)
    path.write_bytes(good[:100] + bytes(each ^ 1 for each in good[middle]) + good[middle.stop:])
    close_files()  # as in a new process
    with pytest.raises(TableError, match=path.name):
        list(reading.rows(tmp_path, table.shape, state))
    path.unlink()
    close_files()
    with pytest.raises(MissingFile, match=path.name):
        list(reading.rows(tmp_path, table.shape, state))


def test_a_damaged_manifest_says_so(tmp_path: Path) -> None:
    table = Table(tmp_path, LATEST)
    table.merge(0, [[Event("a")]])
    (path,) = (tmp_path / "versions").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"rows": 1', b'"rows": 2'))

    with pytest.raises(CorruptFile, match=path.name):
        commits.latest(tmp_path)
