"""Connections to PostgreSQL, and what is repeated when one is lost.

A piece of work whose connection is lost, or that the server did not carry out for now, is carried
out again on another connection, with growing pauses, for RETRY_SECONDS.  So a change must be one
that may be carried out twice; who has another raises an error of its own when its COMMIT may have
been carried out (`may_be_committed`), which ends the repetitions.

Needs psycopg, which `quipu[postgres]` installs; it is imported when connections are made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from quipu.model.errors import SettingError
from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.rng import Rng

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Error
    from psycopg_pool import AsyncConnectionPool

CONNECT_SECONDS: Final = 5
RETRY_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 0.02  # before the first repetition; doubles up to the next value
PAUSE_SECONDS_MAX: Final = 1.0

T = TypeVar("T")
Configure = Callable[["AsyncConnection[Any]"], Awaitable[None]]
Work = Callable[["AsyncConnection[Any]"], Awaitable[T]]


class PostgresConnections:
    """A few connections, opened when they are needed.

    `configure` is called with each new one; what the URL says goes before `options`.  `subject` is
    what is stored, for people.
    """

    def __init__(
        self, url: str, rng: Rng, errors: DatabaseErrors, *, name: str, subject: str,
        connections_max: int, configure: Configure,
        options: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Raise `SettingError` if psycopg is missing, or the URL is wrong; nothing connects yet."""
        try:
            import psycopg  # noqa: PLC0415 only those that use it must have it
            import psycopg_pool  # noqa: PLC0415 the same
        except ImportError as error:
            raise SettingError(f"{subject} in PostgreSQL needs psycopg; install "
                               "quipu[postgres]") from error
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            raise SettingError("the URL of the PostgreSQL database is not valid; write "
                               "postgresql://USER:PASSWORD@HOST:PORT/DATABASE") from None
        self._operational: type[Error] = psycopg.OperationalError
        self.any_error: type[Error] = psycopg.Error
        self._errors = errors
        self._password = given.get("password")
        self._url = url
        self._options: dict[str, Any] = {
            option: value for option, value in {
                "connect_timeout": CONNECT_SECONDS, **options}.items() if option not in given}
        self._rng = rng
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] = psycopg_pool.AsyncConnectionPool(
            url, min_size=0, max_size=connections_max, open=False, name=name,
            timeout=CONNECT_SECONDS, reconnect_timeout=CONNECT_SECONDS, configure=configure,
            kwargs={"autocommit": True, **self._options})
        self._opening = asyncio.Lock()
        self._is_open = False
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.is_closed = False

    async def close(self) -> None:
        """Close the connections once work that is under way has ended; it is not repeated."""
        self.is_closed = True
        await self._quiet.wait()
        await self._pool.close()

    async def run(self, work: Work[T], *, is_repeatable_write: bool = False) -> T:
        """Run `work` on a connection; repeat it on others while the server is unavailable.

        After a write that is repeatable and may have been carried out, the outcome is unknown.
        """
        if self.is_closed:
            raise self._errors.closed(self._errors.closed_text)
        self._under_way += 1
        self._quiet.clear()
        try:
            await self._open()
            return await self._repeated(work, is_repeatable_write=is_repeatable_write)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def connect(self) -> "AsyncConnection[Any]":
        """A connection that is not one of the pool's."""
        import psycopg  # noqa: PLC0415 it is there

        return await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._options)

    def is_lost(self, error: BaseException) -> bool:
        """Whether an error is one of connections, which another connection may not have."""
        return isinstance(error, self._operational)

    def shown(self, error: BaseException) -> str:
        """An error for people, in one line and without the password."""
        text = " ".join(str(error).split()) or type(error).__name__
        return f"PostgreSQL: {text.replace(str(self._password), '...') if self._password else text}"

    async def _open(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self._pool.open()
                self._is_open = True

    async def _repeated(self, work: Work[T], *, is_repeatable_write: bool) -> T:
        pause, loop, is_unknown = PAUSE_SECONDS, asyncio.get_running_loop(), False
        ends = loop.time() + RETRY_SECONDS
        while True:
            is_sent = False
            try:
                async with self._pool.connection() as connection:
                    is_sent = True
                    return await work(connection)
            except self._operational as error:
                reason = error
                is_unknown |= is_repeatable_write and is_sent and may_be_committed(error)
            except self.any_error as error:
                self._refuse(error)
            if loop.time() >= ends or self.is_closed:
                await self._give_up(reason, is_unknown=is_unknown)
            await asyncio.sleep(pause * (0.5 + self._rng.random()))
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
            await self._pool.check()  # connections that were cut go now, not one at a time

    def _refuse(self, error: "Error") -> NoReturn:
        """The server does not want this, however often it is asked."""
        special = self._errors.by_state.get(error.sqlstate or "")
        if special is not None:
            raise special(self.shown(error)) from None
        raise self._errors.unusable(f"{self.shown(error)}; {self._errors.repair_text}") from None

    async def _give_up(self, reason: "Error", *, is_unknown: bool) -> NoReturn:
        if self.is_closed and not is_unknown:
            raise self._errors.closed(self._errors.closed_text)
        text = self.shown(await self._diagnosis(reason))
        if is_unknown:
            raise self._errors.unknown(f"{text}; the change may have been carried out")
        raise self._errors.unavailable(f"{text}; check the server, the user and its password")

    async def _diagnosis(self, error: "Error") -> "Error":
        """Why there is no connection: the pool itself only says that it waited too long."""
        try:
            connection = await self.connect()
        except self.any_error as reason:
            return reason
        await connection.close()
        return error


def may_be_committed(error: "Error") -> bool:
    """Whether the connection ended: an error that the server sends otherwise is a rollback."""
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P"))
