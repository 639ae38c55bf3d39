"""Room that a node keeps on its disk for the few bytes that it must write when there is no other.

A node must write to start, to change the metadata (to delete a topic is what makes room), and to
forget a log that is deleted.  So while there is plenty it keeps a file of `RESERVE_SIZE` bytes.
On a full disk that file is removed for one such write, and made again of what the write has left:
no other write gets a byte of it in between, for all of this is one step of the loop.

Invariants
    storage.V1  what is lent is lent to one write; what that does not use is reserved again
    storage.V2  `is_drawn` while less is reserved than there was: writes that only take more space,
        as for new topics, should wait until there is some

Not here: what may be written so (data_directory, broker/quorum/driver).
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from quipu.model.errors import Code, ErrorKind, RequestError
from quipu.runtime.disks.disk import Disk, DiskError, DiskFull, NotFound

RESERVE_NAME: Final = ".reserve"
RESERVE_SIZE: Final = 1 << 20  # bytes: hundreds of writes of a block each
RESERVE_ROOM_MIN: Final = 16 * RESERVE_SIZE  # bytes that must be free before it is made
BLOCK_SIZE: Final = 4096  # what is kept is counted in these

_log = logging.getLogger(__name__)


class Reserve:
    """The room kept in one data directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVE_NAME}"
        self.is_drawn = 0 < self._size() < RESERVE_SIZE
        self._is_too_small = False  # for the last write that it was lent to

    def keep(self) -> None:
        """Keep all of it from now on, if there is plenty of room."""
        self._is_too_small = False
        if self._disk.space(self._directory).usable < RESERVE_ROOM_MIN:
            return
        if self._size() < RESERVE_SIZE:
            self._disk.write(self._path, bytes(RESERVE_SIZE))
        self.is_drawn = False

    def check(self) -> None:
        """Raise `RequestError` while some of it is used (storage.V2)."""
        if self.is_drawn:
            raise RequestError(
                f"{self._directory}: the disk is full: nothing new is begun until there is room "
                f"({RESERVE_ROOM_MIN >> 20} MiB); delete topics, lower retention.bytes and "
                "retention.ms, or free some space",
                code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)

    def lend(self, write: Callable[[], None]) -> None:
        """Do `write`, again with what is kept if there is no other room; raises if that fails too.

        One that fails must leave no trace, or go on where it ended.
        """
        try:
            write()
        except DiskFull:
            size = self._size()
            if size == 0 or self._is_too_small:
                raise
            if not self.is_drawn:
                _log.error("%s: the disk is full: the node uses what it has in reserve for its own "
                           "notes; free some space", self._directory)
            self.is_drawn = True
            self._disk.remove(self._path)
            try:
                write()
            except DiskFull:
                self._is_too_small = True
                raise
            finally:
                self._keep_again(size)

    def _size(self) -> int:
        """Bytes that are kept now."""
        try:
            return self._disk.size(self._path)
        except NotFound:
            return 0

    def _keep_again(self, size: int) -> None:
        """Keep as much as is there, at most `size` bytes (storage.V1)."""
        usable = self._disk.space(self._directory).usable
        size = min(size, usable) // BLOCK_SIZE * BLOCK_SIZE
        while size:
            try:
                self._disk.write(self._path, bytes(size))
            except DiskError:  # the file system needs some for itself
                with suppress(DiskError):
                    self._disk.remove(self._path)
                size = size // 2 // BLOCK_SIZE * BLOCK_SIZE
            else:
                return
