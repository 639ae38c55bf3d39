"""Worlds of chains, one per seed: checked after every step, and converged at the end."""

import subprocess
import sys

import pytest

from quipu.sim.worlds.chain import ChainWorld

SEEDS = range(200)
GROUP = 20
FAULTS_MS = 150.0


@pytest.mark.parametrize("start", range(SEEDS.start, SEEDS.stop, GROUP))
def test_chains_keep_their_invariants_and_converge(start: int) -> None:
    """V22, V9-V16, V21: faults first, checked after every step; then all logs are the same."""
    for seed in range(start, start + GROUP):
        world = ChainWorld(seed, faults_ms=FAULTS_MS)
        try:
            world.run()
        except Exception as error:
            error.add_note("\n".join([*world.trace.tail(40), f"seed {seed}"]))
            raise


def test_the_worlds_are_not_idle() -> None:
    """What the seeds do: they crash, cut, restart, promote and commit, in all three kinds."""
    happened: set[str] = set()
    kinds: set[str] = set()
    committed = 0

    def hear(line: str) -> None:
        happened.add(line.split()[2])

    for seed in range(25):
        world = ChainWorld(seed, echo=hear)
        world.run()
        kinds.add(world.kind)
        committed += world.witness.committed_count

    assert kinds == {"durable", "kept", "lossy"}
    assert {"boot", "crash", "cut", "commit", "decides", "disk", "empty", "fenced", "heal",
            "restart", "serve", "trim"} <= happened
    assert committed > 500


PROGRAM = """
from quipu.sim.worlds.chain import ChainWorld
world = ChainWorld({seed})
world.run()
print(world.trace.digest)
"""


@pytest.mark.parametrize("seed", [3, 4])
def test_one_seed_is_one_history(seed: int) -> None:
    """V22: for any hash seed of Python, so no order of a set has an effect."""
    digests = {
        subprocess.run([sys.executable, "-c", PROGRAM.format(seed=seed)], check=True,
                       capture_output=True, text=True, env={"PYTHONHASHSEED": hash_seed}).stdout
        for hash_seed in ("0", "12345")}

    assert len(digests) == 1
