"""`python -m tests.differential --requests 200000 --seed 1`: a run against a Kafka of its own.

The jars of Kafka are those that `make interop` has installed.  The exit code is 1 if a difference
is not explained, or a version that both serve was not covered.  A run is repeated by its seed and
its number of requests; `--requests` just above the number of a difference stops after it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.differential.brokers import both_brokers
from tests.differential.coverage import coverage_lines, found_lines, summary_lines
from tests.differential.run import Run, missing_coverage
from tools.interop import SOFTWARE


def main() -> int:
    """Run, and print what was covered and found."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000, help="at least that many")
    parser.add_argument("--seed", type=int, default=1, help="another seed is another run")
    arguments = parser.parse_args()
    (kafka,) = (each for each in SOFTWARE if each.name == "kafka")
    if not kafka.folder.is_dir():
        print("Kafka is not installed: run `make interop` once", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="quipu-differential-") as scratch, both_brokers(
            kafka.folder / "jars", Path(scratch)) as addresses:
        run = Run(*addresses, arguments.seed)
        run.begin()
        run.go(arguments.requests, progress=lambda count: print(f"{count} requests", flush=True))
        run.exchange.close()
    for line in (*coverage_lines(run), *found_lines(run), *summary_lines(run)):
        print(line)
    return 1 if run.unexplained or list(missing_coverage(run)) else 0


if __name__ == "__main__":
    sys.exit(main())
