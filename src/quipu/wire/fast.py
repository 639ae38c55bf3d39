"""The hot path's functions: compiled where a compiler was found, else in plain Python.

    parse_produce   a Produce request, without copying its records
    encode_one_part a Produce response for one partition
    parse_fetch     a Fetch request
    encode_one_fetched  a Fetch response for one partition, around its records
    check_batch     header, checksum and counts of one batch
    stamp           sets offset and epoch of a batch that is about to be written; makes its prefix
    slices          the batches of a segment that a Fetch response sends

With the environment variable QUIPU_PURE=1 the Python functions are used; `COMPILED` says which are.
Not here: the functions (`_fast_pure`; `_fast.pyx` does the same).
"""

from typing import Final

from quipu.wire import _fast_pure
from quipu.wire._fast_pure import Part

try:
    from quipu.wire._fast import (
        check_batch,
        encode_one_fetched,
        encode_one_part,
        parse_fetch,
        parse_produce,
        slices,
        stamp,
    )
except ImportError:
    from quipu.wire._fast_pure import (
        check_batch,
        encode_one_fetched,
        encode_one_part,
        parse_fetch,
        parse_produce,
        slices,
        stamp,
    )

COMPILED: Final = parse_produce is not _fast_pure.parse_produce
FETCH_SIZE_MAX: Final = _fast_pure.FETCH_SIZE_MAX
PRODUCE_PARTITIONS_MAX: Final = _fast_pure.PRODUCE_PARTITIONS_MAX

__all__ = [
    "COMPILED", "FETCH_SIZE_MAX", "PRODUCE_PARTITIONS_MAX", "Part", "check_batch",
    "encode_one_fetched", "encode_one_part", "parse_fetch", "parse_produce", "slices", "stamp",
]
