"""Runs the programs that read Avro: compiled if a compiler was found, else in plain Python.

With the environment variable QUIPU_PURE=1 the plain one is used.  `COMPILED` says which is used.
Not here: the walk itself (`_walk_pure`, against which `_walk.pyx` is tested).
"""

from typing import Final

from quipu.pipeline.formats.avro import _walk_pure
from quipu.pipeline.formats.avro._walk_pure import Walked

try:
    from quipu.pipeline.formats.avro._walk import load, schema_ids, walk
except ImportError:
    from quipu.pipeline.formats.avro._walk_pure import load, schema_ids, walk

COMPILED: Final = walk is not _walk_pure.walk

__all__ = ["COMPILED", "Walked", "load", "schema_ids", "walk"]
