"""Compacted logs and their copies: copied anew, continued, repaired, compared."""

from dataclasses import replace
from pathlib import Path

from quipu.model.batch_types import DATA
from quipu.model.ids import LogOffset
from quipu.runtime.disks.disk import Disk, RealDisk
from quipu.storage.compaction.fillers import cropped, is_filler, make_filler, split_filler
from quipu.storage.inspect.diff import Comparison, compare
from quipu.storage.inspect.examine import Examination
from quipu.storage.inspect.files import find_logs
from quipu.storage.log import Log
from quipu.storage.segments.damage import check_replacement, epochs_around, note, write_mended
from quipu.wire.stored_batch import StoredHeader, check_stored
from tests.storage.builders import DIRECTORY, NOW_MS, data_disk, open_log
from tests.storage.compaction.compacting import (
    SMALL_SEGMENTS,
    all_records,
    append_pairs,
    flush,
    latest,
    run_pass,
)
from tests.storage.replicas import HEAD, TAIL, replica


def a_source(*, rounds: int = 20, disk: Disk | None = None, directory: str = DIRECTORY) -> Log:
    log = replica(disk or data_disk(), HEAD, directory=directory)
    log.configure(SMALL_SEGMENTS)
    for number in range(rounds):
        append_pairs(log, [(b"k%d" % key, b"v%d" % number) for key in range(5)])
    log.roll(NOW_MS)
    append_pairs(log, [(b"active", b"1")])
    flush(log)
    return log


def copy(source: Log, target: Log, *, end: int = 1 << 60) -> None:
    """Have `target` continue like `source`, up to log offset `end`."""
    while target.log_end < min(end, source.log_end):
        for entry in source.read_entries(target.log_end, 200):
            target.append_entry(memoryview(bytes(entry.data)), NOW_MS)
    flush(target)


def a_copy(
    source: Log, *, end: int = 1 << 60, disk: Disk | None = None, directory: str = DIRECTORY
) -> Log:
    target = replica(disk or data_disk(), TAIL, directory=directory)
    target.configure(SMALL_SEGMENTS)
    copy(source, target, end=end)
    return target


def test_a_copy_of_a_compacted_log_is_the_same_for_a_reader() -> None:
    """K5: a member that joins after compaction copies holes and fillers, and compacts by itself.

    Shows storage.KM2: what the source says of its own files is not believed of the copy.
    """
    source = a_source()
    run_pass(source)
    target = a_copy(source)
    assert all_records(target) == all_records(source)
    assert target.log_end == source.log_end
    assert source.compacted_end > 0
    assert target.compacted_end == 0
    run_pass(target)
    assert latest(all_records(target)) == latest(all_records(source))


def test_a_copy_that_ends_within_a_filler_goes_on_there() -> None:
    """K5: each boundary of a filler, and each place to split it, is where a batch was.

    Shows storage.KF1 and storage.KF2.
    """
    source = a_source()
    ends = [int(batch.header.log_offset) for batch in source.read_stored()][1:]
    for end in ends:
        fresh = a_source()
        target = a_copy(fresh, end=end)
        run_pass(fresh)
        copy(fresh, target)
        assert target.log_end == fresh.log_end
        assert latest(all_records(target)) == latest(all_records(fresh))


def test_a_log_that_missed_removed_tombstones_is_copied_anew() -> None:
    """K5: the floor for copies rises above tombstones that were removed (storage.KM3)."""
    source = a_source(rounds=3)
    append_pairs(source, [(b"k1", None)])
    source.roll(NOW_MS)
    append_pairs(source, [(b"active", b"2")])
    flush(source)
    behind = a_copy(source, end=8)
    run_pass(source)
    assert source.sync_floor == 0
    run_pass(source, now_ms=NOW_MS + 5000, nonce="later")
    assert b"k1" not in {record.key for record in all_records(source)}
    assert source.sync_floor > behind.log_end
    assert a_copy(source).sync_floor == source.sync_floor  # for those that copy from the copy


def test_a_damaged_batch_of_a_compacted_segment_is_repaired_by_what_another_has() -> None:
    """K5, T12: the other member's batches have another size, and fit all the same (storage.B4)."""
    source = a_source()
    other = a_copy(source)
    run_pass(source)
    disk = source.directory.disk
    damaged = next(batch for batch in source.read_stored() if batch.header.batch_type == DATA
                   and batch.header.count > 0)
    wanted = all_records(source)
    owner = next(each for each in source.segments
                 if each.base_log <= damaged.header.log_offset < each.log_end)
    path = owner.path
    data = bytearray(disk.read(path))
    data[damaged.position + 70] ^= 1
    disk.write(path, data)
    owner.release()
    found = note(owner, damaged.position)
    assert found is not None
    assert found.next_log <= source.compacted_end
    parts, at = b"", found.log_offset
    while at < found.next_log:
        entry = other.read_entries(LogOffset(at), 1)[0]
        parts, at = parts + cropped(bytes(entry.data), found.next_log), entry.next_log
    fixed = memoryview(parts)
    check_replacement("t-0", found, fixed, epochs_around(owner, found), compacted=True)
    write_mended(disk, path, found, fixed)
    source.take_mended(owner, found, len(fixed))
    assert latest(all_records(source)) == latest(wanted)
    source.discard()
    again = open_log(disk, SMALL_SEGMENTS, directory=source.directory.path)
    assert latest(all_records(again)) == latest(wanted)


def test_members_that_compacted_differently_are_equal_after_compaction(tmp_path: Path) -> None:
    """K5: `quipu log diff` says so, and names what one has lost.

    Shows storage.inspect.E1, storage.inspect.E2 and storage.inspect.E3.
    """
    disk = RealDisk()
    source = a_source(disk=disk, directory=f"{tmp_path}/t-0")
    other = a_copy(source, disk=disk, directory=f"{tmp_path}/u-0")
    run_pass(source)
    done = compared(source, other)
    assert done.difference is None
    assert "equal after compaction" in done.notes[0]
    append_pairs(other, [(b"more", b"1")])
    flush(other)
    done = compared(source, other)
    assert done.difference is not None
    assert "missing in A" in done.difference.how[0]
    append_pairs(source, [(b"more", b"2")])
    flush(source)
    done = compared(source, other)
    assert done.difference is not None
    assert "record" in done.difference.how[0]


def compared(a: Log, b: Log) -> Comparison:
    disk = a.directory.disk
    (log_a,) = find_logs(disk, a.directory.path)
    (log_b,) = find_logs(disk, b.directory.path)
    return compare(disk, log_a, log_b)


def test_a_filler_is_split_where_it_is_asked_for() -> None:
    """K5: both parts cover what the whole did (storage.KF2)."""
    stored = make_filler(DATA, log_offset=10, base_offset=7, span=20, leader_epoch=3)
    header = check_stored(memoryview(stored))
    assert isinstance(header, StoredHeader)
    assert is_filler(header)
    rest = check_stored(memoryview(split_filler(header, 15, 30)))
    first = check_stored(memoryview(cropped(stored, 15)))
    assert isinstance(rest, StoredHeader)
    assert isinstance(first, StoredHeader)
    assert (first.log_offset, first.next_log_offset, first.next_offset) == (10, 15, 12)
    assert (rest.log_offset, rest.base_offset, rest.next_log_offset) == (15, 12, 30)


def test_files_that_a_crash_left_behind_are_no_fault(tmp_path: Path) -> None:
    """K5, T10: segments within a compacted one are left out, as recovery does (storage.KS1)."""
    disk = RealDisk()
    source = a_source(disk=disk, directory=f"{tmp_path}/t-0")
    merged = source.segments[1]
    left = Path(merged.path).read_bytes()
    source.configure(replace(SMALL_SEGMENTS, segment_bytes=100_000))
    run_pass(source)
    source.discard()
    Path(merged.path).write_bytes(left)
    (log,) = find_logs(disk, source.directory.path)
    seen = Examination(disk, log)
    assert all(not finding.is_fault for each in seen for finding in each.findings)
    again = open_log(disk, SMALL_SEGMENTS, directory=source.directory.path)
    assert again.failure is None
    assert not Path(merged.path).exists()
