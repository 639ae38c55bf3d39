"""Sorting by fingerprint, and finding in what is sorted: compiled where a compiler was found.

The environment variable QUIPU_PURE=1 makes numpy serve.  `COMPILED` tells which does.
Not here: what they do (`_sorted_pure`, the twin and oracle of `_sorted.pyx`).
"""

from typing import Final

from quipu.pipeline.tables import _sorted_pure

try:
    from quipu.pipeline.tables._sorted import find_pairs, sort_pairs
except ImportError:
    from quipu.pipeline.tables._sorted_pure import find_pairs, sort_pairs

COMPILED: Final = sort_pairs is not _sorted_pure.sort_pairs

__all__ = ["COMPILED", "find_pairs", "sort_pairs"]
