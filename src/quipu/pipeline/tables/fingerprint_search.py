"""Sorts by fingerprint, and searches sorted fingerprints: compiled if a compiler was found.

With the environment variable QUIPU_PURE=1 numpy is used.  `COMPILED` says which is used.
Not here: the functions themselves (`_sorted_pure`, against which `_sorted.pyx` is tested).
"""

from typing import Final

from quipu.pipeline.tables import _sorted_pure

try:
    from quipu.pipeline.tables._sorted import find_pairs, sort_pairs
except ImportError:
    from quipu.pipeline.tables._sorted_pure import find_pairs, sort_pairs

COMPILED: Final = sort_pairs is not _sorted_pure.sort_pairs

__all__ = ["COMPILED", "find_pairs", "sort_pairs"]
