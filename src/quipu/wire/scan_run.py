"""Walk over plain batches at once: compiled where a compiler was found, else in plain Python.

The environment variable QUIPU_PURE=1 makes the plain function serve.  `COMPILED` tells which does.
Not here: what it does (`_scan_pure`, the twin and oracle of `_scan.pyx`).
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
