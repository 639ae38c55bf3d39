"""Logs as files of Apache Kafka: which bytes, which indexes, and what is never done."""

import struct
from pathlib import Path

import pytest

from quipu.model.batch_types import DATA
from quipu.runtime.disks.disk import DiskError, RealDisk
from quipu.runtime.disks.files import RealFile
from quipu.storage.inspect.examine import Seen, Selection
from quipu.storage.inspect.export import (
    CannotExport,
    Exported,
    ExportRules,
    check_targets,
    export_log,
    partition_of,
)
from quipu.storage.inspect.files import LogFiles, find_logs
from quipu.storage.inspect.kafka_segment import SEGMENT_SPAN_MAX, KafkaSegment, LeaderEpochs
from quipu.wire.record_batch import Record, decode_records, parse_header
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader, parse_stored
from tests.storage.inspect.build import START_MS, LogBuilder, flip

DISK = RealDisk()


def three(path: Path) -> LogFiles:
    """Three segments of five batches with two records each, of which every second is internal."""
    log = LogBuilder()
    for number in range(15):
        if number in (5, 10):
            log.roll()
        log.append([Record(b"k", b"x" * 3000, (), START_MS + number - number % 3)] * 2)
        log.append([Record(None, b"internal")], batch_type=4)
    log.write(path)
    (found,) = find_logs(DISK, str(path / "orders-0"))
    return found


def export(
    log: LogFiles, target: Path, selection: Selection | None = None, *,
    leader_epoch: int | None = None, faults: list[Seen] | None = None,
) -> Exported:
    target.mkdir(exist_ok=True)
    return export_log(DISK, log, str(target), ExportRules(
        selection=selection or Selection(types=frozenset({DATA})), leader_epoch=leader_epoch,
        on_fault=lambda seen: None if faults is None else faults.append(seen)))


def batches_of(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = parse_header(memoryview(data)).size
        found.append(data[:size])
        data = data[size:]
    return found


def stored_data(log: LogFiles) -> list[bytes]:
    """The data batches of a log, without their prefixes."""
    found = []
    for segment in log.segments:
        data = Path(segment.path).read_bytes()
        while data:
            header = parse_stored(memoryview(data))
            if header.batch_type == DATA:
                found.append(data[PREFIX_SIZE : header.size])
            data = data[header.size :]
    return found


def test_every_data_batch_is_written_as_it_is(tmp_path: Path) -> None:
    """T5, K1: a Kafka segment for each of ours, named by its first client offset."""
    # Shows storage.inspect.X3.
    log = three(tmp_path / "data")
    result = export(log, tmp_path / "out")
    made = tmp_path / "out" / "orders-0"
    assert sorted(path.name for path in made.iterdir()) == sorted([
        f"{base:020d}.{kind}" for base in (0, 10, 20) for kind in ("log", "index", "timeindex")
    ] + ["leader-epoch-checkpoint"])
    batches = [batch for path in sorted(made.glob("*.log"))
               for batch in batches_of(path.read_bytes())]
    assert batches == stored_data(log)
    assert [record.offset for batch in batches
            for record in decode_records(memoryview(batch), size_max=1 << 20)] == list(range(30))
    assert (made / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"
    assert result == Exported(
        "orders-0", str(made), segments=3, batches=15, records=30,
        bytes=sum(map(len, batches)), start_offset=0, end_offset=30)
    assert list((tmp_path / "out").iterdir()) == [made]


def test_indexes_say_what_kafkas_say(tmp_path: Path) -> None:
    """K1: an entry for a batch after every 4 KiB, by its last offset; times only grow."""
    export(three(tmp_path / "data"), tmp_path / "out")
    made = tmp_path / "out" / "orders-0"
    batches = batches_of((made / f"{10:020d}.log").read_bytes())
    positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
    entries = list(struct.iter_unpack(">ii", (made / f"{10:020d}.index").read_bytes()))
    assert entries == [(2 * number + 1, positions[number]) for number in (1, 2, 3, 4)]
    times = list(struct.iter_unpack(">qi", (made / f"{10:020d}.timeindex").read_bytes()))
    # Batches 5 to 9 have the times 3, 6, 6, 6 and 9: the first of each is named.
    assert times == [(START_MS + 6, 3), (START_MS + 9, 9)]


def test_a_time_index_ends_with_the_newest_record() -> None:
    """K1: also if no batch of the index is as new, and not at all without timestamps."""
    segment = KafkaSegment(5)
    segment.add(header(5, max_timestamp=70))
    segment.add(header(6, max_timestamp=60))
    assert segment.offset_index == b""
    assert segment.time_index() == struct.pack(">qi", 70, 0)
    empty = KafkaSegment(5)
    empty.add(header(5, max_timestamp=-1))
    assert empty.time_index() == b""


def header(base_offset: int, *, max_timestamp: int = 1, size: int = 100) -> StoredHeader:
    return StoredHeader(0, DATA, 1, 0, 0, base_offset, size, 0, 2, 0, 0, 0, 0, max_timestamp,
                        -1, -1, -1, 1)


def test_a_segment_never_outgrows_its_indexes() -> None:
    """K8: positions and offsets in Kafka's indexes have 32 bits."""
    segment = KafkaSegment(5)
    assert segment.has_room(header(5 + SEGMENT_SPAN_MAX))
    assert not segment.has_room(header(6 + SEGMENT_SPAN_MAX))
    segment.add(header(5, size=(1 << 31) - 200))
    assert segment.has_room(header(6, size=100))
    assert not segment.has_room(header(6, size=200))


def test_epochs_are_noted_where_they_begin() -> None:
    """K1: as in Kafka's checkpoint of them."""
    epochs = LeaderEpochs()
    for epoch, offset in ((-1, 0), (2, 1), (2, 2), (5, 3), (5, 9)):
        epochs.add(epoch, offset)
    assert epochs.text() == b"0\n2\n2 1\n5 3\n"


def test_the_leader_epoch_can_be_another(tmp_path: Path) -> None:
    """K1: for a partition that Kafka has just created; checksums hold, nothing else changes."""
    # Shows storage.inspect.X3.
    log = three(tmp_path / "data")
    export(log, tmp_path / "out", leader_epoch=0)
    made = tmp_path / "out" / "orders-0"
    batches = [batch for path in sorted(made.glob("*.log"))
               for batch in batches_of(path.read_bytes())]
    expected = stored_data(log)
    assert [batch[:12] + batch[16:] for batch in batches] == [
        batch[:12] + batch[16:] for batch in expected]
    assert {batch[12:16] for batch in batches} == {bytes(4)}
    assert (made / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_range_is_written_in_whole_batches(tmp_path: Path) -> None:
    """K1: from the batch with the first offset to the one before the end."""
    log = three(tmp_path / "data")
    result = export(log, tmp_path / "out", Selection(
        offset_start=13, offset_end=17, types=frozenset({DATA})))
    assert (result.start_offset, result.end_offset, result.segments) == (12, 18, 1)
    assert (tmp_path / "out" / "orders-0" / f"{12:020d}.log").exists()
    none = export(log, tmp_path / "none", Selection(offset_start=99, types=frozenset({DATA})))
    assert (none.directory, none.batches) == ("", 0)
    assert list((tmp_path / "none").iterdir()) == []


def test_a_damaged_batch_is_told_and_left_out(tmp_path: Path) -> None:
    """K8: the others are written, with their offsets."""
    # Shows storage.inspect.X1.
    log = three(tmp_path / "data")
    path = Path(log.segments[1].path)
    flip(path, path.read_bytes().index(b"x" * 3000) + 10)
    faults: list[Seen] = []
    result = export(log, tmp_path / "out", faults=faults)
    assert (result.batches, result.damaged_batches, len(faults)) == (14, 1, 1)
    assert result.faults == 1
    made = tmp_path / "out" / "orders-0"
    assert not (made / f"{10:020d}.log").exists()
    assert (made / f"{12:020d}.log").exists()


def test_nothing_that_exists_is_written_over(tmp_path: Path) -> None:
    """K8: nor is anything written if the disk has too little room, or two logs have one name."""
    # Shows storage.inspect.X2.
    log = three(tmp_path / "data")
    (tmp_path / "out" / "orders-0").mkdir(parents=True)
    with pytest.raises(CannotExport, match="orders-0 exists"):
        check_targets(DISK, [log], str(tmp_path / "out"))
    with pytest.raises(CannotExport, match="several logs"):
        check_targets(DISK, [log, log], str(tmp_path))

    class SmallDisk(RealDisk):
        def size(self, path: str) -> int:
            return 1 << 60 if path.endswith(".log") else super().size(path)

    with pytest.raises(CannotExport, match="bytes are free"):
        check_targets(SmallDisk(), [log], str(tmp_path))


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """K8: half a partition could be taken for a whole one."""
    # Shows storage.inspect.X2.
    log = three(tmp_path / "data")

    class FullDisk(RealDisk):
        def open(self, path: str, *, create: bool = False) -> RealFile:
            if path.endswith(f"{10:020d}.log"):
                raise DiskError("full")
            return super().open(path, create=create)

    (tmp_path / "out").mkdir()
    with pytest.raises(DiskError):
        export_log(FullDisk(), log, str(tmp_path / "out"),
                   ExportRules(selection=Selection(types=frozenset({DATA}))))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_single_file_is_exported_as_its_partition(tmp_path: Path) -> None:
    """K1: its checkpoint says which one it is."""
    log = three(tmp_path / "data")
    (single,) = find_logs(DISK, log.segments[1].path)
    result = export(partition_of(DISK, single), tmp_path / "out")
    assert (result.name, result.start_offset, result.end_offset) == ("orders-0", 10, 20)
