"""The flushed marks that a node recorded of its logs, read and lowered without the node.

A node that has recorded "log offsets up to 27 are durable" refuses a log that ends at 20.  So
`show` and `repair` must know the mark, and `repair` must lower it: otherwise a log that an operator
has cut would stay refused.  The node keeps them in `directory/node_log.py`; reading them changes
nothing, not even the torn tail that a crash may have left.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from quipu.model.batch_types import NODE
from quipu.model.errors import CorruptLog, MalformedBytes
from quipu.runtime.clock import Clock
from quipu.runtime.disks.disk import Disk
from quipu.storage.directory.node_log import NODE_LOG_CONFIG, NODE_LOG_NAME, KnownLog, NodeLog
from quipu.storage.inspect.files import NoLog, find_logs
from quipu.storage.inspect.walk import WalkedBatch, walk
from quipu.storage.log import Log
from quipu.storage.log_directory import LogDirectory, RecoveryPoint
from quipu.wire.record_batch import Record, decode_records
from quipu.wire.stored_batch import PREFIX_SIZE

BATCH_SIZE_MAX: Final = 256 << 20  # decoded
_LOG_PREFIX: Final = b"log:"
_FLUSHED: Final = Struct(">16xq")  # behind the topic id


def flushed_marks(disk: Disk, data_directory: str) -> dict[str, int]:
    """Up to which log offset each log was durable, by its name; empty if nothing is recorded."""
    marks: dict[str, int] = {}
    for record in _records(disk, f"{data_directory}/{NODE_LOG_NAME}"):
        name = log_name(record)
        if name is None:
            continue
        flushed = flushed_mark(record)
        if flushed is None:
            marks.pop(name, None)
        else:
            marks[name] = flushed
    return marks


def log_name(record: Record) -> str | None:
    """The log that a record of the node log is about, if it is about one."""
    if record.key is None or not record.key.startswith(_LOG_PREFIX):
        return None
    return record.key.removeprefix(_LOG_PREFIX).decode(errors="replace")


def flushed_mark(record: Record) -> int | None:
    """The mark that it sets; None if the log was forgotten."""
    if record.value is None or len(record.value) != _FLUSHED.size:
        return None
    return int(_FLUSHED.unpack(record.value)[0])


def _records(disk: Disk, directory: str) -> Iterator[Record]:
    """All records that can be read: damaged ones are as if they had never been written."""
    try:
        (log,) = find_logs(disk, directory)
    except NoLog:
        return
    for segment in log.segments:
        data = disk.map(segment.path)
        for item in walk(data):
            if (isinstance(item, WalkedBatch) and item.fault is None
                    and item.header.batch_type == NODE):
                batch = data[item.position + PREFIX_SIZE : item.end]
                try:
                    yield from decode_records(batch, size_max=BATCH_SIZE_MAX)
                except MalformedBytes:
                    continue


def lower_mark(disk: Disk, clock: Clock, data_directory: str, name: str, log_end: int) -> None:
    """Let the node expect no more of a log than what lies below `log_end`; durable on return.

    Does nothing where nothing is remembered, or where the memory is damaged: a node begins
    that one anew, and then expects nothing.  The directory's lock must be held.
    """
    directory = f"{data_directory}/{NODE_LOG_NAME}"
    if not disk.exists(directory):
        return
    log = Log(LogDirectory(disk=disk, path=directory, name=NODE_LOG_NAME), NODE_LOG_CONFIG,
              now_ms=clock.now_ms())
    try:
        if log.failure is not None:
            return
        recovery = NodeLog(log, clock)
        known = recovery.logs.get(name)
        if known is None:
            return
        was_stopped = recovery.was_stopped
        lowered = KnownLog(known.topic_id, RecoveryPoint(min(known.recovery.flushed_log, log_end)))
        recovery.remember({name: lowered}, durable=True)
        if was_stopped:
            recovery.stopped()  # still true of the other logs
    except (CorruptLog, MalformedBytes):
        return
    finally:
        log.close()
