"""Which data directory this is: an id that it is given once, in a file of its own.

    <data>/.directory-id    32 hexadecimal digits

The controller knows by it whether a node that starts again has the logs that it had: with an
emptied disk, or another one in its place, the id is another.  A disk that was restored from an
older copy has the same id; this file cannot show that.

Not in the node log (node_log.py), which may be lost and started again while the logs stay.
"""

import logging
from typing import Final
from uuid import UUID

from quipu.model.errors import QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.runtime.disks.disk import Disk, NotFound

ID_NAME: Final = ".directory-id"
_SIZE: Final = 32  # bytes

_log = logging.getLogger(__name__)


def identify(disk: Disk, path: str, new_id: UUID, *, is_used: bool) -> UUID:
    """The id of the directory `path`; `new_id`, durably, if it has none.

    `is_used`: there are logs in it, so it is from before there were ids, or was copied without.
    Then a disk that refuses the file is no reason not to start: ZERO_UUID says that nothing is
    known.
    """
    file_path = f"{path}/{ID_NAME}"
    try:
        return UUID(hex=disk.read(file_path, _SIZE).decode("ascii"))
    except NotFound:
        pass
    except ValueError:
        _log.error("%s is damaged: the directory is taken for another one than it was", file_path)
    try:
        _write(disk, path, new_id.hex.encode())
    except QuipuError as error:
        if not is_used:
            raise
        _log.warning("%s has no id, and cannot be given one: %s", path, error)
        return ZERO_UUID
    return new_id


def _write(disk: Disk, path: str, data: bytes) -> None:
    new_path = f"{path}/{ID_NAME}.new"
    disk.write(new_path, b"")
    file = disk.open(new_path)
    try:
        file.append([data], len(data))
        file.sync()
    finally:
        file.close()
    disk.rename(new_path, f"{path}/{ID_NAME}")
    disk.sync_directory(path)
