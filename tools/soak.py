"""`make soak MINUTES=n`: runs random tests for longer, with new seeds each time.

    a seventh of the time  simulated worlds, with new seeds
    a seventh              clusters of three and five processes: killed, paused, cut off, with full,
                           failing and restored disks
    a seventh              diskless topics: nodes killed and paused, PostgreSQL ended, an S3 server
                           that refuses, is slow, and does not say what it has done
    a seventh              kill -9 of a single node under load, by a new seed each round; the same
                           with a tier, and of chains with a tier
    a seventh              kill -9 of Spark drivers that keep views and sinks, ten times a round
    a seventh              hostile frames, with fresh examples; then well-formed requests with
                           hostile values for every API and version, thousands a second
    a seventh              coverage-guided fuzzing of every parser, in equal shares

The first failure ends the run with the command that reproduces it.
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
KILL_ROUNDS = 40
TIER_KILLS = 5  # of a node or a head with a tier
PIPELINE_KILLS = 10
HOSTILE_EXAMPLES = 2_000
HOSTILE_REQUESTS = 2_000_000  # of one node, at most
HOSTILE_SECONDS_MIN = 60
SIM_SEEDS = 50  # of each world, in one go
CLUSTER_SECONDS = 300  # of one cluster, at most
CLUSTER_SECONDS_MIN = 30


def run(command: list[str], environment: dict[str, str], *, directory: Path = REPOSITORY) -> None:
    """Run one command; print how to reproduce it if it fails."""
    words = " ".join([*(f"{key}={value}" for key, value in environment.items()), *command])
    print(f"soak: {words}", flush=True)
    path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, cwd=directory, env=variables, check=False)
    if done.returncode != 0:
        sys.exit(f"soak: failed; repeat: {words}")


def simulate(deadline: float, chance: random.Random) -> None:
    """Run worlds of fresh seeds until the time is over; at least once."""
    names = ("raft", "chain", "tiered-chain", "node", "tiered-node", "ordered-node", "diskless")
    worlds = [word for name in names for word in ("--world", name)]
    while True:
        seed = chance.randrange(1 << 30)
        run([sys.executable, "tools/sim.py", *worlds, "--seed", str(seed),
             "--count", str(SIM_SEEDS)], {})
        run([sys.executable, "-m", "pytest", "-q", "tests/broker/tiering/test_world.py", "-k",
             "nothing_is_lost"], {"TIER_SEEDS": f"{seed}:{seed + SIM_SEEDS}"})
        if time.monotonic() > deadline:
            return


def cluster(deadline: float, chance: random.Random) -> None:
    """Run clusters under faults until the time is over; at least once."""
    for round_number in itertools.count():
        seed = chance.randrange(1 << 30)
        left = max(deadline - time.monotonic(), CLUSTER_SECONDS_MIN)
        run([sys.executable, "-m", "tests.soak.cluster_faults", "--seed", str(seed), "--nodes",
             str((3, 5)[round_number % 2]), "--seconds", str(int(min(left, CLUSTER_SECONDS)))], {})
        if time.monotonic() > deadline:
            return


def diskless(deadline: float, chance: random.Random) -> None:
    """Let everything fail that diskless topics need until the time is over; at least once."""
    while True:
        left = max(deadline - time.monotonic(), CLUSTER_SECONDS_MIN)
        run([sys.executable, "-m", "tests.soak.diskless_faults", "--seed",
             str(chance.randrange(1 << 30)), "--seconds",
             str(int(min(left, CLUSTER_SECONDS)))], {})
        if time.monotonic() > deadline:
            return


def kill(deadline: float, chance: random.Random) -> None:
    """Kill nodes under load until the time is over; at least once."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "tests/kill/test_kill.py"]
    tiered = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "slow or not slow", "-o",
              "timeout=900", "tests/kill/test_kill_tiered.py", "tests/cluster/test_tiering.py"]
    while True:
        seed = chance.randrange(1 << 30)
        run(command, {"KILL_SEED": str(seed), "KILL_ROUNDS": str(KILL_ROUNDS)})
        run(tiered, {"KILL_SEED": str(seed), "TIER_KILLS": str(TIER_KILLS)})
        if time.monotonic() > deadline:
            return


def pipeline(deadline: float, chance: random.Random) -> None:
    """Kill Spark drivers while views are kept up to date until the time is over; at least once."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "slow", "tests/pipeline/kill"]
    while True:
        seed = chance.randrange(1 << 30)
        run(command, {"PIPELINE_SEED": str(seed), "PIPELINE_KILLS": str(PIPELINE_KILLS)})
        if time.monotonic() > deadline:
            return


def hostile(deadline: float, chance: random.Random) -> None:
    """Send hostile frames, then hostile requests, until the time is over; at least once."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-o", "timeout=1800", "tests/hostile"]
    run(command, {"HYPOTHESIS_PROFILE": "soak", "HOSTILE_EXAMPLES": str(HOSTILE_EXAMPLES)})
    while True:
        left = max(deadline - time.monotonic(), HOSTILE_SECONDS_MIN)
        run([sys.executable, "-m", "tests.soak.hostile_requests", "--seed",
             str(chance.randrange(1 << 30)), "--requests", str(HOSTILE_REQUESTS),
             "--seconds", str(int(left))], {})
        if time.monotonic() > deadline:
            return


def fuzz(seconds: float) -> None:
    """Fuzz every target for its share of the time."""
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "src")]
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 needs the path above

    share = max(5, int(seconds / len(TARGETS)))
    for name in TARGETS:
        with tempfile.TemporaryDirectory() as finds:
            command = [sys.executable, "-m", "tests.fuzz.run", name, f"-max_total_time={share}",
                       "-max_len=4096", "-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"]
            run(command, {}, directory=Path(finds))


def main() -> int:
    """Run all parts for the given minutes."""
    parser = argparse.ArgumentParser(description="Tests for longer, with fresh chance.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None,
                        help="chance of the simulated worlds, the kills and the hostile requests")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)
    share = arguments.minutes * 60 / 7
    print(f"soak: {arguments.minutes:g} minutes, seed {seed}", flush=True)
    chance = random.Random(seed)
    simulate(time.monotonic() + share, chance)
    fuzz(share)
    cluster(time.monotonic() + share, chance)
    diskless(time.monotonic() + share, chance)
    kill(time.monotonic() + share, chance)
    pipeline(time.monotonic() + share, chance)
    hostile(time.monotonic() + share, chance)
    return 0


if __name__ == "__main__":
    sys.exit(main())
