"""`make check`: runs every automatic check, without changing a file.

Each check runs even if an earlier one failed; a check that passes prints one line, one that fails
prints what it found.  The exit code is the number of checks that failed.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


class Check(NamedTuple):
    """A check: its name and its command."""

    rule: str
    command: tuple[str, ...]


CHECKS = (
    Check("lint (ruff, all rules but those with a reason)", (f"{BIN}/ruff", "check", ".")),
    Check("types (mypy, strict)", (f"{BIN}/mypy",)),
    Check("floors (import-linter)", (f"{BIN}/lint-imports", "--no-cache")),
    Check("sizes, names and words (tidy)",
          (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_tidy.py",
           "tests/test_rooms.py")),
    Check("generated pages are up to date", (sys.executable, "tools/docs.py", "--check")),
)


def passes(check: Check) -> bool:
    """Run one check and print its result."""
    started = time.monotonic()
    done = subprocess.run(check.command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    word = "ok    " if done.returncode == 0 else "FAILED"
    print(f"{word} {check.rule}  {time.monotonic() - started:.1f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return done.returncode == 0


def main() -> int:
    """Run all checks."""
    results = [passes(check) for check in CHECKS]
    return results.count(False)


if __name__ == "__main__":
    sys.exit(main())
