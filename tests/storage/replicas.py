"""Logs of several nodes, one fed with the entries of another, for the tests of this room."""

from uuid import UUID

from quipu.model.batch_types import CONFIGURATION, GROUP, BatchType
from quipu.model.ids import Epoch, NodeId, Offset
from quipu.runtime.disks.disk import Disk
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.log_directory import NO_RECOVERY_POINT, LogDirectory, RecoveryPoint
from quipu.wire.record_batch import Record
from tests.storage.builders import DIRECTORY, NOW_MS, SMALL, TOPIC_ID, append

UNKNOWN = BatchType(200)
E1, E2 = Epoch(1), Epoch(2)
HEAD, TAIL = NodeId(1), NodeId(2)
ALL = 1 << 30


def replica(
    disk: Disk,
    node_id: NodeId,
    config: LogConfig = SMALL,
    recovery: RecoveryPoint = NO_RECOVERY_POINT,
    *,
    topic_id: UUID = TOPIC_ID,
    directory: str = DIRECTORY,
) -> Log:
    place = LogDirectory(
        disk=disk, path=directory, name="t-0", topic_id=topic_id, node_id=node_id)
    return Log(place, config, recovery=recovery, replica=True, now_ms=NOW_MS)


def internal(log: Log, batch_type: BatchType, count: int = 1, epoch: Epoch = E1) -> None:
    log.append_records(batch_type, [Record(None, b"i")] * count, epoch=epoch, now_ms=NOW_MS)


def mixed(disk: Disk, config: LogConfig = SMALL) -> Log:
    """A log of every kind of batch, with producers and three epochs, in several segments."""
    log = replica(disk, HEAD, config)
    internal(log, CONFIGURATION)
    for number in range(30):
        append(log, [b"%d" % number, b"x" * 30], producer=(7 + number % 2, 0, number // 2 * 2),
               epoch=1 + number // 20)
        if number % 7 == 3:
            internal(log, UNKNOWN, 2, Epoch(1 + number // 20))
        if number == 19:
            internal(log, CONFIGURATION, epoch=E2)
    internal(log, GROUP, epoch=E2)
    internal(log, GROUP, 3, epoch=E2)
    log.delete_records(Offset(7), NOW_MS)
    append(log, [b"last"], epoch=2)
    return log


def feed(source: Log, target: Log, max_bytes: int = ALL) -> int:
    """Copy what `target` lacks; gives the number of entries."""
    count = 0
    while target.log_end < source.log_end:
        for entry in source.read_entries(target.log_end, max_bytes):
            target.append_entry(entry.data, NOW_MS)
            count += 1
    return count
