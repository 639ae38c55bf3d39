"""Where the parts of JSON texts lie: compiled where a compiler was found, else in plain Python.

    check      which rows are no JSON
    members    the members of objects, by name
    elements   the elements of arrays
    unescaped  strings as they are meant

QUIPU_PURE=1 makes the plain ones serve; `COMPILED` tells which do.
Not here: what they do (`_json_pure`, the twin and oracle of `_json.pyx`).
"""

from typing import Final

from quipu.pipeline.formats import _json_pure
from quipu.pipeline.formats._json_pure import (
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
    Faults,
    Values,
)

try:
    from quipu.pipeline.formats._json import check, elements, members, unescaped
except ImportError:
    from quipu.pipeline.formats._json_pure import check, elements, members, unescaped

COMPILED: Final = check is not _json_pure.check

__all__ = [
    "ARRAY", "COMPILED", "DECIMAL", "ESCAPED", "FALSE", "FAULTS", "INTEGER", "MISSING", "NULL",
    "OBJECT", "STRING", "TRUE", "Faults", "Values", "check", "elements", "members", "unescaped",
]
