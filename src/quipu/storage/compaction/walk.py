"""The walk of compaction over records: compiled where a compiler was found, else in plain Python.

    OffsetMap   the last offset of each key, in memory of a fixed size
    Kept        what stays of a batch's records
    rebase      the records of a batch with another base timestamp

With the environment variable QUIPU_PURE=1 the Python functions are used; `COMPILED` says which are.
Not here: the functions (`_walk_pure`; `_walk.pyx` does the same).
"""

from typing import Final

from quipu.storage.compaction import _walk_pure
from quipu.storage.compaction._walk_pure import SECRET_SIZE, Kept

try:
    from quipu.storage.compaction._walk import ENTRY_SIZE, OffsetMap, rebase
except ImportError:
    from quipu.storage.compaction._walk_pure import (  # type: ignore[assignment] # the same methods
        ENTRY_SIZE,
        OffsetMap,
        rebase,
    )

COMPILED: Final = rebase is not _walk_pure.rebase

__all__ = ["COMPILED", "ENTRY_SIZE", "SECRET_SIZE", "Kept", "OffsetMap", "rebase"]
