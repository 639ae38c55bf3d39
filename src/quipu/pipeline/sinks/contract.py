"""The protocol of targets of sinks, and its invariants.

Invariants
    pipeline.S1  a target has each version once: it records the version together with the rows, so
                 a version that is written again after a crash changes nothing
    pipeline.S2  a target gets versions in order, the first of them as a whole
"""

from typing import Protocol

from quipu.pipeline.views.changes import ViewChange


class SinkTarget(Protocol):
    """Where a sink writes.  After an error, `write` is called again with the same change."""

    def position(self) -> int | None:
        """The last version that was written as a whole; None before the first (pipeline.S1)."""
        ...

    def write(self, change: ViewChange) -> None:
        """Write a version as a whole; if that fails, it is tried again with the same version."""
        ...

    def close(self) -> None:
        """Release connections and memory; what was written stays."""
        ...
