"""`make soak MINUTES=n`: what the tests do, for longer and with fresh chance each time.

    a sixth of the time   simulated worlds, by seeds that nobody has seen yet
    a sixth               clusters of three and five processes: killed, paused, cut off, with full,
                          failing and restored disks
    a sixth               kill -9 of a single node under load, by a new seed each round
    a sixth               kill -9 of Spark drivers that keep views and sinks, ten times a round
    a sixth               hostile frames, with fresh examples; then well-formed requests with
                          hostile values for every API and version, thousands a second
    a sixth               coverage-guided fuzzing of every parser, in equal shares

The first failure ends the run with the command that repeats it.
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
PIPELINE_KILLS = 10
HOSTILE_EXAMPLES = 2_000
HOSTILE_REQUESTS = 2_000_000  # of one node, at most
HOSTILE_SECONDS_MIN = 60
SIM_SEEDS = 50  # of each world, in one go
CLUSTER_SECONDS = 300  # of one cluster, at most
CLUSTER_SECONDS_MIN = 30


def run(command: list[str], environment: dict[str, str], *, directory: Path = REPOSITORY) -> None:
    """Run one command; say how to repeat it if it fails."""
    words = " ".join([*(f"{key}={value}" for key, value in environment.items()), *command])
    print(f"soak: {words}", flush=True)
    path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, cwd=directory, env=variables, check=False)
    if done.returncode != 0:
        sys.exit(f"soak: failed; repeat: {words}")


def simulate(deadline: float, chance: random.Random) -> None:
    """Run worlds of fresh seeds until the time is over; at least once."""
    worlds = [word for name in ("raft", "chain", "node") for word in ("--world", name)]
    while True:
        seed = chance.randrange(1 << 30)
        run([sys.executable, "tools/sim.py", *worlds, "--seed", str(seed),
             "--count", str(SIM_SEEDS)], {})
        if time.monotonic() > deadline:
            return


def cluster(deadline: float, chance: random.Random) -> None:
    """Do terrible things to clusters until the time is over; at least once."""
    for round_number in itertools.count():
        seed = chance.randrange(1 << 30)
        left = max(deadline - time.monotonic(), CLUSTER_SECONDS_MIN)
        run([sys.executable, "-m", "tests.soak.cluster_faults", "--seed", str(seed), "--nodes",
             str((3, 5)[round_number % 2]), "--seconds", str(int(min(left, CLUSTER_SECONDS)))], {})
        if time.monotonic() > deadline:
            return


def kill(deadline: float, chance: random.Random) -> None:
    """Kill nodes under load until the time is over; at least once."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "tests/kill/test_kill.py"]
    while True:
        seed = chance.randrange(1 << 30)
        run(command, {"KILL_SEED": str(seed), "KILL_ROUNDS": str(KILL_ROUNDS)})
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
    """Throw fresh frames at a node, and then requests until the time is over; at least once."""
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
    """Give every target its share."""
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "src")]
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 needs the path above

    share = max(5, int(seconds / len(TARGETS)))
    for name in TARGETS:
        with tempfile.TemporaryDirectory() as finds:
            command = [sys.executable, "-m", "tests.fuzz.run", name, f"-max_total_time={share}",
                       "-max_len=4096", "-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"]
            run(command, {}, directory=Path(finds))


def main() -> int:
    """Spend the minutes."""
    parser = argparse.ArgumentParser(description="Tests for longer, with fresh chance.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None,
                        help="chance of the simulated worlds, the kills and the hostile requests")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)
    share = arguments.minutes * 60 / 6
    print(f"soak: {arguments.minutes:g} minutes, seed {seed}", flush=True)
    chance = random.Random(seed)
    simulate(time.monotonic() + share, chance)
    fuzz(share)
    cluster(time.monotonic() + share, chance)
    kill(time.monotonic() + share, chance)
    pipeline(time.monotonic() + share, chance)
    hostile(time.monotonic() + share, chance)
    return 0


if __name__ == "__main__":
    sys.exit(main())
