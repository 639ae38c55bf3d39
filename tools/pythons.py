"""`make pythons`: runs the rooms' own tests on every other Python of this machine.

    python tools/pythons.py         each of 3.11 to 3.14 that is found, but for the one running this
    python tools/pythons.py 3.13    that one

Each gets a clone of the last commit in a temporary folder with an environment of its own.  Tests
that start clusters of processes, commands, Spark or stock clients are left out: they hardly depend
on the Python version.  A test that fails is run once more alone, and reported in either case; so is
a Python that is not found.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MINORS = (11, 12, 13, 14)
JOBS = "3"
ROOMS = ("broker", "chain", "client", "contract", "controller", "model", "pipeline", "raft",
         "runtime", "storage", "wire")
LEFT_OUT = ("tests/pipeline/spark", "tests/pipeline/kill", "tests/pipeline/standalone")


def find(minor: int) -> str | None:
    """Where Python 3.`minor` is: on the path if it starts there, or among pyenv's versions."""
    candidates = [shutil.which(f"python3.{minor}")]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += [str(each) for each in sorted(root.glob(f"versions/3.{minor}.*/bin/python3"))]
    for candidate in candidates:
        if candidate is not None and subprocess.run(
                [candidate, "-c", f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"],
                check=False, capture_output=True).returncode == 0:
            return candidate
    return None


def passes(minor: int, python: str, folder: Path) -> bool:
    """Clone, set up and test with one Python; say how it went."""
    clone = folder / f"quipu-3.{minor}"
    started = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    print(f"pythons: 3.{minor}: set up, then tests", flush=True)
    rooms = [f"tests/{room}" for room in ROOMS if (clone / "tests" / room).is_dir()]
    ignored = [f"--ignore={path}" for path in LEFT_OUT]
    pytest = [".venv/bin/python", "-m", "pytest", "-q"]
    done = _runs(clone, ["make", "--no-print-directory", "setup", f"PYTHON={python}"])
    if done and not _runs(clone, [*pytest, "-n", JOBS, "--dist", "loadgroup", *ignored, *rooms]):
        print(f"pythons: 3.{minor}: what failed is run again, alone", flush=True)
        done = _runs(clone, [*pytest, "--last-failed", "--last-failed-no-failures", "none",
                             *ignored, *rooms])
    word = "passed" if done else "FAILED"
    print(f"pythons: 3.{minor}: {word} after {time.monotonic() - started:.0f} s", flush=True)
    shutil.rmtree(clone)
    return done


def _runs(clone: Path, command: list[str]) -> bool:
    return subprocess.run(
        command, cwd=clone, stdin=subprocess.DEVNULL, check=False).returncode == 0


def main() -> int:
    """Test with each Python that is wanted; the exit code is the number of those that failed."""
    wanted = [int(name.removeprefix("3.")) for name in sys.argv[1:]] or [
        minor for minor in MINORS if minor != sys.version_info[1]]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quipu-pythons-") as folder:
        for minor in wanted:
            python = find(minor)
            if python is None:
                print(f"pythons: 3.{minor} is not on this machine: NOT TESTED", flush=True)
                failed += bool(sys.argv[1:])
            else:
                failed += not passes(minor, python, Path(folder))
    return failed


if __name__ == "__main__":
    sys.exit(main())
