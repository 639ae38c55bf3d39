"""Which files make up a log, from whatever path a person names.

    a file             one segment, looked at by itself; also one that was cut off or put aside
    a log directory    its segments in order, `<first log offset, 20 digits>.log`
    a data directory   every log directory in it
"""

import os
import re
from typing import Final, NamedTuple

from quipu.model.errors import QuipuError
from quipu.runtime.disk import Disk

SEGMENT_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
LOCK_NAME: Final = ".lock"

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_ASIDE_NAME: Final = re.compile(r"\d{20}\.log\.(torn|cut)-\d+|\d{20}\.(torn|cut)-\d+")
_LEADING_OFFSET: Final = re.compile(r"(\d{20})\.")


class NoLog(QuipuError):
    """A path at which there is no log to look at."""


class SegmentFile(NamedTuple):
    """One file of batches."""

    path: str
    first_log_offset: int | None  # by its name; None if that says nothing
    index_path: str | None  # None if there is none


class LogFiles(NamedTuple):
    """The files of one log, in order."""

    name: str
    directory: str
    segments: tuple[SegmentFile, ...]
    aside: tuple[str, ...]  # names of files that recovery or repair put aside


def find_logs(disk: Disk, path: str) -> list[LogFiles]:
    """The logs at `path`, by name; raises `NoLog` if there are none."""
    path = os.path.normpath(path)
    if not disk.exists(path):
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
    aside = tuple(name for name in names if _ASIDE_NAME.fullmatch(name))
    return LogFiles(os.path.basename(os.path.abspath(path)), path, tuple(segments), aside)
