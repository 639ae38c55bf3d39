"""`make sim SEED=n`: the storage log on a simulated disk, under crashes, from one seed.

The machines of tests/storage write, flush, roll, truncate, lose power and reopen in an order that
the seed decides, and compare the log with a list that knows how much of it is safe.  The same seed
and commit give the same run.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run the machines; on failure say how to run them again."""
    parser = argparse.ArgumentParser(description="Storage under crashes, from one seed.")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    command = [sys.executable, "-m", "pytest", "-q", "-k", "Machine", "tests/storage",
               f"--hypothesis-seed={seed}"]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "sim"}
    print(f"sim: seed {seed}", flush=True)
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
