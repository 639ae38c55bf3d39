"""The Avro walk: compiled where a compiler was found, else in plain Python.

The environment variable QUIPU_PURE=1 makes the plain one serve.  `COMPILED` tells which does.
Not here: what it does (`_avro_walk_pure`, the twin and oracle of `_avro_walk.pyx`).
"""

from typing import Final

from quipu.pipeline.formats import _avro_walk_pure
from quipu.pipeline.formats._avro_walk_pure import Walked

try:
    from quipu.pipeline.formats._avro_walk import load, schema_ids, walk
except ImportError:
    from quipu.pipeline.formats._avro_walk_pure import load, schema_ids, walk

COMPILED: Final = walk is not _avro_walk_pure.walk

__all__ = ["COMPILED", "Walked", "load", "schema_ids", "walk"]
