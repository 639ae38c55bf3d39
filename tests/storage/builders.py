"""Logs and batches for the tests of this room."""

from collections.abc import Sequence
from uuid import UUID

from quipu.model.ids import Epoch, Offset
from quipu.model.partition_log import TimestampAndOffset
from quipu.runtime.disks.disk import Disk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.log import AppendedBatch, Log
from quipu.storage.log_directory import NO_RECOVERY_POINT, LogDirectory, RecoveryPoint
from quipu.storage.segments import timestamps
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
DIRECTORY = "data/t-0"
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


def records(values: Sequence[bytes], timestamp: int = NOW_MS) -> list[Record]:
    return [Record(None, value, timestamp=timestamp) for value in values]


def data_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory("data")
    disk.sync_directory("data")
    return disk


class Freeing(SimDisk):
    """A disk with the files of another that has room again when a file is removed."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__()
        self.__dict__.update(disk.__dict__)
        self.locked = set()

    def remove(self, path: str) -> None:
        size = self.size(path)
        super().remove(path)
        if self.capacity is not None:
            self.capacity += size


def open_log(
    disk: Disk,
    config: LogConfig = SMALL,
    recovery: RecoveryPoint = NO_RECOVERY_POINT,
    *,
    now_ms: int = NOW_MS,
    directory: str = DIRECTORY,
) -> Log:
    place = LogDirectory(disk=disk, path=directory, name="t-0", topic_id=TOPIC_ID)
    return Log(place, config, recovery=recovery, now_ms=now_ms)


def append(
    log: Log,
    values: Sequence[bytes],
    *,
    now_ms: int = NOW_MS,
    timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    epoch: int = 0,
    compression: int = 0,
) -> AppendedBatch:
    """Append one data batch of `values`."""
    batch = memoryview(encode_batch(
        records(values, now_ms if timestamp is None else timestamp), compression=compression,
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]))
    return log.append(batch, parse_header(batch), epoch=Epoch(epoch), now_ms=now_ms)


def split(buffers: Sequence[memoryview]) -> list[memoryview]:
    """The batches in what a read gave."""
    batches = []
    for buffer in buffers:
        position = 0
        while position < len(buffer):
            size = parse_header(buffer, position).size
            batches.append(buffer[position : position + size])
            position += size
    return batches


def read_all(log: Log, *, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    """(offset, value) of every record that a client sees, read from the start to the end."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        batches = split(log.read(offset, max_bytes, end=log.end_offset, min_one=True))
        assert batches, f"nothing to read at {offset} of {log.end_offset}"
        for batch in batches:
            for record in decode_records(batch, size_max=1 << 24):
                if record.offset >= offset:
                    assert record.value is not None
                    found.append((record.offset, record.value))
            offset = Offset(parse_header(batch).last_offset + 1)
    return found


def segment_names(disk: Disk, suffix: str = ".log", directory: str = DIRECTORY) -> list[str]:
    names = disk.list(directory) if disk.exists(directory) else []
    return [f"{directory}/{name}" for name in names if name.endswith(suffix)]


def find_timestamp(log: Log, timestamp_ms: int) -> TimestampAndOffset | None:
    """The first record that is as new as `timestamp_ms`, searched for in one go."""
    return timestamps.run(log.search_timestamp(timestamp_ms))


def newest_record(log: Log) -> TimestampAndOffset | None:
    """The first of the newest records, searched for in one go."""
    return timestamps.run(log.search_newest())
