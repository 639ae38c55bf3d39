"""What is written down of a log: byte for byte, and as earlier versions wrote it."""

from struct import pack
from uuid import UUID

import pytest

from quipu.model.batch_types import NODE
from quipu.model.errors import MalformedBytes
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.derived.checkpoint import (
    Checkpoint,
    DerivedState,
    decode_checkpoint,
    encode_checkpoint,
)
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.node_log import NODE_LOG_CONFIG, NODE_LOG_NAME
from quipu.storage.log import Log
from quipu.storage.log_directory import LogDirectory
from quipu.storage.phases import LogPhase
from quipu.wire.record_batch import Record, encode_batch
from tests.storage.builders import NOW_MS, append, read_all

ID = UUID(int=1)
CONFIG = LogConfig()


def open_directory(disk: SimDisk) -> DataDirectory:
    return DataDirectory.open(disk, "data", ManualClock(NOW_MS), node_id=NodeId(4))


def stored(records: list[Record]) -> memoryview:
    return memoryview(bytes(16) + encode_batch(records))


def test_the_records_of_a_checkpoint_byte_by_byte() -> None:
    """T8: as docs/internals/log-directory.md has them."""
    state = DerivedState(Offset(3))
    state.epochs.note(2, 3, 7)
    checkpoint = Checkpoint("t-0", ID, LogOffset(9), state, NodeId(4))
    log, starts, producers = encode_checkpoint(checkpoint, NOW_MS)
    assert (log.key, log.value) == (b"log", ID.bytes + pack(">qq", 3, 9) + b"t-0")
    assert log.headers == (("writer", bytes([0, 0, 0, 4])),)
    assert (starts.key, starts.value) == (b"starts", pack(">iqq", 2, 3, 7))
    assert (producers.key, producers.value) == (b"producers", b"")
    found = decode_checkpoint(stored([log, starts, producers]))
    assert found[:3] == checkpoint[:3]
    assert found.state.epochs.entries() == state.epochs.entries()
    assert found.is_of(NodeId(4))
    assert not found.is_of(NodeId(5))
    with pytest.raises(MalformedBytes):
        decode_checkpoint(stored([log._replace(headers=(("writer", b"?"),)), starts]))


def test_a_checkpoint_of_a_single_node_of_before_is_read() -> None:
    """T8: it has epochs without log offsets, and no writer: the node that has it wrote it."""
    found = decode_checkpoint(stored([
        Record(b"log", ID.bytes + pack(">qq", 3, 9) + b"t-0", timestamp=1),
        Record(b"epochs", pack(">iq", 0, 3), timestamp=1),
        Record(b"producers", b"", timestamp=1)]))
    assert found.state.epochs.entries() == [(0, 3, 0)]
    assert found.writer is None
    assert found.is_of(NodeId(4))


def test_a_clean_stop_of_before_is_read() -> None:
    """T12: the directory of a single node opens without a scan."""
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=ID)
    append(log, [b"a"], epoch=0)
    directory.close()
    directory = LogDirectory(disk=disk, path=f"data/{NODE_LOG_NAME}", name=NODE_LOG_NAME)
    node_log = Log(directory, NODE_LOG_CONFIG, now_ms=NOW_MS)
    disk.rename(log.directory.path, "data/t-0")
    clean = (0, disk.size(f"data/t-0/{0:020d}.log"), 0, 1, 4, 0, NOW_MS)
    node_log.append_records(NODE, [
        Record(b"log:t-0", ID.bytes + pack(">q", 4), (
            ("clean", pack(">7q", *clean)), ("epochs", pack(">iq", 0, 0)), ("producers", b""))),
        Record(b"stopped", b"")], epoch=Epoch(0), now_ms=NOW_MS)
    node_log.close()
    disk.bytes_read.clear()
    log = open_directory(disk).open_log("t-0", CONFIG, topic_id=ID)
    assert log.end_offset == 1
    assert log.epochs.by_log_offset() == [(0, 0)]
    assert log.committed_log == 0
    assert disk.bytes_read[f"data/t-0/{0:020d}.log"] == 0
    assert read_all(log) == [(0, b"a")]


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_the_committed_mark_is_remembered(stop: str) -> None:
    """V14: nothing below it may ever be cut, after a restart too."""
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=ID, replica=True)
    append(log, [b"a"], epoch=1)
    append(log, [b"b"], epoch=1)
    log.flusher.flush_now()
    log.note_committed(LogOffset(4))
    directory.remember()
    directory.close() if stop == "clean" else directory.abandon()
    log = open_directory(disk).open_log("t-0", CONFIG, topic_id=ID, replica=True)
    assert log.committed_log == 4
    assert log.log_end == 5


def test_a_committed_mark_never_passes_what_is_durable_here() -> None:
    """V14: what was committed by others' copies is not promised by this one."""
    # Shows storage.N3.
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=ID, replica=True)
    append(log, [b"a"], epoch=1)
    log.flusher.flush_now()
    append(log, [b"b"], epoch=1)
    log.note_committed(LogOffset(5))
    directory.remember()
    directory.abandon()
    assert open_directory(disk).open_log(
        "t-0", CONFIG, topic_id=ID, replica=True).committed_log == 4


def test_a_cut_takes_the_marks_with_it() -> None:
    """V14, T12: durably, before a byte is cut."""
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=ID, replica=True)
    for _ in range(3):
        append(log, [b"a"], epoch=1)
    log.flusher.flush_now()
    log.note_committed(LogOffset(5))
    directory.remember()
    log.truncate(LogOffset(4), NOW_MS)
    directory.abandon()
    log = open_directory(disk).open_log("t-0", CONFIG, topic_id=ID, replica=True)
    assert (log.committed_log, log.log_end) == (4, 4)


def test_a_blank_replica_stays_blank_over_restarts() -> None:
    """V16: and is not taken for one that lost its files."""
    disk = SimDisk()
    directory = open_directory(disk)
    assert directory.open_log("t-0", CONFIG, topic_id=ID, replica=True).phase is LogPhase.EMPTY
    directory.close()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=ID, replica=True)
    assert log.phase is LogPhase.EMPTY
    assert log.failure is None
    append(log, [b"a"], epoch=1)
    assert [batch.header.leader_epoch for batch in log.read_stored()] == [1, 1]
