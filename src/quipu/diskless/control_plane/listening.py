"""Tells other nodes of this node's commits, and hears of theirs, by PostgreSQL's NOTIFY and LISTEN.

A notification is `SENDER OBJECT,... TOPIC:PARTITION:HIGH_WATERMARK,...`.  That of a moved log start
has no object, and -1 instead of the high watermark; it is part of the transaction that moves it,
which is rare.  That of a commit is sent right after the commit, in a transaction of its own:
PostgreSQL commits those that notify one at a time, which would make commits wait for each other.
Commits that follow each other within SEND_SECONDS share a notification, which takes a quarter as
much CPU as a commit.  A node that ends in between has told nobody; the others notice that by
looking at the newest objects once a second (missed_commits.py).

Listening has a connection of its own.  Whenever it is made, also the first time, commits may have
been missed: listeners are called with None (diskless.C9).
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from quipu.diskless.control_plane.interface import MOVED_START
from quipu.diskless.control_plane.listeners import Listeners
from quipu.diskless.control_plane.missed_commits import MissedCommits
from quipu.diskless.control_plane.postgres_pool import PostgresPool
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.values import LogKey
from quipu.model.ids import Offset
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

if TYPE_CHECKING:
    from psycopg import AsyncConnection

PAUSE_SECONDS: Final = 0.05  # before the first attempt to connect again; doubles
PAUSE_SECONDS_MAX: Final = 2.0
SEND_SECONDS: Final = 0.005  # between two notifications
LOOK_SECONDS: Final = 1.0  # between looks for commits that nobody told of
LOGS_MAX: Final = 80  # of one notification, which has at most 8000 bytes
OBJECTS_MAX: Final = 100
_LOOK_MAX: Final = 10_000  # objects of one look
_NOTIFY: Final = "SELECT pg_notify(diskless_channel_1(), p) FROM unnest(%s::text[]) p"
_NEWEST: Final = "SELECT coalesce(max(object_id), 0) FROM diskless_objects"
_LOOK: Final = ("SELECT object_id FROM diskless_objects WHERE object_id > %s AND run_count > 0 "
                "AND cardinality(outcomes) > 0 ORDER BY object_id LIMIT %s")

_log = logging.getLogger(__name__)


class CommitNotices:
    """Sends and hears notifications, from its first use until it is closed."""

    def __init__(self, pool: PostgresPool, listeners: Listeners, rng: Rng) -> None:
        self._sender = rng.token(8).hex()
        self._pool = pool
        self._listeners = listeners
        self._rng = rng
        self._listening: asyncio.Task[Any] | None = None
        self._sending: asyncio.Task[Any] | None = None
        self._marks: dict[LogKey, Offset] = {}  # to be sent
        self._objects: list[int] = []  # to be sent
        self._missed = MissedCommits(0)

    def listen(self) -> None:
        """Begin to listen, unless it has begun."""
        if self._listening is None:
            self._listening = spawn(self._listen(), "diskless commits of other nodes")

    def committed(self, object_id: int, high_watermarks: Mapping[LogKey, Offset]) -> None:
        """Tell the listeners of this node and all others of a commit."""
        self._missed.heard([object_id])
        if not high_watermarks:
            return
        loop = asyncio.get_running_loop()
        for log, high_watermark in high_watermarks.items():
            loop.call_soon(self._listeners.call, log, high_watermark)
            self._marks[log] = max(high_watermark, self._marks.get(log, Offset(0)))
        self._objects.append(object_id)
        if self._sending is None or self._sending.done():
            self._sending = spawn(self._send(), "notifications of diskless commits")

    def moved_payload(self, log: LogKey) -> str:
        """What other nodes are told when the start of a log has moved."""
        return f"{self._sender}  {log.topic_id}:{log.partition}:{MOVED_START}"

    def moved(self, log: LogKey) -> None:
        """Tell the listeners of this node that the start of a log may have moved."""
        asyncio.get_running_loop().call_soon(self._listeners.call, log, MOVED_START)

    async def close(self) -> None:
        """Send what is to be sent, and end."""
        if self._sending is not None:
            await asyncio.wait([self._sending])
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    async def _send(self) -> None:
        """Commits that end while a notification is sent, or soon after, share the next one."""
        while self._marks:
            marks, objects = list(self._marks.items()), self._objects
            self._marks, self._objects = {}, []
            try:
                await self._pool.read(_NOTIFY, (list(_payloads(self._sender, objects, marks)),))
            except ControlPlaneUnavailable as error:  # others will look by themselves
                _log.warning("other nodes were not told of diskless commits: %s", error)
            await asyncio.sleep(SEND_SECONDS)

    # -- hearing

    async def _listen(self) -> None:
        pause = PAUSE_SECONDS
        while True:
            try:
                connection = await self._pool.connect()
                try:
                    await self._begin(connection)
                    pause = PAUSE_SECONDS
                    await self._hear(connection)
                finally:
                    await connection.close()
            except Exception as error:  # noqa: BLE001 whatever it is, listening goes on
                if not self._pool.is_lost(error):
                    _log.exception("listening to diskless commits failed; it goes on")
                else:
                    _log.warning("no notifications of diskless commits: %s; trying again",
                                 self._pool.shown(error))
            await asyncio.sleep(pause * (0.5 + self._rng.random()))
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    async def _begin(self, connection: "AsyncConnection[Any]") -> None:
        row = await (await connection.execute("SELECT diskless_channel_1()")).fetchone()
        assert row is not None
        await connection.execute(f"LISTEN {row[0]}".encode())
        row = await (await connection.execute(_NEWEST)).fetchone()
        assert row is not None
        self._missed = MissedCommits(row[0])
        self._listeners.call(None, Offset(-1))  # diskless.C9

    async def _hear(self, connection: "AsyncConnection[Any]") -> None:
        while True:
            async for each in connection.notifies(timeout=LOOK_SECONDS):
                self._heard(each.payload)
            rows = await connection.execute(_LOOK, (self._missed.floor, _LOOK_MAX))
            if self._missed.look([row[0] for row in await rows.fetchall()]):
                self._listeners.call(None, Offset(-1))  # diskless.C9

    def _heard(self, payload: str) -> None:
        sender, _, text = payload.partition(" ")
        if sender == self._sender:
            return
        try:
            objects, commits = _parsed(text)
        except ValueError:
            self._listeners.call(None, Offset(-1))  # not one of ours: look at everything
            return
        self._missed.heard(objects)
        for log, high_watermark in commits:
            self._listeners.call(log, high_watermark)


def _payloads(
    sender: str, objects: Sequence[int], marks: Sequence[tuple[LogKey, Offset]]
) -> Iterator[str]:
    logs = [f"{log.topic_id}:{log.partition}:{mark}" for log, mark in marks]
    parts = zip_longest(_joined(list(map(str, objects)), OBJECTS_MAX), _joined(logs, LOGS_MAX),
                        fillvalue="")
    return (f"{sender} {some_objects} {some_logs}" for some_objects, some_logs in parts)


def _joined(texts: Sequence[str], count: int) -> Iterator[str]:
    return (",".join(texts[start:start + count]) for start in range(0, len(texts), count))


def _parsed(text: str) -> tuple[list[int], list[tuple[LogKey, Offset]]]:
    objects, separator, logs = text.partition(" ")
    if not separator:
        raise ValueError("there are no logs")
    commits = []
    for each in logs.split(",") if logs else []:
        topic_id, partition, mark = each.split(":")
        commits.append((LogKey(UUID(topic_id), int(partition)), Offset(int(mark))))
    return [int(each) for each in objects.split(",")] if objects else [], commits
