"""`make sim SEED=n`: every simulated world, from one seed.

    raft, chain, tiered-chain, node, tiered-node, ordered-node, diskless
                        worlds of src/quipu/sim: real cores and real nodes, in virtual time, under
                        faults; checked after every step, then healed and made to converge
    storage             the state machines of tests/storage: a log on a simulated disk that loses
                        power, compared with a list of what must survive

The same seed and commit give the same run.  `--trace` prints every event of a world as it happens;
without it, the last ones are printed after a failure.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
STORAGE = "storage"


def main() -> int:
    """Run the worlds; on failure print how to reproduce it."""
    from quipu.sim.runs import WORLDS  # noqa: PLC0415 a message about arguments needs no node

    parser = argparse.ArgumentParser(description="Simulated worlds, from one seed.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", choices=[*WORLDS, STORAGE], action="append", dest="worlds",
                        help="only this one; may be given again")
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--trace", action="store_true", help="print every event")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        for name in arguments.worlds or [*WORLDS, STORAGE]:
            code = storage(seed) if name == STORAGE else world(name, seed, trace=arguments.trace)
            if code != 0:
                return code
    return 0


def world(name: str, seed: int, *, trace: bool) -> int:
    """One world of one seed."""
    from quipu.sim.runs import Broken, simulate  # noqa: PLC0415

    began = time.monotonic()
    try:
        outcome = simulate(name, seed, echo=print if trace else None)
    except Broken as broken:
        print(broken.report(commit()))
        return 1
    print(f"sim: {name} seed {seed}: {outcome.step_count} steps, {outcome.event_count} events, "
          f"{time.monotonic() - began:.2f} s, "
          f"trace {outcome.digest}", flush=True)
    return 0


def storage(seed: int) -> int:
    """The state machines of the storage log."""
    command = [sys.executable, "-m", "pytest", "-q", "-k", "Machine", "tests/storage",
               f"--hypothesis-seed={seed}"]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "sim"}
    print(f"sim: storage seed {seed}", flush=True)
    code = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False).returncode
    if code != 0:
        print(f"reproduce: make sim SEED={seed} (commit {commit()})")
    return code


def commit() -> str:
    """The commit that is checked out, or a dash."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, check=False,
                          capture_output=True, text=True)
    return done.stdout.strip() or "-"


if __name__ == "__main__":
    sys.exit(main())
