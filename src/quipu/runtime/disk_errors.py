"""What a file system refuses, by whether it may pass.

    DiskError            something is wrong with the disk, or with what is asked of it: an error of
                         the device, a directory that is read-only, a file that was exchanged
    TransientDiskError   nothing is wrong that does not pass: the same call may succeed later, and
                         whoever made it goes on as if it had not been made
        DiskFull         no room
        DiskBusy         no descriptors, no memory, or the system was interrupted

A failed sync is never transient: the kernel may have dropped what it could not write.
"""

import errno
import os
from typing import Final

from quipu.model.errors import Code, Kind, QuipuError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BUSY: Final = frozenset({
    *_NO_DESCRIPTORS, errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.EBUSY,
    errno.ETIMEDOUT})


class DiskError(QuipuError):
    """The file system refused; nothing was acknowledged."""

    code = Code.KAFKA_STORAGE_ERROR
    kind = Kind.RETRY


class TransientDiskError(DiskError):
    """The file system refused for now."""


class DiskFull(TransientDiskError):
    """No room: free some, or lower retention; what is stored stays readable."""


class DiskBusy(TransientDiskError):
    """The system has too little of something: it is tried again."""


class NotFound(DiskError):
    """There is no such file."""


def mapped(error: OSError, path: str) -> DiskError:
    """The error that says what to do about `error`."""
    reason = f"{path}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in _FULL:
        return DiskFull(f"{reason}; free some space, or lower retention.bytes and retention.ms")
    if error.errno in _NO_DESCRIPTORS:
        return DiskBusy(f"{reason}; raise the limit of open files (ulimit -n)")
    if error.errno in _BUSY:
        return DiskBusy(reason)
    if error.errno == errno.ENOENT:
        return NotFound(reason)
    return DiskError(reason)


def mapped_sync(error: OSError, path: str) -> DiskError:
    """The same of a sync, which cannot be repeated."""
    return DiskError(f"{path}: {os.strerror(error.errno) if error.errno else error}")
