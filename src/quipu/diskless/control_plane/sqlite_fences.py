"""Fences of a control plane in SQLite (diskless.C10; see fences.py), and whose it is.

Functions over a connection, for the threads of sqlite.py.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from quipu.diskless.control_plane.fences import fence_of, fences_of
from quipu.diskless.control_plane.sqlite_reads import known_objects
from quipu.diskless.control_plane.sqlite_tables import object_id_of

_FENCE: Final = (
    "INSERT INTO diskless_fences (writer, sequence) VALUES (?, ?) ON CONFLICT (writer) "
    "DO UPDATE SET sequence = max(sequence, excluded.sequence)")
_IS_FENCED: Final = "SELECT 1 FROM diskless_fences WHERE writer = ? AND sequence >= ?"


def fence(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    """No key is committed from now on."""
    connection.executemany(_FENCE, fences_of(keys))


def is_fenced(connection: sqlite3.Connection, key: str) -> bool:
    """Whether a key that is not known can never be committed."""
    return connection.execute(_IS_FENCED, fence_of(key)).fetchone() is not None


def condemn_objects(connection: sqlite3.Connection, keys: Sequence[str]) -> set[str]:
    unknown = set(keys) - known_objects(connection, keys)
    fence(connection, unknown)
    return unknown


def forget_objects(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    gone = [key for key in keys if connection.execute(
        "DELETE FROM diskless_objects WHERE object_key = ? AND marked_ms IS NOT NULL",
        (key,)).rowcount]
    fence(connection, gone)


def is_restorable(connection: sqlite3.Connection, key: str) -> bool:
    """Whether an object that is found in the store may be entered."""
    return object_id_of(connection, key) is None and not is_fenced(connection, key)


def identity(connection: sqlite3.Connection) -> UUID:
    (text,) = connection.execute("SELECT identity FROM diskless_identity").fetchone()
    return UUID(text)


def bind(connection: sqlite3.Connection, cluster_id: str) -> str:
    """Let it belong to a cluster, unless it does already (diskless.C11)."""
    connection.execute("INSERT OR IGNORE INTO diskless_cluster (number, cluster_id) VALUES (1, ?)",
                       (cluster_id,))
    bound: str = connection.execute("SELECT cluster_id FROM diskless_cluster").fetchone()[0]
    return bound
