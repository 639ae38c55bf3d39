"""Scans JSON texts: compiled if a compiler was found, else in plain Python.

    check      which rows are no JSON
    members    the members of objects, by name
    elements   the elements of arrays
    unescaped  strings with their escapes replaced

With QUIPU_PURE=1 the plain ones are used; `COMPILED` says which are used.
Not here: the scan itself (`_scan_pure`, against which `_scan.pyx` is tested).
"""

from typing import Final

from quipu.pipeline.formats.json import _scan_pure
from quipu.pipeline.formats.json._scan_pure import (
    ARRAY,
    DECIMAL,
    ESCAPED,
    FALSE,
    FAULTS,
    INTEGER,
    MISSING,
    NULL,
    OBJECT,
    STRING,
    TRUE,
    JsonFaults,
    Values,
)

try:
    from quipu.pipeline.formats.json._scan import check, elements, members, unescaped
except ImportError:
    from quipu.pipeline.formats.json._scan_pure import check, elements, members, unescaped

COMPILED: Final = check is not _scan_pure.check

__all__ = [
    "ARRAY", "COMPILED", "DECIMAL", "ESCAPED", "FALSE", "FAULTS", "INTEGER", "MISSING", "NULL",
    "OBJECT", "STRING", "TRUE", "JsonFaults", "Values", "check", "elements", "members", "unescaped",
]
