"""Errors of a file system: transient or final.

    DiskError            final: an error of the device, a directory that is read-only, a file that
                         another process replaced
    TransientDiskError   the same call may succeed later, and the failed call changed nothing
        DiskFull         no space
        DiskBusy         no descriptors, no memory, or an interrupted call

A failed sync is never transient: the kernel may have dropped the data that it could not write.
"""

import errno
import os
from typing import Final

from quipu.model.errors import ErrorKind, QuipuError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BUSY: Final = frozenset({
    *_NO_DESCRIPTORS, errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.EBUSY,
    errno.ETIMEDOUT})


class DiskError(QuipuError):
    """A call to the file system failed."""

    kind = ErrorKind.RETRY


class TransientDiskError(DiskError):
    """A call to the file system failed and may succeed later."""


class DiskFull(TransientDiskError):
    """No space on the disk; stored data stays readable."""


class DiskBusy(TransientDiskError):
    """The system is short of descriptors or memory; the call is tried again."""


class NotFound(DiskError):
    """There is no such file."""


def mapped(error: OSError, path: str) -> DiskError:
    """The `DiskError` for an OSError, with a message that says what to do."""
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
    """The `DiskError` for a failed sync, which is always final."""
    return DiskError(f"{path}: {os.strerror(error.errno) if error.errno else error}")
