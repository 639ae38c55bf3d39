"""The simulator finds bugs: planted ones, in every part, within a bounded number of seeds."""

from collections import Counter

import pytest

from quipu.sim.runs import Broken, simulate
from tests.sim.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_bug_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """V22: sim.G2; each rule that is broken shows somewhere."""
    mutation.patch(monkeypatch)
    for seed in mutation.seeds():
        try:
            simulate(mutation.world, seed)
        except Broken as broken:
            print(f"seed {seed}: {type(broken.why).__name__}: {broken.why}")
            return
    pytest.fail(f"not found in {mutation.seeds_max} seeds")


def test_every_part_has_a_planted_bug() -> None:
    """V22: raft, chain, controller, storage, tiers, the drivers and the broker itself."""
    parts = Counter(mutation.part for mutation in MUTATIONS)
    assert {"raft", "quorum", "chain", "controller", "storage", "replication", "tiering",
            "compaction", "diskless writing", "diskless reading", "control plane",
            "diskless clean-up", "placement"} <= set(parts)
    assert sum(parts.values()) >= 10
