"""A log cut at its last good batch, with everything kept that was cut."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from quipu.runtime.disks.disk import RealDisk
from quipu.storage.inspect.continuity import FindingKind
from quipu.storage.inspect.examine import Examination
from quipu.storage.inspect.files import find_logs
from quipu.storage.inspect.repair import CannotRepair, RepairPlan, carry_out, hold, plan_repair
from quipu.wire.record_batch import Record
from tests.storage.inspect.build import LogBuilder, flip, make_header_sound, three_segments

FIRST, SECOND, THIRD = (f"{first:020d}.log" for first in (0, 9, 18))
NOW_MS = 1_767_225_700_000


def plan(path: Path) -> RepairPlan | None:
    (log,) = find_logs(RealDisk(), str(path))
    return plan_repair(RealDisk(), log)


def repaired(path: Path) -> RepairPlan:
    """Repair the log at `path`, and check that nothing is wrong with it afterwards."""
    done = plan(path)
    assert done is not None
    carry_out(RealDisk(), done, NOW_MS)
    (log,) = find_logs(RealDisk(), str(path))
    examination = Examination(RealDisk(), log)
    assert all(not finding.is_fault for seen in examination for finding in seen.findings)
    assert examination.summary.end_offset == done.end_offset
    assert examination.summary.end_log_offset == done.log_end
    assert plan(path) is None
    return done


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_sound_log_needs_no_repair(tmp_path: Path) -> None:
    """T10: nothing is planned for it."""
    assert plan(three_segments().write(tmp_path)) is None


def test_planning_changes_nothing(tmp_path: Path) -> None:
    """T10: it never runs by itself; looking is free."""
    path = three_segments().write(tmp_path)
    flip(path / SECOND, 200)
    before = contents(path)

    assert plan(path) is not None
    assert contents(path) == before


def test_a_log_is_cut_at_its_last_good_batch(tmp_path: Path) -> None:
    """T10: the loss is reported; cut bytes and later segments are kept, every byte of them."""
    # Shows storage.inspect.P1.
    builder = three_segments()
    path = builder.write(tmp_path)
    cut = len(builder.segments[9][0]) + len(builder.segments[9][1])
    flip(path / SECOND, cut + 80)
    (path / SECOND).with_suffix(".index").write_bytes(b"stale")
    (path / THIRD).with_suffix(".index").write_bytes(b"stale")
    before = contents(path)

    done = repaired(path)

    assert (done.segment.path, done.position) == (str(path / SECOND), cut)
    assert done.why.kind is FindingKind.BODY
    assert (done.end_offset, done.log_end) == (8, 14)
    assert (done.loss.batches, done.loss.records, done.loss.damaged_bytes) == (6, 13, 0)
    assert (done.loss.offset_end, done.loss.log_offset_end) == (18, 27)
    assert done.loss.bytes == len(before[SECOND]) - cut + len(before[THIRD])
    assert contents(path) == {
        FIRST: before[FIRST],
        SECOND: before[SECOND][:cut],
        SECOND.replace(".log", f".cut-{NOW_MS}"): before[SECOND][cut:],
        THIRD.replace(".log", f".cut-{NOW_MS}"): before[THIRD],
    }


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    """T10, T12: whatever is left of the last batch is kept aside."""
    builder = LogBuilder()
    builder.data()
    last = builder.data()
    whole = builder.bytes()
    for size in range(len(whole) - len(last) + 1, len(whole)):
        path = tmp_path / str(size) / "orders-0"
        builder.write(tmp_path / str(size))
        (path / FIRST).write_bytes(whole[:size])

        done = repaired(path)

        assert (done.end_offset, done.log_end) == (2, 5)
        assert (path / FIRST).read_bytes() == whole[: -len(last)]
        assert done.loss.damaged_bytes == size - (len(whole) - len(last))


@pytest.mark.parametrize("field", [0, 4, 5, 8, 16, 24, 28, 32, 33, 37, 39, 43, 57, 73, 77])
def test_damage_in_any_field_is_cut(tmp_path: Path, field: int) -> None:
    """T10, T12: one flipped bit in the second batch; what comes before stays."""
    builder = LogBuilder()
    start = len(builder.bytes())
    for _ in range(3):
        builder.data()
    path = builder.write(tmp_path)
    flip(path / FIRST, start + field)

    assert (repaired(path).end_offset, repaired_size(path)) == (0, start)


def repaired_size(path: Path) -> int:
    return (path / FIRST).stat().st_size


def test_a_zeroed_block_is_cut(tmp_path: Path) -> None:
    """T10, T12: in the middle of a segment, over several batches."""
    builder = three_segments()
    path = builder.write(tmp_path)
    data = bytearray(builder.bytes(1))
    start = len(builder.segments[9][0])
    data[start + 10 : start + 150] = bytes(140)
    (path / SECOND).write_bytes(data)

    done = repaired(path)

    assert (done.end_offset, done.position) == (6, start)
    assert done.loss.offset_end == 18


def test_a_missing_segment_puts_the_later_ones_aside(tmp_path: Path) -> None:
    """T10: a log has no holes, so it ends before the gap."""
    path = three_segments().write(tmp_path)
    third = (path / THIRD).read_bytes()
    (path / SECOND).unlink()

    done = repaired(path)

    assert (done.end_offset, done.log_end, done.position) == (6, 9, 0)
    assert (path / THIRD.replace(".log", f".cut-{NOW_MS}")).read_bytes() == third


def test_type_0_is_cut(tmp_path: Path) -> None:
    """T2, T10: no node opens a log that holds it."""
    builder = LogBuilder()
    start = len(builder.bytes())
    builder.data()
    path = builder.write(tmp_path)
    data = bytearray(builder.bytes())
    data[start + 4] = 0
    make_header_sound(data, start)
    (path / FIRST).write_bytes(data)

    assert repaired(path).why.kind is FindingKind.UNSET


def test_an_unknown_type_is_kept(tmp_path: Path) -> None:
    """T11: nothing is wrong with it."""
    builder = LogBuilder()
    builder.append([Record(b"k", b"v")], batch_type=99)
    builder.data()

    assert plan(builder.write(tmp_path)) is None


def test_what_a_later_version_wrote_is_not_cut(tmp_path: Path) -> None:
    """T11: a sound header with another layout is refused, not cut."""
    # Shows storage.inspect.P2.
    builder = LogBuilder()
    start = len(builder.bytes())
    builder.data()
    path = builder.write(tmp_path)
    data = bytearray(builder.bytes())
    data[start + 5] = 2
    make_header_sound(data, start)
    (path / FIRST).write_bytes(data)

    with pytest.raises(CannotRepair, match="later version"):
        plan(path)


def test_a_log_without_any_good_batch_is_refused(tmp_path: Path) -> None:
    """T10: cutting everything would let offsets start anew; that is not for a tool to decide."""
    path = three_segments().write(tmp_path)
    flip(path / FIRST, 8)

    with pytest.raises(CannotRepair, match="no good one to cut at"):
        plan(path)


def test_damage_in_the_index_alone_needs_no_cut(tmp_path: Path) -> None:
    """T10: it is a cache; a node makes it anew."""
    path = three_segments().write(tmp_path)
    (path / SECOND).with_suffix(".index").write_bytes(b"junk")

    assert plan(path) is None


def test_a_running_node_keeps_repair_away(tmp_path: Path) -> None:
    """T10: the data directory's lock is respected, and held meanwhile."""
    three_segments().write(tmp_path)
    disk = RealDisk()
    logs = find_logs(disk, str(tmp_path))
    node = disk.lock(str(tmp_path / ".lock"))
    assert node is not None

    with pytest.raises(CannotRepair, match="a node is running"), hold(disk, logs):
        pass
    node.release()
    with hold(disk, logs):
        assert disk.lock(str(tmp_path / ".lock")) is None


def test_a_second_repair_in_the_same_millisecond_overwrites_nothing(tmp_path: Path) -> None:
    """T10: what was kept stays kept."""
    builder = LogBuilder()
    for _ in range(3):
        builder.data()
    path = builder.write(tmp_path)
    flip(path / FIRST, len(builder.bytes()) - 5)
    repaired(path)
    flip(path / FIRST, (path / FIRST).stat().st_size - 5)
    again = plan(path)
    assert again is not None

    with pytest.raises(CannotRepair, match="exists already"):
        carry_out(RealDisk(), again, NOW_MS)


def test_a_wild_count_is_cut(tmp_path: Path) -> None:
    """T10: records and offsets that do not agree, under right checksums."""
    builder = LogBuilder()
    start = len(builder.bytes())
    builder.data()
    path = builder.write(tmp_path)
    data = bytearray(builder.bytes())
    struct.pack_into(">i", data, start + 73, 7)
    struct.pack_into(">I", data, start + 33, crc32c(bytes(data[start + 37 :])))
    make_header_sound(data, start)
    (path / FIRST).write_bytes(data)

    assert repaired(path).why.kind is FindingKind.COUNT
