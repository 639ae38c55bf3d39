"""The walk over a batch's records: compiled where a compiler was found, else in plain Python.

With the environment variable QUIPU_PURE=1 the Python functions are used; `COMPILED` says which are.
Not here: the functions (`_records_pure`; `_records.pyx` does the same).
"""

from typing import Final

from quipu.wire import _records_pure
from quipu.wire._records_pure import (
    KEYLESS_MAX,
    NO_FRAME,
    RecordFault,
    RecordsSeen,
    TimeFound,
)

try:
    from quipu.wire._records import (
        are_plain,
        find_time,
        lz4_size_max,
        snappy_size_max,
        walk_records,
        zstd_size_max,
    )
except ImportError:
    from quipu.wire._records_pure import (
        are_plain,
        find_time,
        lz4_size_max,
        snappy_size_max,
        walk_records,
        zstd_size_max,
    )

COMPILED: Final = walk_records is not _records_pure.walk_records

__all__ = [
    "COMPILED", "KEYLESS_MAX", "NO_FRAME", "RecordFault", "RecordsSeen", "TimeFound", "are_plain",
    "find_time", "lz4_size_max", "snappy_size_max", "walk_records", "zstd_size_max",
]
