"""Which files make up a log, from any path that an operator names.

    a file             one segment, looked at by itself; also one that was cut off or put aside
    a log directory    its segments in order, `<first log offset, 20 digits>.log`; which log it is
                       says the checkpoint at the start of each of them, for the name of the
                       directory may hold a part of a topic's name only
    DATA/TOPIC-PARTITION   the log directories of that partition, if none has just that name
    a data directory   every log directory in it
"""

import os
import re
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.errors import QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.runtime.disks.disk import Disk
from quipu.storage.compaction.marks import read_mark
from quipu.storage.directory.directory_names import directory_name, is_log, is_marked
from quipu.storage.recovery import first_checkpoint
from quipu.wire.stored_batch import Fault, walk_headers

SEGMENT_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
LOCK_NAME: Final = ".lock"

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_ASIDE_NAME: Final = re.compile(r"\d{20}\.log\.(torn|cut)-\d+|\d{20}\.(torn|cut)-\d+")
_LEADING_OFFSET: Final = re.compile(r"(\d{20})\.")


class NoLog(QuipuError):
    """A path without a log."""


class SegmentFile(NamedTuple):
    """One file of batches."""

    path: str
    first_log_offset: int | None  # by its name; None if the name has none
    index_path: str | None  # None if there is none


class LogFiles(NamedTuple):
    """The files of one log, in order."""

    name: str  # of the log: TOPIC-PARTITION, as its checkpoints say; else as `entry`
    directory: str
    segments: tuple[SegmentFile, ...]
    aside: tuple[str, ...]  # names of files that recovery or repair put aside
    entry: str = ""  # the name of the directory: the key of the log in the node log
    topic_id: UUID = ZERO_UUID


def find_logs(disk: Disk, path: str) -> list[LogFiles]:
    """The logs at `path`, by name; raises `NoLog` if there are none."""
    path = os.path.normpath(path)
    if not disk.exists(path):
        if logs := _called(disk, path):
            return logs
        raise NoLog(f"{path}: no such file or directory")
    if not os.path.isdir(path):
        return [_single_file(disk, path)]
    log = _log_directory(disk, path)
    if log is not None:
        return [log]
    logs = [log for name in disk.list(path)
            if os.path.isdir(os.path.join(path, name))
            and (log := _log_directory(disk, os.path.join(path, name))) is not None]
    if not logs:
        raise NoLog(f"{path}: holds no log; name a .log file, a log directory such as "
                    "DATA/orders-0, or a data directory")
    return logs


def _called(disk: Disk, path: str) -> list[LogFiles]:
    """Logs that are called TOPIC-PARTITION, of DATA/TOPIC-PARTITION, wherever in DATA they lie."""
    parent, name = os.path.split(path)
    if not os.path.isdir(parent or "."):
        return []
    start = directory_name(name, ZERO_UUID).removesuffix(ZERO_UUID.hex)
    found = (_log_directory(disk, os.path.join(parent, entry)) for entry in disk.list(parent or ".")
             if entry.startswith(start) and is_log(entry))
    return [log for log in found if log is not None and log.name == name]


def data_directory_of(log: LogFiles) -> str:
    """The data directory in which a log directory lies."""
    return os.path.dirname(os.path.abspath(log.directory))


def _single_file(disk: Disk, path: str) -> LogFiles:
    name = os.path.basename(path)
    match = _LEADING_OFFSET.match(name)
    index = path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
    has_index = _SEGMENT_NAME.fullmatch(name) is not None and disk.exists(index)
    segment = SegmentFile(path, int(match[1]) if match else None, index if has_index else None)
    return LogFiles(name, os.path.dirname(path) or ".", (segment,), ())


def _without_superseded(disk: Disk, segments: list[SegmentFile]) -> list[SegmentFile]:
    """Leave out segments that lie within a compacted one before them, as recovery does.

    A crash while they were replaced leaves such files behind (storage.KS1).
    """
    bases = [segment.first_log_offset or 0 for segment in segments]
    kept, end = [], 0
    for segment, base in zip(segments, bases, strict=True):
        if base < end and end in bases:
            continue
        kept.append(segment)
        end = 0
        with suppress(QuipuError):  # what is wrong is shown when the segment is looked at
            if read_mark(disk, segment.path).may_have_holes:
                for _, found in walk_headers(disk.map(segment.path)):
                    end = end if isinstance(found, Fault) else found.next_log_offset
    return kept


def _log_directory(disk: Disk, path: str) -> LogFiles | None:
    names = disk.list(path)
    known = frozenset(names)
    segments = []
    for name in names:  # sorted: twenty digits sort like numbers
        match = _SEGMENT_NAME.fullmatch(name)
        if match:
            index = match[1] + INDEX_SUFFIX
            segments.append(SegmentFile(
                os.path.join(path, name), int(match[1]),
                os.path.join(path, index) if index in known else None))
    if not segments:
        return None
    segments = _without_superseded(disk, segments)
    aside = tuple(name for name in names if _ASIDE_NAME.fullmatch(name))
    entry = os.path.basename(os.path.abspath(path))
    first = None
    with suppress(QuipuError):  # what is wrong is shown when the segment is looked at
        first = first_checkpoint(disk, path, [int(segment.first_log_offset or 0)
                                              for segment in segments])
    if first is None or is_marked(entry):
        return LogFiles(entry, path, tuple(segments), aside, entry)
    return LogFiles(first.name, path, tuple(segments), aside, entry, first.topic_id)
