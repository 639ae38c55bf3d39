"""What a node remembers of its logs, for those who look from outside.

A node that was told "log offsets up to 27 are durable" refuses a log that ends at 20.  So `show`
and `repair` must know the mark, and `repair` must lower it: otherwise a log that an operator has
cut would stay refused.  The memory itself is `node_log.py`; reading it here changes nothing, not
even the torn tail that a crash may have left in it.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from quipu.model.batch_types import NODE
from quipu.model.errors import CorruptLog, MalformedBytes
from quipu.runtime.clock import Clock
from quipu.runtime.disk import Disk
from quipu.storage.inspect.files import NoLog, find_logs
from quipu.storage.inspect.walk import Batch, walk
from quipu.storage.log import Log
from quipu.storage.node_log import NODE_LOG_CONFIG, NODE_LOG_NAME, NodeLog, Remembered
from quipu.storage.place import Memory, Place
from quipu.wire.record_batch import Record, decode_records
from quipu.wire.stored_batch import PREFIX_SIZE

BATCH_SIZE_MAX: Final = 256 << 20  # decoded
_LOG_PREFIX: Final = b"log:"
_FLUSHED: Final = Struct(">16xq")  # behind the topic id


def flushed_marks(disk: Disk, data_directory: str) -> dict[str, int]:
    """Up to which log offset each log was durable, by its name; empty if nothing is remembered."""
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
    """The log that a record of the node's memory is about, if it is about one."""
    if record.key is None or not record.key.startswith(_LOG_PREFIX):
        return None
    return record.key.removeprefix(_LOG_PREFIX).decode(errors="replace")


def flushed_mark(record: Record) -> int | None:
    """The mark that it sets; None if the log was forgotten."""
    if record.value is None or len(record.value) != _FLUSHED.size:
        return None
    return int(_FLUSHED.unpack(record.value)[0])


def _records(disk: Disk, directory: str) -> Iterator[Record]:
    """All that can be read: what is damaged is no worse than what was never remembered."""
    try:
        (log,) = find_logs(disk, directory)
    except NoLog:
        return
    for segment in log.segments:
        data = disk.map(segment.path)
        for item in walk(data):
            if (isinstance(item, Batch) and item.fault is None
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
    log = Log(Place(disk=disk, directory=directory, name=NODE_LOG_NAME), NODE_LOG_CONFIG,
              now_ms=clock.now_ms())
    try:
        if log.failure is not None:
            return
        memory = NodeLog(log, clock)
        known = memory.logs.get(name)
        if known is None:
            return
        was_stopped = memory.was_stopped
        lowered = Remembered(known.topic_id, Memory(min(known.memory.flushed, log_end)))
        memory.remember({name: lowered}, durable=True)
        if was_stopped:
            memory.stopped()  # still true of the other logs
    except (CorruptLog, MalformedBytes):
        return
    finally:
        log.close()
