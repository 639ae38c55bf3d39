"""The world of world.py under many seeds; and planted bugs, which it finds.

`TIER_SEEDS=first:end` runs other seeds, as `make soak` does.
"""

import os

import pytest

from tests.broker.tiering.planted import (
    Patch,
    bytes_before_metadata,
    cache_before_durable,
    earlier_copies_ignored,
    fencing_off,
    gaps_ignored,
    no_orphans_collected,
    orphans_without_grace,
    segments_before_log_start,
    tiered_before_finished,
)
from tests.broker.tiering.world import TierWorld

FIRST, END = map(int, os.environ.get("TIER_SEEDS", "0:8").split(":"))
SEEDS_MAX = 60  # within which a planted bug is found

@pytest.mark.parametrize("seed", range(FIRST, END))
def test_nothing_is_lost_and_nothing_is_left(seed: int) -> None:
    """R2, R11, R12, R15: broker.tiering.L1: copies, failures, crashes, deletions, takeovers, two
    leaders at once.
    """
    TierWorld(seed).run()


PLANTED: dict[Patch, int] = {  # and the seed that finds each, the last time that somebody looked
    fencing_off: 0, cache_before_durable: 0, bytes_before_metadata: 0, tiered_before_finished: 0,
    earlier_copies_ignored: 2, gaps_ignored: 0, orphans_without_grace: 9,
    segments_before_log_start: 0, no_orphans_collected: 2}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: each rule that is broken shows somewhere."""
    plant(monkeypatch)
    for seed in [PLANTED[plant], *range(SEEDS_MAX)]:
        try:
            TierWorld(seed).run()
        except AssertionError as broken:
            print(f"seed {seed}: {str(broken)[:200]}")
            return
    pytest.fail(f"not found in {SEEDS_MAX} seeds")
