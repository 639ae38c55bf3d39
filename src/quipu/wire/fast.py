"""The hot path's functions: compiled where a compiler was found, else in plain Python.

    parse_produce   a Produce request, without copying its records
    encode_one_part the answer to one, for one partition
    parse_fetch     a Fetch request
    encode_one_fetched  the answer to one, for one partition, around its records
    check_batch     one batch: header, checksum, counts
    stamp           offset, epoch and stored prefix of a batch that is about to be written
    slices          the batches of a segment that a Fetch sends

The environment variable QUIPU_PURE=1 makes the plain ones serve.  `COMPILED` tells which do.
Not here: what they do and how they fail (`_fast_pure`, the twin and oracle of `_fast.pyx`).
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
