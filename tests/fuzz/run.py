"""Fuzz one target with coverage: `python -m tests.fuzz.run TARGET [libFuzzer options]`.

Finds are written to the current directory as crash-*; `make soak` gives each target its share.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["quipu"]):
    from tests.fuzz.targets import TARGETS, seeds


def main() -> None:
    """Write the seeds as a corpus and hand over to libFuzzer."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as corpus:
        for index, seed in enumerate(seeds(name)):
            (Path(corpus) / f"seed-{index}").write_bytes(seed)
        atheris.Setup([sys.argv[0], *sys.argv[2:], corpus], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
