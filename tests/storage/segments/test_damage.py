"""Batches that a disk has changed: never given to anyone, passed by, and replaced."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.batch_types import DATA, GROUP
from quipu.model.errors import Code, CorruptLog, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import DiskFull
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.log import Log, StoredBatch
from quipu.storage.log_directory import CleanShutdown, RecoveryPoint
from quipu.storage.segments.damage import (
    Damage,
    check_replacement,
    epochs_around,
    take_mended,
    write_mended,
)
from quipu.storage.segments.segment import Segment
from quipu.storage.state_log import StateLog
from quipu.wire.record_batch import Record, decode_records, parse_header
from tests.storage.builders import NOW_MS, append, data_disk, segment_names, split
from tests.storage.log_storage import LogStorage
from tests.storage.replicas import E1, HEAD, TAIL, feed, mixed, replica

CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=300)


def two_nodes() -> tuple[Log, SimDisk, CleanShutdown]:
    """A log, and another node's disk with the same files, left in order."""
    source, disk = mixed(data_disk(), CONFIG), data_disk()
    target = replica(disk, TAIL, CONFIG)
    feed(source, target)
    source.flusher.flush_now()
    clean = target.close()
    assert clean is not None
    return source, disk, clean


def reopened(disk: SimDisk, clean: CleanShutdown) -> Log:
    return replica(disk, TAIL, CONFIG, RecoveryPoint(clean.log_end, clean, is_current=True))


def readable(log: Log) -> tuple[dict[int, bytes], list[CorruptLog]]:
    """Every record that can be read, and what is raised on the way, by a client that goes on
    behind whatever is refused.
    """
    found: dict[int, bytes] = {}
    errors = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        try:
            batches = split(log.read(offset, 700, end=log.end_offset, min_one=True))
        except CorruptLog as error:
            errors.append(error)
            (behind,) = {each.next_offset for segment in log.segments for each in segment.damage
                         if each.offset <= offset < each.next_offset}
            assert behind > offset
            offset = Offset(behind)
            continue
        assert batches
        for batch in batches:
            for record in decode_records(batch, size_max=1 << 20):
                assert record.value is not None
                found[record.offset] = record.value
            offset = Offset(parse_header(batch).last_offset + 1)
    return found, errors


def data_batch(log: Log, segment: Segment) -> StoredBatch:
    """The second batch of data in `segment`."""
    return [each for each in log.read_stored(LogOffset(segment.base_log))
            if each.header.batch_type == DATA][1]


def damages(log: Log) -> list[Damage]:
    return [each for segment in log.segments for each in segment.damage]


def mend(log: Log, source: Log) -> None:
    """What a node does about damage that it knows of."""
    disk = log.directory.disk
    for segment in log.segments[:-1]:
        for damage in list(segment.damage):
            data, at = b"", LogOffset(damage.log_offset)
            while at < damage.next_log:
                entries = source.read_entries(at, damage.size - len(data))
                data += b"".join(entry.data for entry in entries)
                at = entries[-1].next_log
            view = memoryview(data)
            check_replacement(log.name, damage, view, epochs_around(segment, damage))
            write_mended(disk, segment.path, damage, view)
            take_mended(disk, segment, damage)


@given(data=st.data(), count=st.integers(1, 3))
def test_a_changed_byte_is_never_given_out_and_all_the_rest_is(
    data: st.DataObject, count: int
) -> None:
    """T12: wherever it lies.  Records before and behind are served; a replica's bytes make the
    files the same again.
    """
    # Shows storage.B3.
    source, disk, clean = two_nodes()
    paths = segment_names(disk)
    intact = {path: disk.read(path) for path in paths}
    for _ in range(count):
        path = data.draw(st.sampled_from(paths))
        disk.flip(path, data.draw(st.integers(0, len(intact[path]) - 1)),
                  data.draw(st.integers(1, 255)))
    log = reopened(disk, clean)
    whole, none = readable(source)
    assert not none
    found, errors = readable(log)
    lost = {offset for damage in damages(log)
            for offset in range(damage.offset, damage.next_offset)}
    assert found == {offset: value for offset, value in whole.items() if offset not in lost}
    assert all(error.code == Code.KAFKA_STORAGE_ERROR for error in errors)
    assert len(lost) <= count * 16
    find_all(log)
    mend(log, source)
    find_all(log)
    assert not [each for segment in log.segments[:-1] for each in segment.damage]
    for path in paths[:-1]:
        assert disk.read(path) == intact[path]


def find_all(log: Log) -> None:
    """Have every batch looked at, of any type."""
    at = log.first_log
    while at < log.log_end:
        try:
            at = log.read_entries(at, 1 << 20)[-1].next_log
        except CorruptLog:
            (behind,) = {each.next_log for each in damages(log)
                         if each.log_offset <= at < each.next_log}
            at = LogOffset(behind)


@pytest.mark.parametrize("part", range(4, 77, 3))
def test_a_lost_header_costs_no_more_than_up_to_the_next_index_entry(part: int) -> None:
    """T12: the walk goes on where the index says that a batch begins."""
    # Shows storage.B1, storage.B2.
    _, disk, clean = two_nodes()
    log = reopened(disk, clean)
    segment = log.segments[1]
    batch = data_batch(log, segment)
    disk.flip(segment.path, batch.position + part)
    segment.release()
    found, errors = readable(log)
    (damage,) = damages(log)
    assert damage.position == batch.position
    assert damage.size <= CONFIG.index_interval_bytes + 2 * batch.header.size
    assert len(errors) == 1
    assert damage.next_offset in found


def test_what_was_read_before_is_checked_again() -> None:
    """T12: a disk may change it at any time."""
    _, disk, clean = two_nodes()
    log = reopened(disk, clean)
    segment = log.segments[1]
    first, _ = readable(log)
    disk.flip(segment.path, data_batch(log, segment).position + 70)
    segment.release()
    assert len(readable(log)[0]) < len(first)


def test_a_segment_that_this_process_wrote_is_checked_once_it_is_complete() -> None:
    """T12: a disk may change what it was given a moment ago."""
    # Shows storage.S5.
    disk = data_disk()
    log = replica(disk, HEAD, CONFIG)
    for number in range(60):
        append(log, [b"%d" % number], epoch=1)
    log.flusher.flush_now()
    disk.flip(log.segments[0].path, log.segments[0].size - 5)
    found, errors = readable(log)
    assert len(errors) == 1
    assert len(found) == 59


def test_if_no_replica_has_it_a_client_gets_corrupt_message() -> None:
    """T12: a code that no client retries for ever, and the offset to go on at."""
    _, disk, clean = two_nodes()
    log = reopened(disk, clean)
    segment = log.segments[1]
    disk.flip(segment.path, data_batch(log, segment).position + 70)
    segment.release()
    readable(log)
    (damage,) = damages(log)
    damage.is_lost = True
    with pytest.raises(CorruptLog, match=f"go on at offset {damage.next_offset}") as raised:
        log.read(Offset(damage.offset), 100, end=log.end_offset, min_one=True)
    assert raised.value.code == Code.CORRUPT_MESSAGE


def test_an_index_and_a_segment_that_are_both_damaged_cost_the_rest_of_the_segment() -> None:
    """T12: nothing shows where the next batch is; a replica's bytes restore all of it."""
    source, disk, clean = two_nodes()
    log = reopened(disk, clean)
    segment = log.segments[1]
    intact = disk.read(segment.path)
    batch = data_batch(log, segment)
    disk.flip(segment.path, batch.position + 9)
    disk.flip(segment.index_path, 70)
    for each in log.segments[:-1]:
        each.release()
    found, errors = readable(log)
    (damage,) = damages(log)
    assert (damage.end, damage.next_log) == (segment.size, segment.log_end)
    assert len(errors) == 1
    assert max(found) == source.end_offset - 1
    mend(log, source)
    assert disk.read(segment.path) == intact
    assert readable(log) == readable(source)


def wrong(data: bytes) -> Sequence[bytes]:
    flipped = bytearray(data)
    flipped[-1] ^= 1
    return [b"", data[:-1], bytes(flipped), data + data]


def test_only_the_very_bytes_take_the_place_of_damage() -> None:
    """T12, V9: of another size, other offsets, another epoch, or damaged themselves: refused."""
    # Shows storage.B4.
    source, disk, clean = two_nodes()
    log = reopened(disk, clean)
    segment = log.segments[1]
    batch = data_batch(log, segment)
    disk.flip(segment.path, batch.position + 90)
    segment.release()
    readable(log)
    (damage,) = damages(log)
    epochs = epochs_around(segment, damage)
    data = bytes(source.read_entries(LogOffset(damage.log_offset), damage.size)[0].data)
    assert check_replacement("t-0", damage, memoryview(data), epochs) == 1
    other = bytes(source.read_entries(LogOffset(damage.next_log), damage.size)[0].data)
    for each in (*wrong(data), other):
        with pytest.raises(RequestError):
            check_replacement("t-0", damage, memoryview(each), epochs)
    for bad in ((epochs[0] + 9, epochs[1] + 9), (-1, 0)):
        with pytest.raises(RequestError, match="another batch"):
            check_replacement("t-0", damage, memoryview(data), bad)


def test_a_repair_without_room_leaves_everything_as_it_was() -> None:
    """T12, K8: it is tried again when there is room."""
    # Shows storage.B5.
    source, disk, clean = two_nodes()
    log = reopened(disk, clean)
    segment = log.segments[1]
    intact = disk.read(segment.path)
    disk.flip(segment.path, data_batch(log, segment).position + 70)
    segment.release()
    readable(log)
    disk.capacity = 10
    with pytest.raises(DiskFull):
        mend(log, source)
    assert damages(log)
    disk.capacity = None
    mend(log, source)
    assert disk.read(segment.path) == intact


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_damage_in_a_log_of_the_nodes_own_is_reported_when_it_is_replayed(share: float) -> None:
    """T12: metadata and groups are read whole at the start; nothing of it is passed by."""
    disk = data_disk()
    log = replica(disk, HEAD, CONFIG)
    for number in range(60):
        log.append_records(GROUP, [Record(None, b"%d" % number)], epoch=E1, now_ms=NOW_MS)
    clean = log.close()
    assert clean is not None
    log = replica(disk, HEAD, CONFIG, RecoveryPoint(clean.log_end, clean, is_current=True))
    path = log.segments[1].path
    disk.flip(path, int(disk.size(path) * share))
    applied: list[bytes] = []
    with pytest.raises(CorruptLog, match=path):
        StateLog(LogStorage(log), GROUP, ManualClock()).replay(applied.append)
    assert applied == [b"%d" % number for number in range(len(applied))]
    assert damages(log)
