"""A whole log looked at: what is found, and what is counted."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from quipu.model.batch_types import CHECKPOINT, DATA, LOG_START, TIERED
from quipu.model.ids import NO_TIMESTAMP, Epoch, Offset
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.derived.checkpoint import Tiered, encode_log_start, encode_tiered
from quipu.storage.inspect.continuity import FindingKind
from quipu.storage.inspect.examine import (
    Examination,
    ExaminedBatch,
    LogSummary,
    Seen,
    SeenDamage,
    Selection,
)
from quipu.storage.inspect.files import NoLog, find_logs
from quipu.storage.inspect.render import STORAGE_DECODERS, records
from quipu.storage.segments.index import HEADER_SIZE, Index, IndexEntry, Summary
from quipu.wire.compression import Compression
from quipu.wire.record_batch import Record
from tests.storage.inspect.build import (
    START_MS,
    TOPIC_ID,
    LogBuilder,
    flip,
    make_header_sound,
    three_segments,
)

SECOND = "00000000000000000009.log"  # of `three_segments`: 3 records of checkpoint, 6 of data
THIRD = "00000000000000000018.log"


def examine(path: Path, **options: object) -> tuple[list[Seen], LogSummary]:
    (log,) = find_logs(RealDisk(), str(path))
    examination = Examination(RealDisk(), log, **options)  # type: ignore[arg-type]
    return list(examination), examination.summary


def kinds(seen: list[Seen]) -> list[FindingKind]:
    return [finding.kind for each in seen for finding in each.findings
            if finding.kind is not FindingKind.NO_INDEX]


def write_index(path: Path, change: Callable[[Summary], Summary] = lambda s: s) -> Path:
    """A right index for a segment whose second batch starts at its 200th byte or later."""
    (log,) = find_logs(RealDisk(), str(path))
    batches = [seen for seen in Examination(RealDisk(), log) if isinstance(seen, ExaminedBatch)]
    first, last = batches[0].batch.header, batches[-1].batch.header
    index, newest = Index(), NO_TIMESTAMP
    for seen in batches:
        header = seen.batch.header
        index.add(IndexEntry(header.base_offset - first.base_offset,
                        header.log_offset - first.log_offset, seen.batch.position, newest))
        if header.batch_type == DATA:
            newest = max(newest, header.max_timestamp)
    summary = Summary(path.stat().st_size, first.base_offset, last.next_offset,
                      last.next_log_offset, newest, first.base_timestamp)
    target = path.with_suffix(".index")
    target.write_bytes(index.encode(change(summary)))
    return target


def test_a_sound_log_has_no_findings(tmp_path: Path) -> None:
    """T9: a directory of three segments, all batches given, offsets counted both ways."""
    path = three_segments().write(tmp_path)

    seen, summary = examine(path)

    assert kinds(seen) == []
    assert summary.fault_count == 0
    assert (summary.segments, summary.batches, summary.records) == (3, 12, 27)
    assert (summary.start_offset, summary.end_offset) == (0, 18)
    assert (summary.start_log_offset, summary.end_log_offset) == (0, 27)
    assert summary.types["data"].batches == 9
    assert summary.types["checkpoint"].records == 9
    assert (summary.first_timestamp, summary.last_timestamp) == (START_MS, START_MS + 17)
    assert summary.bytes == sum(file.stat().st_size for file in path.iterdir())


def test_a_file_a_log_and_a_data_directory_are_found(tmp_path: Path) -> None:
    """T9: any of the three can be named; anything else is an error."""
    path = three_segments().write(tmp_path / "data")
    LogBuilder("orders-1").write(tmp_path / "data")
    (tmp_path / "data" / "notes").mkdir()
    disk = RealDisk()

    assert [log.name for log in find_logs(disk, str(tmp_path / "data"))] == [
        "orders-0", "orders-1"]
    assert len(find_logs(disk, str(path))[0].segments) == 3
    (single,) = find_logs(disk, str(path / SECOND))
    assert single.segments[0].first_log_offset == 9
    with pytest.raises(NoLog, match="no such file"):
        find_logs(disk, str(tmp_path / "missing"))
    with pytest.raises(NoLog, match="holds no log"):
        find_logs(disk, str(tmp_path / "data" / "notes"))


def test_damage_is_reported_and_passed_over(tmp_path: Path) -> None:
    """T9: bytes that are no batch, and the offsets that are gone with them."""
    builder = three_segments()
    path = builder.write(tmp_path)
    second_batch = len(builder.segments[9][0])
    flip(path / SECOND, second_batch + 20)

    seen, summary = examine(path)

    assert kinds(seen) == [FindingKind.DAMAGE, FindingKind.LOST]
    lost = next(f for s in seen for f in s.findings if f.kind is FindingKind.LOST)
    assert lost.detail == "log offsets 12 to 13, offsets 6 to 7"
    assert summary.fault_count == 2
    assert summary.end_offset == 18  # went on to the end
    assert summary.damaged_bytes == len(builder.segments[9][1])


def test_a_bad_body_is_reported_and_passed_over(tmp_path: Path) -> None:
    """T9: the header is sound, so the batch is shown, with its checksum state."""
    builder = three_segments()
    path = builder.write(tmp_path)
    flip(path / SECOND, len(builder.segments[9][0]) + 80)

    seen, summary = examine(path)

    assert kinds(seen) == [FindingKind.BODY]
    assert summary.batches == 12
    assert examine(path, verify=False)[1].fault_count == 0


def test_a_missing_segment_is_a_gap(tmp_path: Path) -> None:
    """T9: the range that is gone is named, in both offsets."""
    # Shows storage.inspect.L1.
    path = three_segments().write(tmp_path)
    (path / SECOND).unlink()

    seen, _ = examine(path)

    assert kinds(seen) == [FindingKind.GAP]
    assert seen[-4].findings[-1].detail == "log offsets 9 to 17, offsets 6 to 11"


def test_a_repeated_segment_is_an_overlap(tmp_path: Path) -> None:
    """T9: offsets that come twice; the name does not fit either."""
    path = three_segments().write(tmp_path)
    (path / THIRD).write_bytes((path / SECOND).read_bytes())

    seen, _ = examine(path)

    assert kinds(seen) == [FindingKind.OVERLAP, FindingKind.NAME]


def rewritten(builder: LogBuilder, number: int, position: int, value: bytes) -> None:
    """Change a batch of the first segment and make its header's checksum right."""
    batch = bytearray(builder.segments[0][number])
    batch[position : position + len(value)] = value
    make_header_sound(batch, 0)
    builder.segments[0][number] = bytes(batch)


@pytest.mark.parametrize(("position", "value", "want"), [
    (28, struct.pack(">i", 0), [FindingKind.EPOCH]),
    (8, struct.pack(">q", 99), [FindingKind.GAP, FindingKind.OVERLAP]),
    (16, struct.pack(">q", 99), [FindingKind.GAP, FindingKind.OVERLAP]),
    (16, struct.pack(">q", 1), [FindingKind.OVERLAP, FindingKind.GAP]),
    (4, b"\x00", [FindingKind.UNSET, FindingKind.GAP]),
    (4, b"\x63", [FindingKind.UNKNOWN, FindingKind.GAP]),
])
def test_what_does_not_follow_is_flagged(
    tmp_path: Path, position: int, value: bytes, want: list[FindingKind]
) -> None:
    """T2, T9: epochs that fall, offsets that jump, a type that is unset, with sound checksums."""
    # Shows storage.inspect.L2, storage.inspect.L3, storage.inspect.L4.
    builder = LogBuilder()
    for _ in range(4):
        builder.data()
    rewritten(builder, 2, position, value)

    seen, summary = examine(builder.write(tmp_path))

    assert kinds(seen) == want
    assert summary.fault_count == sum(kind is not FindingKind.UNKNOWN for kind in want)
    assert summary.batches == 5


def test_an_unknown_type_is_reported_and_is_no_fault(tmp_path: Path) -> None:
    """T11: kept and counted, of no width for clients; the offsets after it follow."""
    builder = LogBuilder()
    builder.data()
    builder.append([Record(b"from", b"the future")], batch_type=99)
    builder.data()

    seen, summary = examine(builder.write(tmp_path))

    assert kinds(seen) == [FindingKind.UNKNOWN]
    assert summary.fault_count == 0
    assert summary.types["unknown(99)"].batches == 1
    assert (summary.end_offset, summary.end_log_offset) == (4, 8)


def test_a_segment_without_checkpoint_is_flagged(tmp_path: Path) -> None:
    """T9: every segment begins with one."""
    # Shows storage.inspect.L5.
    builder = LogBuilder()
    builder.data()
    builder.segments = {3: builder.segments[0][1:]}

    assert kinds(examine(builder.write(tmp_path))[0]) == [FindingKind.NO_CHECKPOINT]


def test_offset_ranges_open_only_the_files_that_matter(tmp_path: Path) -> None:
    """T9: from-offset and to-offset, by client offset; a damaged file outside is not looked at."""
    path = three_segments().write(tmp_path)
    flip(path / "00000000000000000000.log", 300)

    seen, summary = examine(path, selection=Selection(offset_start=8, offset_end=11))

    data = [each.batch.header.base_offset for each in seen
            if isinstance(each, ExaminedBatch) and each.batch.header.batch_type == DATA]
    assert data == [8, 10]
    assert (summary.segments, summary.fault_count) == (1, 0)


def test_time_ranges_and_types_select(tmp_path: Path) -> None:
    """T9: batches with a record in the range; only of the types wanted."""
    path = three_segments().write(tmp_path)
    selection = Selection(time_start_ms=START_MS + 7, time_end_ms=START_MS + 10,
                          types=frozenset({DATA}))

    seen, _ = examine(path, selection=selection)

    assert [each.batch.header.base_offset for each in seen
            if isinstance(each, ExaminedBatch)] == [6, 8]


def test_what_is_wrong_is_given_outside_the_selection_too(tmp_path: Path) -> None:
    """T9: a filter by type does not hide damage."""
    builder = three_segments()
    path = builder.write(tmp_path)
    flip(path / SECOND, len(builder.segments[9][0]) + 80)

    seen, _ = examine(path, selection=Selection(types=frozenset({CHECKPOINT})))

    assert [each.batch.header.batch_type for each in seen if isinstance(each, ExaminedBatch)] == [
        CHECKPOINT, CHECKPOINT, DATA, CHECKPOINT]


@pytest.mark.parametrize("codec", Compression)
def test_records_are_decoded_and_decompressed(tmp_path: Path, codec: Compression) -> None:
    """T9: every codec; keys and values as text or as hexadecimal."""
    builder = LogBuilder()
    builder.append([Record(b"k", b"\xff\x00", (("h", None),), START_MS),
                    Record(None, "grün".encode(), (), START_MS + 1)], compression=codec)

    seen, _ = examine(builder.write(tmp_path))

    assert isinstance(seen[1], ExaminedBatch)
    assert list(records(seen[1], STORAGE_DECODERS)) == [
        {"kind": "record", "log_offset": 3, "offset": 0, "timestamp": START_MS, "key": "k",
         "value_hex": "ff00", "headers": [{"name": "h", "value": None}]},
        {"kind": "record", "log_offset": 4, "offset": 1, "timestamp": START_MS + 1, "key": None,
         "value": "grün"},
    ]
    selection = Selection(offset_start=1)
    assert len(list(records(seen[1], STORAGE_DECODERS, selection))) == 1


def test_internal_batches_are_shown_decoded(tmp_path: Path) -> None:
    """T9, R13: checkpoints, log starts, tiered offsets; without a decoder as it is."""
    builder = LogBuilder()
    builder.append(encode_log_start(Offset(417), START_MS), batch_type=LOG_START)
    builder.append([Record(b"k", b"v", (), START_MS)], batch_type=99)
    builder.append(encode_tiered(Tiered(Offset(500), Epoch(3)), START_MS), batch_type=TIERED)

    seen, _ = examine(builder.write(tmp_path))
    decoded = [list(records(each, STORAGE_DECODERS)) for each in seen
            if isinstance(each, ExaminedBatch)]

    assert decoded[0][0]["log"] == "orders-0"
    assert decoded[0][0]["topic_id"] == str(TOPIC_ID)
    assert decoded[1] == [{"kind": "record", "log_start_offset": 417}]
    assert decoded[2] == [{"kind": "record", "log_offset": 4, "timestamp": START_MS, "key": "k",
                        "value": "v"}]
    assert decoded[3] == [{"kind": "record", "tiered_offset": 500, "leader_epoch": 3}]


def test_records_that_cannot_be_decoded_say_why(tmp_path: Path) -> None:
    """T9: a batch whose body is damaged gives what it can, and then the error."""
    builder = LogBuilder()
    builder.data(compression=Compression.ZSTD)
    path = builder.write(tmp_path)
    flip(path / "00000000000000000000.log", len(builder.bytes()) - 3)

    seen, _ = examine(path)

    assert isinstance(seen[1], ExaminedBatch)
    assert "error" in list(records(seen[1], STORAGE_DECODERS))[-1]


def test_a_right_index_is_silent(tmp_path: Path) -> None:
    """T9: entries and header agree with the segment."""
    path = three_segments().write(tmp_path)
    for segment in path.glob("*.log"):
        write_index(segment)

    seen, summary = examine(path)

    assert [finding for each in seen for finding in each.findings] == []
    assert summary.fault_count == 0


def test_a_missing_index_is_remarked(tmp_path: Path) -> None:
    """T9, T12: of all but the last segment, which a node is still writing."""
    path = three_segments().write(tmp_path)

    _, summary = examine(path)

    assert summary.findings == {"no index": 2}
    assert summary.fault_count == 0


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 19])
def test_a_truncated_index_is_found(tmp_path: Path, size: int) -> None:
    """T9, T12: at its header, and within an entry."""
    path = three_segments().write(tmp_path)
    index = write_index(path / SECOND)
    index.write_bytes(index.read_bytes()[:size])

    assert kinds(examine(path)[0]) == [FindingKind.INDEX]


def test_every_flipped_bit_of_an_index_is_found(tmp_path: Path) -> None:
    """T9: both of its checksums."""
    builder = LogBuilder()
    builder.data()
    path = builder.write(tmp_path)
    index = write_index(path / "00000000000000000000.log")
    whole = index.read_bytes()
    for position in range(len(whole)):
        index.write_bytes(whole)
        flip(index, position)
        assert kinds(examine(path)[0]) == [FindingKind.INDEX], position


@pytest.mark.parametrize("field", ["base_offset", "end_offset", "log_end", "max_timestamp",
                                   "created_ms"])
def test_an_index_of_another_segment_is_found(tmp_path: Path, field: str) -> None:
    """T9: sound, but it says something else than the segment."""
    path = three_segments().write(tmp_path)
    write_index(path / SECOND, lambda right: right._replace(**{field: getattr(right, field) + 1}))

    assert kinds(examine(path)[0]) == [FindingKind.INDEX]


def test_an_index_whose_entries_name_other_batches_is_found(tmp_path: Path) -> None:
    """T9: right checksums over wrong positions."""
    builder = three_segments()
    path = builder.write(tmp_path)
    right = write_index(path / SECOND).read_bytes()
    other = LogBuilder()
    other.data(3)
    other.data(1)
    other_path = other.write(tmp_path / "other")
    wrong = write_index(other_path / "00000000000000000000.log").read_bytes()
    assert wrong != right
    (path / SECOND).with_suffix(".index").write_bytes(wrong)

    assert kinds(examine(path)[0]) == [FindingKind.INDEX]


def test_an_index_of_a_segment_that_grew_is_remarked(tmp_path: Path) -> None:
    """T9: written at a clean stop, out of date since: no fault in the last segment."""
    builder = three_segments()
    path = builder.write(tmp_path)
    write_index(path / THIRD)
    builder.data()
    builder.write(tmp_path)

    _, summary = examine(path)

    assert summary.fault_count == 0
    assert summary.findings["no index"] == 3


def test_files_put_aside_are_remarked(tmp_path: Path) -> None:
    """T10: what recovery and repair have kept is not forgotten."""
    path = three_segments().write(tmp_path)
    (path / "00000000000000000027.torn-1767225600000").write_bytes(b"torn")

    seen, summary = examine(path)

    assert kinds(seen) == [FindingKind.ASIDE]
    assert summary.fault_count == 0


def test_an_empty_segment_in_the_middle_is_damage(tmp_path: Path) -> None:
    """T9: only the last one may still be without its first batch."""
    path = three_segments().write(tmp_path)
    (path / SECOND).write_bytes(b"")

    seen, _ = examine(path)

    assert FindingKind.DAMAGE in kinds(seen)
    assert not any(isinstance(each, SeenDamage) for each in seen)
