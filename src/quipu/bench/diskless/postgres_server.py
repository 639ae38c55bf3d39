"""A PostgreSQL server for a measurement: a process of its own, reached by a socket file.

    with temporary_postgres() as url:      # None if the wheel that ships PostgreSQL is missing
        ...

It syncs every transaction, as a real one does.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from quipu.launch.postgres import is_installed, postgres_server


@contextlib.contextmanager
def temporary_postgres() -> Iterator[str | None]:
    """The URL of an empty database; None if what it needs is not installed."""
    if not is_installed():
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="quipu-bench-pg-", ignore_cleanup_errors=True) as name,
        postgres_server(Path(name) / "postgres") as server,
    ):
        yield server.url
