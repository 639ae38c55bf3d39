"""Measures what a pass of expiry costs with many remote segments; a program, not a test.

    python -m tests.broker.tiering.measure [COUNT]
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from quipu.broker.tiering.expiry import ExpiryBounds, RetentionRules, TierLedger
from quipu.model.ids import Epoch, Offset
from quipu.remote.metadata.states import COPY_FINISHED
from tests.remote.metadata.segments import SIZE, fresh_partition, segment

SEGMENT_RECORDS = 100


def timed(what: str, work: Callable[[], object], rounds: int = 5) -> None:
    """Print the median time of `work`."""
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    print(f"{what:34} {statistics.median(spent) * 1e3:10.3f} ms")


def main(count: int) -> None:
    partition, size = fresh_partition(), SEGMENT_RECORDS
    segments = [replace(segment(partition, size * n, size * n + size - 1, {3: size * n}),
                        state=COPY_FINISHED) for n in range(count)]
    lineage, end = [(Epoch(3), Offset(0))], Offset(size * count + 1)

    def plan(ledger: TierLedger, kept: int = -1, start: int = 0) -> None:
        ledger.deleted(ledger.plan(lineage, ExpiryBounds(Offset(start), end, 0),
                                   RetentionRules(-1, kept), now_ms=0).deleted)

    def anew() -> None:
        plan(TierLedger(segments, lineage, end))

    print(f"{count} segments")
    timed("a pass over all segments", anew)
    ledger = TierLedger(segments, lineage, end)
    timed("a pass that deletes nothing", lambda: plan(ledger), 1000)
    left = iter(range(count - 1, 0, -1))
    timed("a pass that deletes one", lambda: plan(ledger, next(left) * SIZE), 100)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
