"""`make again`: the tests that failed in the last run, once more and one at a time.

    python tools/again.py

Tests of real processes share a machine with three others, and with whatever else runs there.  One
that fails in company and passes alone was short of time; it is named at the end, so that it can be
given a better way to wait.  One that fails alone as well has found something: the exit code is 1,
as it is if more than FAILED_MAX failed, or if the last run did not get as far as to say which.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
FAILED = REPOSITORY / ".pytest_cache" / "v" / "cache" / "lastfailed"
FAILED_MAX = 6


def main() -> int:
    failed = read_failed(FAILED)
    why = why_not(failed)
    if why is not None:
        print(f"again: {why}", file=sys.stderr)
        return 1
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed],
        cwd=REPOSITORY, check=False).returncode
    if code == 0:
        print("again: failed beside other tests, and passed alone:", *failed, sep="\n  ")
    return code


def read_failed(path: Path) -> list[str]:
    """The tests that failed in the last run, as pytest remembers them; none if it did not end."""
    if not path.exists():
        return []
    return sorted(json.loads(path.read_text()))


def why_not(failed: Sequence[str]) -> str | None:
    """Why it would not help to run these again; None if it may."""
    if not failed:
        return "the last run names no test that failed: see what ended it"
    if len(failed) > FAILED_MAX:
        return f"{len(failed)} tests failed; that is no matter of a busy machine"
    if any("::" not in test for test in failed):
        return "files could not be imported: " + ", ".join(failed)
    return None


if __name__ == "__main__":
    sys.exit(main())
