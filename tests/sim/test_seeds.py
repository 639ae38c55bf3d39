"""Every world under a fixed set of seeds; those that ever found something are in seeds.txt.

`make sim SEED=n` runs the same worlds; `make soak` looks at seeds that nobody has seen yet.  The
first 200 seeds of the chain's world are in tests/chain/test_world.py.
"""

from pathlib import Path

import pytest

from quipu.sim.runs import Broken, simulate
from tools.sim import commit

HERE = Path(__file__).parent
SEEDS = {"raft": range(80), "chain": range(200, 230), "tiered-chain": range(120),
         "node": range(60), "moving-node": range(40), "ordered-node": range(40),
         "tiered-node": range(8), "diskless": range(40), "placement": range(60)}


def found() -> list[tuple[str, int]]:
    """Seeds that found something: a world and a seed on each line, then why."""
    lines = (HERE / "seeds.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return [(row[0], int(row[1])) for row in rows]


CASES = sorted({*found(), *((name, seed) for name, seeds in SEEDS.items() for seed in seeds)})


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_world_stays_right_under_faults_and_converges_after_them(name: str, seed: int) -> None:
    """V22: nothing is ever wrong after any step; then the faults end, and all is served again."""
    try:
        simulate(name, seed)
    except Broken as broken:
        pytest.fail(broken.report(commit()), pytrace=False)
