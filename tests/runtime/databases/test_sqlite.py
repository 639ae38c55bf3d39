"""A SQLite file: whoever uses it sees its own errors, by whether a change was carried out."""

import sqlite3
from pathlib import Path

import pytest

from quipu.model.errors import QuipuError
from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.databases.sqlite import SqliteFile
from tests.looped import looped

PARENTS = "CREATE TABLE IF NOT EXISTS parents (id INTEGER PRIMARY KEY)"
CHILDREN = ("CREATE TABLE IF NOT EXISTS children (parent INTEGER REFERENCES parents "
            "DEFERRABLE INITIALLY DEFERRED)")
SETUP = (PARENTS, CHILDREN, "PRAGMA foreign_keys = ON")


class Unavailable(QuipuError):
    """Nothing was changed."""


class Unknown(QuipuError):
    """A change was carried out, or was not."""


class Unusable(QuipuError):
    """What is stored is damaged."""


class Closed(QuipuError):
    """The file is closed."""


ERRORS = DatabaseErrors(Unavailable, Unknown, Unusable, Closed, closed_text="it is closed",
                        repair_text="restore it")


def count(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT count(*) FROM children").fetchone()
    return int(number)


@looped
async def test_only_a_commit_that_fails_has_an_unknown_outcome(tmp_path: Path) -> None:
    """R7, D2: other errors mean that nothing was changed; writes go on after each of them."""
    file = SqliteFile(str(tmp_path / "file.sqlite"), ERRORS, name="test", setup=SETUP)
    with pytest.raises(Unknown, match="COMMIT failed"):
        await file.write(lambda c: c.execute("INSERT INTO children VALUES (1)"))
    with pytest.raises(Unavailable, match="no such table"):
        await file.write(lambda c: c.execute("INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(Unusable, match=r"UNIQUE.*; restore it"):
        await file.write(lambda c: c.execute("INSERT INTO parents VALUES (1), (1)"))
    with pytest.raises(Unavailable, match="no such table"):
        await file.read(lambda c: c.execute("SELECT * FROM nowhere"))
    assert await file.read(count) == 0
    await file.write(lambda c: c.execute("INSERT INTO parents VALUES (1)"))
    await file.write(lambda c: c.execute("INSERT INTO children VALUES (1)"))
    assert await file.read(count) == 1
    await file.close()
    with pytest.raises(Closed, match="it is closed"):
        await file.read(count)
