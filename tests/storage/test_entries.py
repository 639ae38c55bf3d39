"""Entries: what one log reads for another, and how that one takes it in."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, DATA, LOG_START, BatchType
from quipu.model.errors import Code, CorruptLog, RequestError
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset
from quipu.runtime.disks.disk import Buffer, DiskFull, RealDisk
from quipu.runtime.disks.sim_disk import SimDisk, SimFile
from quipu.runtime.rng import SeededRng
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.derived.checkpoint import Checkpoint, DerivedState, encode_checkpoint
from quipu.storage.derived.producers import ProducerBatch
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.storage.phases import LogPhase
from quipu.wire.record_batch import Record, encode_batch, parse_header
from quipu.wire.stored_batch import pack_prefix
from tests.harness.lies import lying_batches
from tests.storage.builders import (
    DIRECTORY,
    NOW_MS,
    TOPIC_ID,
    append,
    data_disk,
    find_timestamp,
    newest_record,
    read_all,
    segment_names,
    split,
)
from tests.storage.replicas import ALL, E1, HEAD, TAIL, UNKNOWN, feed, internal, mixed, replica

# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [1, 200, 500, 2000, ALL])
def test_every_entry_is_of_one_type_and_a_checkpoint_is_alone(max_bytes: int) -> None:
    """T6: whatever the limit, all batches come, in order, whole."""
    log = mixed(data_disk())
    stored = [bytes(batch.data) for batch in log.read_stored()]
    types = [batch.header.batch_type for batch in log.read_stored()]
    found: list[bytes] = []
    at = LogOffset(0)
    while at < log.log_end:
        entries = log.read_entries(at, max_bytes)
        assert sum(len(entry.data) for entry in entries) <= max_bytes or len(entries) == 1
        for entry in entries:
            position, count = 0, len(found)
            while position < len(entry.data):
                assert types[len(found)] == entry.batch_type
                found.append(bytes(entry.data[position : position + len(stored[len(found)])]))
                position += len(found[-1])
            assert entry.batch_type != CHECKPOINT or len(found) == count + 1
        at = entries[-1].next_log
    assert found == stored
    assert log.read_entries(log.log_end, max_bytes) == []


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=40),
       segment_bytes=st.integers(300, 4000), limits=st.lists(st.integers(0, 3000), min_size=1),
       read_between=st.integers(1, 5))
def test_whatever_the_limit_the_next_batch_is_read_when_it_is_there(
    sizes: list[int], segment_bytes: int, limits: list[int], read_between: int
) -> None:
    """V9: for all limits, batch sizes and ends of segments: what was read before, and how far the
    file was mapped then, is no reason to find damage or nothing where a batch begins.
    """
    log = replica(data_disk(), HEAD, LogConfig(segment_bytes=max(segment_bytes, 1000),
                                               index_interval_bytes=100))
    found: list[bytes] = []
    at, offset, turn = LogOffset(0), Offset(0), 0
    for number, size in enumerate(sizes):
        append(log, [b"x" * size], epoch=1)
        if number % read_between:
            continue
        if turn % 3 == 0 and log._state.active is not None and log._state.active.file is not None:
            log._state.active._view = log._state.active.file.map()  # as a long read would leave it
        while at < log.log_end:
            limit, turn = limits[turn % len(limits)], turn + 1
            entries = log.read_entries(at, limit)
            assert entries, (at, limit)
            assert sum(len(each.data) for each in entries) <= limit or len(entries) == 1
            found += [bytes(each.data) for each in entries]
            at = entries[-1].next_log
            if offset < log.end_offset:
                buffers = log.read(offset, limit, end=log.end_offset, min_one=True)
                assert buffers, (offset, limit)
                offset = Offset(parse_header(split(buffers)[-1]).last_offset + 1)
    stored = b"".join(bytes(batch.data) for batch in log.read_stored() if
                      batch.header.log_offset < at)
    assert b"".join(found) == stored


def test_runs_of_data_are_one_entry_per_segment() -> None:
    """V9: reading and appending cost per entry, not per batch."""
    source = replica(data_disk(), HEAD, LogConfig())
    for number in range(500):
        append(source, [b"x"], producer=(number % 20, 0, number // 20), epoch=1)
    entries = source.read_entries(LogOffset(0), ALL)
    assert [entry.batch_type for entry in entries] == [CHECKPOINT, DATA]
    assert (entries[1].next_log, entries[1].next_offset) == (503, 500)


def test_entries_are_slices_of_the_mapped_file(tmp_path: Path) -> None:
    """V9: no copy is made of what lies in a complete segment."""
    (tmp_path / "data").mkdir()
    disk = RealDisk()
    log = replica(disk, HEAD, directory=str(tmp_path / "data" / "t-0"))
    for _ in range(30):
        append(log, [b"x" * 100], epoch=1)
    log.flusher.flush_now()
    first, second = log.read_entries(LogOffset(0), 600)[:2]
    assert first.data.obj is second.data.obj
    assert first.data.readonly
    log.close()


def test_a_place_that_is_no_beginning_of_a_batch_is_refused() -> None:
    """V11: nor is one that retention has dropped, or that does not exist yet."""
    log = replica(data_disk(), HEAD)
    append(log, [b"a", b"b"], epoch=1)
    for log_offset in (1, 4, 6, 99):
        with pytest.raises(RequestError) as caught:
            log.read_entries(LogOffset(log_offset), ALL)
        assert caught.value.code is Code.OFFSET_OUT_OF_RANGE
    log.roll(NOW_MS)
    log.drop_segments_before(log.log_end)
    with pytest.raises(RequestError, match="no longer kept"):
        log.read_entries(LogOffset(3), ALL)


@pytest.mark.parametrize("position", [8, 90])
def test_damage_is_reported_and_never_sent(position: int) -> None:
    """T12: what a disk has changed stays on that node."""
    # Shows storage.T3.
    disk = data_disk()
    log = replica(disk, HEAD)
    for _ in range(20):
        append(log, [b"x" * 60], epoch=1)
    second, path = next(log.read_stored(LogOffset(4))), log.segments[0].path
    clean = log.close()
    assert clean is not None
    disk.flip(path, second.position + position)
    log = replica(disk, HEAD, recovery=RecoveryPoint(clean.log_end, clean, is_current=True))
    assert [entry.next_log for entry in log.read_entries(LogOffset(3), ALL)] == [4]
    with pytest.raises(CorruptLog):
        log.read_entries(LogOffset(4), ALL)
    assert log.read_entries(LogOffset(5), ALL)[-1].next_log == log.log_end


# --- appending ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flush_messages", [1, NEVER])
@pytest.mark.parametrize("max_bytes", [1, 700, ALL])
def test_a_replica_is_the_same_byte_for_byte(max_bytes: int, flush_messages: int) -> None:
    """T6, T7, T11: every file of it, indexes too, and the state behind it."""
    config = LogConfig(segment_bytes=700, index_interval_bytes=100, flush_messages=flush_messages)
    source_disk, target_disk = data_disk(), data_disk()
    source, target = mixed(source_disk, config), replica(target_disk, TAIL, config)
    feed(source, target, max_bytes)
    for log in (source, target):
        log.flusher.flush_now()
    for suffix in (".log", ".index"):
        names = segment_names(source_disk, suffix)
        assert segment_names(target_disk, suffix) == names
        assert len(names) > 3
        for name in names:
            assert target_disk.read(name) == source_disk.read(name)
    assert read_all(target) == read_all(source)
    assert target.log_start_offset == source.log_start_offset == 7
    epochs = source.epochs.by_log_offset()
    assert target.epochs.by_log_offset() == epochs == [(1, 0), (2, epochs[1][1])]
    assert target.epoch_end(E1) == source.epoch_end(E1) == (1, 40)
    for producer_id in (7, 8):
        assert target.producers.seen(producer_id) == source.producers.seen(producer_id)


def test_an_entry_is_written_with_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """V9: whatever it holds."""
    # Shows storage.T2.
    source, target = mixed(data_disk(), LogConfig()), replica(data_disk(), TAIL, LogConfig())
    counts: list[int] = []
    original = SimFile.append

    def counted(self: SimFile, buffers: Sequence[Buffer], size: int) -> None:
        counts.append(size)
        original(self, buffers, size)

    monkeypatch.setattr(SimFile, "append", counted)
    entries = source.read_entries(LogOffset(0), ALL)
    for entry in entries:
        target.append_entry(entry.data, NOW_MS)
    assert counts == [len(entry.data) for entry in entries]


def test_data_that_is_not_plain_is_taken_in_one_by_one() -> None:
    """T6, K3: a producer's epoch changes, a leader's too, within one entry."""
    source, target = replica(data_disk(), HEAD, LogConfig()), replica(data_disk(), TAIL)
    append(source, [b"a"], producer=(5, 0, 0), epoch=1)
    append(source, [b"b"], producer=(5, 1, 0), epoch=1)
    append(source, [b"c"], producer=(5, 1, 1), epoch=2)
    append(source, [b"d"], epoch=2)
    entries = source.read_entries(LogOffset(0), ALL)
    assert len(entries) == 2
    for entry in entries:
        target.append_entry(entry.data, NOW_MS)
    assert read_all(target) == read_all(source)
    assert target.producers.seen(5) == (ProducerBatch(0, 0, 1), ProducerBatch(1, 1, 2))
    assert target.epochs.by_log_offset() == [(1, 0), (2, 5)]


def entry_of(log: Log, batch_type: BatchType, value: bytes, *, key: bytes = b"k",
             epoch: int = 1) -> memoryview:
    """A stored batch that comes next in `log`, sound in itself."""
    batch = encode_batch([Record(key, value, timestamp=NOW_MS)], base_offset=log.end_offset,
                         leader_epoch=epoch)
    return memoryview(pack_prefix(batch, batch_type=batch_type, log_offset=log.log_end) + batch)


def test_what_this_node_must_understand_is_checked_before_it_is_written() -> None:
    """T6: a log start that is none, an epoch that is over, a checkpoint that is none."""
    source, target = mixed(data_disk()), replica(data_disk(), TAIL)
    feed(source, target)
    before = target.size_bytes
    for entry, code in (
        (entry_of(target, LOG_START, b"??", key=b"log_start", epoch=2), Code.CORRUPT_MESSAGE),
        (entry_of(target, LOG_START, bytes([127]) * 8, key=b"log_start", epoch=2),
         Code.INVALID_RECORD),
        (entry_of(target, DATA, b"late", epoch=1), Code.FENCED_LEADER_EPOCH),
        (entry_of(target, UNKNOWN, b"late", epoch=1), Code.FENCED_LEADER_EPOCH),
        (entry_of(target, CHECKPOINT, b"?", epoch=2), Code.CORRUPT_MESSAGE),
        (memoryview(b""), Code.CORRUPT_MESSAGE),
        (memoryview(bytes(200)), Code.CORRUPT_MESSAGE),
    ):
        with pytest.raises(RequestError) as caught:
            target.append_entry(entry, NOW_MS)
        assert caught.value.code is code
    assert target.size_bytes == before
    assert target.failure is None


def test_a_batch_of_an_epoch_that_has_not_begun_is_refused() -> None:
    """K8, V15: it would shut out every epoch that does begin; nothing of it is written."""
    source, target = replica(data_disk(), HEAD, LogConfig()), replica(data_disk(), TAIL)
    append(source, [b"a"], epoch=3)
    append(source, [b"b"], epoch=4)
    first, data = source.read_entries(LogOffset(0), ALL)
    target.append_entry(first.data, NOW_MS, epoch_max=4)
    before, end = target.size_bytes, target.log_end
    for entry in (data.data, entry_of(target, DATA, b"x", epoch=(1 << 31) - 1),
                  entry_of(target, CONFIGURATION, b"x", epoch=4)):
        with pytest.raises(RequestError, match=r"batch of leader epoch \d+ in epoch 3") as caught:
            target.append_entry(entry, NOW_MS, epoch_max=3)
        assert caught.value.code is Code.INVALID_RECORD
    assert (target.size_bytes, target.log_end, target.failure) == (before, end, None)
    target.append_entry(data.data, NOW_MS, epoch_max=4)
    assert target.leader_epoch == 4


def test_a_checkpoint_of_an_epoch_that_has_not_begun_is_refused() -> None:
    """K8, V15: neither as the next entry nor as a new beginning."""
    source, target = replica(data_disk(), HEAD, LogConfig()), replica(data_disk(), TAIL)
    append(source, [b"a"], epoch=4)
    source.roll(NOW_MS)
    checkpoint = source.read_entries(LogOffset(0), ALL)[-1]
    assert checkpoint.batch_type == CHECKPOINT
    for entry in source.read_entries(LogOffset(0), ALL)[:-1]:
        target.append_entry(entry.data, NOW_MS)
    before = target.size_bytes
    restart = partial(target.restart, log_start=LogOffset(0))  # whatever it is
    for take in (target.append_entry, restart):
        with pytest.raises(RequestError, match="batch of leader epoch 4 in epoch 3"):
            take(checkpoint.data, NOW_MS, epoch_max=3)
    assert target.size_bytes == before
    target.append_entry(checkpoint.data, NOW_MS, epoch_max=4)


@pytest.mark.parametrize(("offset", "log_offset"), [(0, 1), (1, 1), (1, 0)])
def test_a_checkpoint_with_an_epoch_that_begins_after_it_is_refused(
    offset: int, log_offset: int
) -> None:
    """V15, storage.E1: the next epoch would begin before it."""
    target = replica(data_disk(), TAIL)
    derived = DerivedState()
    derived.epochs.note(3, offset, log_offset)
    batch = encode_batch(
        encode_checkpoint(Checkpoint("t-0", TOPIC_ID, LogOffset(0), derived, HEAD), NOW_MS),
        leader_epoch=3)
    stored = memoryview(pack_prefix(batch, batch_type=CHECKPOINT, log_offset=0) + batch)
    restart = partial(target.restart, log_start=LogOffset(0))  # whatever it is
    for take in (target.append_entry, restart):
        with pytest.raises(RequestError, match="begins after it") as caught:
            take(stored, NOW_MS)
        assert caught.value.code is Code.INVALID_RECORD
    assert target.phase is LogPhase.EMPTY


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    """V15: its sender takes this log for another one."""
    source = mixed(data_disk())
    target = replica(data_disk(), TAIL, topic_id=UUID(int=99))
    (first,) = source.read_entries(LogOffset(0), 1)
    restart = partial(target.restart, log_start=LogOffset(0))  # whatever it is
    for take in (target.append_entry, restart):
        with pytest.raises(RequestError) as caught:
            take(first.data, NOW_MS)
        assert caught.value.code is Code.INCONSISTENT_TOPIC_ID
    assert target.phase is LogPhase.EMPTY


def test_a_reign_that_never_began_does_not_stand_in_the_way() -> None:
    """V14: a node that was to lead and could not write goes on as a replica of older epochs."""
    source, target_disk = mixed(data_disk()), data_disk()
    target = replica(target_disk, TAIL)
    for entry in source.read_entries(LogOffset(0), 300):
        target.append_entry(entry.data, NOW_MS)
    target_disk.capacity = 0
    with pytest.raises(DiskFull):
        internal(target, CONFIGURATION, epoch=Epoch(9))
    target_disk.capacity = None
    feed(source, target)
    assert target.epochs.by_log_offset() == source.epochs.by_log_offset()
    assert target.leader_epoch == 2


# --- beginning ----------------------------------------------------------------------------------


def test_a_replica_is_blank_until_it_receives_its_first_checkpoint() -> None:
    """V16: an empty disk is a state like any other."""
    disk = data_disk()
    log = replica(disk, TAIL)
    assert log.phase is LogPhase.EMPTY
    assert not disk.exists(DIRECTORY)
    assert (log.first_log, log.log_end, log.end_offset, log.size_bytes) == (0, 0, 0, 0)
    assert read_all(log) == []
    assert log.read_entries(LogOffset(0), ALL) == []
    assert list(log.read_stored()) == []
    assert find_timestamp(log, 0) is None
    assert newest_record(log) is None
    assert log.epochs.by_log_offset() == []
    assert log.offset_at(LogOffset(0)) == 0
    assert log.truncate(LogOffset(0), NOW_MS) is None
    assert log.apply_retention(NOW_MS) == 0
    log.flusher.flush_now()
    with pytest.raises(RequestError, match="checkpoint first"):
        log.append_entry(entry_of(log, DATA, b"x"), NOW_MS)
    assert log.close() is None


def test_the_leader_of_a_blank_log_begins_it_with_its_epoch() -> None:
    """V14: so that the same epoch at the same log offset is the same batch, from the first on."""
    log = replica(data_disk(), HEAD)
    internal(log, CONFIGURATION, epoch=Epoch(4))
    assert log.epochs.by_log_offset() == [(4, 0)]
    assert [stored.header.leader_epoch for stored in log.read_stored()] == [4, 4]


# --- what is believed after a crash ---------------------------------------------------------------


def two_segments(node_ids: tuple[NodeId, NodeId], mark: int) -> tuple[SimDisk, Log]:
    """A replica whose last checkpoint says that all before it was durable, on another node."""
    source = replica(data_disk(), node_ids[0], LogConfig())
    disk = data_disk()
    disk.is_deferred = True  # and so nothing of it is durable here
    target = replica(disk, node_ids[1], LogConfig())
    for _ in range(10):
        append(source, [b"x" * 50], epoch=1)
    source.flusher.flush_now()
    assert source.flusher.flushed_log >= mark
    source.roll(NOW_MS)
    feed(source, target)
    return disk, target


def test_the_flushed_mark_of_another_node_is_not_believed() -> None:
    """T12, V16: a torn tail here is no damage because another node had flushed that far."""
    # Shows storage.C1.
    disk, target = two_segments((HEAD, TAIL), 13)
    assert target.flusher.flushed_log == 0
    first, second = segment_names(disk)
    data = {first: disk.read(first)[:-5], second: disk.read(second)}
    disk.crash(SeededRng(0))
    disk.make_directory(DIRECTORY)
    for path, kept in data.items():
        disk.set_data(path, kept)
    log = replica(disk, TAIL, LogConfig())
    assert log.failure is None
    assert log.log_end == 12


@pytest.mark.parametrize("node_ids", [(TAIL, TAIL), (NodeId(-1), NodeId(-1))])
def test_a_mark_that_passes_for_ours_is_made_true(node_ids: tuple[NodeId, NodeId]) -> None:
    """T12: a checkpoint that this node once wrote comes back to its emptied disk."""
    # Shows storage.R3.
    _, target = two_segments(node_ids, 13)
    assert target.flusher.flushed_log == 13


def test_our_own_mark_is_believed() -> None:
    """T12: without the node log too."""
    disk = data_disk()
    log = replica(disk, HEAD, LogConfig())
    for _ in range(10):
        append(log, [b"x" * 50], epoch=1)
    log.flusher.flush_now()
    log.roll(NOW_MS)
    first = segment_names(disk)[0]
    disk.remove(first.replace(".log", ".index"))
    disk.set_data(first, disk.read(first)[:-5])
    log = replica(disk, HEAD, LogConfig())
    assert isinstance(log.failure, CorruptLog)


@pytest.mark.parametrize("batch_type", [DATA, UNKNOWN])
@pytest.mark.parametrize("name", [
    "two billion records", "more offsets than records", "fewer offsets than records",
    "no records counted"])
@pytest.mark.parametrize("codec", [0, 4])
def test_an_entry_that_counts_what_cannot_be_is_refused(
    name: str, batch_type: BatchType, codec: int
) -> None:
    """T5, V9: it would move the next offset to where no record is, on every node after it."""
    log = replica(data_disk(), TAIL)
    source = replica(data_disk(), HEAD)
    append(source, [b"first"])
    feed(source, log)
    before = log.log_end, log.end_offset, log.size_bytes
    lie = lying_batches(codec)[name]
    lie[:8] = int(log.end_offset).to_bytes(8, "big")
    lie[12:16] = int(log.leader_epoch).to_bytes(4, "big")
    stored = pack_prefix(lie, batch_type=batch_type, log_offset=log.log_end) + bytes(lie)
    with pytest.raises(RequestError) as raised:
        log.append_entry(memoryview(stored), NOW_MS)
    assert raised.value.code == Code.INVALID_RECORD
    assert (log.log_end, log.end_offset, log.size_bytes) == before
    append(source, [b"second"])
    feed(source, log)
    assert [value for _, value in read_all(log)] == [b"first", b"second"]


def test_what_an_older_version_stored_is_not_cut_for_what_it_counts() -> None:
    """T12: recovery trusts checksums; what was acknowledged is never dropped for its content."""
    disk = data_disk()
    log = replica(disk, HEAD)
    append(log, [b"first"])
    lie = memoryview(lying_batches(0)["a million records"])
    log.append(lie, parse_header(lie), epoch=log.leader_epoch, now_ms=NOW_MS)
    append(log, [b"last"])
    log.flusher.flush_now()
    end = log.end_offset
    again = replica(disk, HEAD)
    assert again.failure is None
    assert again.end_offset == end == 1_000_002
