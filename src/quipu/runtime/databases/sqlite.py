"""A SQLite file, whose statements run in threads.

WAL mode; a change is one transaction, synced before it returns.  Reads have a connection of their
own, so they do not wait for writes, and see every write that has returned.  Several processes of
one machine may use the same file, and wait for each other's writes.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.spawn import run_to_end
from quipu.runtime.workers import Workers

BUSY_SECONDS: Final = 5.0  # how long a write waits for another process's
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class SqliteFile:
    """A SQLite file, opened when it is first used, and created if it does not exist.

    `setup` is executed on each new connection.
    """

    def __init__(
        self, path: str, errors: DatabaseErrors, *, name: str, setup: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._errors = errors
        self._name = name
        self._setup = setup
        self._workers = Workers()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._writing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._is_closed = False

    async def read(self, work: Work[T]) -> T:
        """Run `work` in one transaction, so that all that it reads is of one moment."""
        return await self._run(self._reading, lambda: self._do_read(work))

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction; the outcome is unknown only if COMMIT fails."""
        return await self._run(self._writing, lambda: self._do_write(work))

    async def close(self) -> None:
        """Close the file once work that is under way has ended."""
        self._is_closed = True
        async with self._writing, self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    await self._workers.run(connection.close)
            self._reader = self._writer = None
            self._workers.close()

    async def _run(self, lock: asyncio.Lock, work: Callable[[], T]) -> T:
        """Run `work` in a thread; the connection stays locked until it ends, also if the caller
        is cancelled.
        """
        async def locked() -> T:
            async with lock:
                if self._is_closed:
                    raise self._errors.closed(self._errors.closed_text)
                return await self._workers.run(work)

        return await run_to_end(locked(), self._name)

    # --- in threads -------------------------------------------------------------------------

    def _do_read(self, work: Work[T]) -> T:
        with self._mapped():
            if self._reader is None:
                self._reader = self._connect()
            self._reader.execute("BEGIN")
            try:
                return work(self._reader)
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("ROLLBACK")

    def _do_write(self, work: Work[T]) -> T:
        with self._mapped():
            if self._writer is None:
                self._writer = self._connect()
            self._writer.execute("BEGIN IMMEDIATE")
        try:
            with self._mapped():
                result = work(self._writer)
        except BaseException:
            self._roll_back(self._writer)
            raise
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(self._writer)
            raise self._errors.unknown(f"{self._path}: COMMIT failed: {error}") from error
        return result

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """Roll back; a connection that cannot is closed, and opened anew for the next write."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._writer = None
            with suppress(sqlite3.Error):
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        """Open the file; the thread that uses a connection changes, but there is one at a time."""
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")  # reads see all commits
            connection.execute("PRAGMA synchronous = FULL")  # synced at COMMIT
            for statement in self._setup:
                connection.execute(statement)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Map SQLite's errors to those of the file's user: nothing was changed."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise self._errors.unavailable(
                f"{self._path}: {error}; check the file, its directory and the disk") from error
        except sqlite3.Error as error:
            raise self._errors.unusable(
                f"{self._path}: {error}; {self._errors.repair_text}") from error
