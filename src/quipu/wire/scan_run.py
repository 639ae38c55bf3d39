"""The scan over plain batches of a segment: compiled where a compiler was found, else in Python.

With the environment variable QUIPU_PURE=1 the Python functions are used; `COMPILED` says which are.
Not here: the functions (`_scan_pure`; `_scan.pyx` does the same).
"""

from typing import Final

from quipu.wire import _scan_pure
from quipu.wire._scan_pure import BATCHES_KEPT, PRODUCERS_MAX, Expected, Run, RunProducer

try:
    from quipu.wire._scan import scan_run, sound_end
except ImportError:
    from quipu.wire._scan_pure import scan_run, sound_end

COMPILED: Final = scan_run is not _scan_pure.scan_run

__all__ = [
    "BATCHES_KEPT", "COMPILED", "PRODUCERS_MAX", "Expected", "Run", "RunProducer", "scan_run",
    "sound_end",
]
