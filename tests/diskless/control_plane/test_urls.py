"""The URLs of control planes."""

import subprocess
import sys

import pytest

from quipu.diskless.control_plane.migrations import Migration, pending
from quipu.diskless.control_plane.postgres import PostgresControlPlane
from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.diskless.control_plane.urls import (
    open_control_plane,
    parse_control_plane_url,
    public_url,
)
from quipu.diskless.errors import UnusableControlPlane
from quipu.model.errors import SettingError
from quipu.runtime.rng import SystemRng
from tests.looped import looped


@looped
async def test_a_url_says_which_control_plane_it_is() -> None:
    """D2: a file for one node, a database for a cluster; nothing connects."""
    sqlite = open_control_plane("sqlite:///var/a%20b.sqlite", rng=SystemRng())
    assert isinstance(sqlite, SqliteControlPlane)
    postgres = open_control_plane("postgresql://u:p@h/d", rng=SystemRng())
    assert isinstance(postgres, PostgresControlPlane)
    assert parse_control_plane_url("sqlite:///var/a%20b").place == "/var/a b"
    assert not parse_control_plane_url("sqlite:///a").is_shared
    assert parse_control_plane_url("postgres://u:p@h/d").is_shared
    assert "p@" not in repr(parse_control_plane_url("postgres://u:p@h/d"))
    await sqlite.close()
    await postgres.close()


@pytest.mark.parametrize("url", [
    "", "sqlite:", "sqlite://a/b", "sqlite:///", "sqlite:///a/../b", "sqlite:///a?b=c",
    "sqlite:///a\n", "postgresql://", "mysql://u:s3cret@h/d", "u:s3cret@h", "x" * 5000,
    "postgresql://[u:s3cret@h/d", "sqlite:///a%00"])
def test_a_wrong_url_is_refused_with_what_to_write(url: str) -> None:
    """D2: and without the password."""
    with pytest.raises(SettingError, match="write sqlite:///ABSOLUTE/PATH") as raised:
        parse_control_plane_url(url)
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in public_url(url)


@looped
async def test_a_wrong_database_is_refused() -> None:
    """D2: libpq's own rules, without the password."""
    with pytest.raises(SettingError, match="write postgresql://") as raised:
        open_control_plane("postgresql://u:s3cret@h/d?nonsense=1", rng=SystemRng())
    assert "s3cret" not in str(raised.value)


def test_a_public_url_has_no_user_and_no_password() -> None:
    """D2: for logs and pages."""
    assert public_url("postgresql://u:s3cret@h1:1,h2:2/d?sslmode=require&password=s3cret") == (
        "postgresql://h1:1,h2:2/d")
    assert public_url("postgresql://u:s3:cr@et@h/d") == "postgresql://h/d"
    assert public_url("sqlite:///a/b") == "sqlite:///a/b"


def test_psycopg_is_imported_only_when_it_is_used() -> None:
    """D2: a single node does not need it."""
    program = ("import sys; import quipu.diskless.control_plane.urls; "
               "sys.exit('psycopg' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_migrations_that_are_missing_are_carried_out() -> None:
    """D2: in order; a newer schema is refused."""
    known = [Migration(version, ()) for version in (1, 2, 3)]
    assert [each.version for each in pending(None, known)] == [1, 2, 3]
    assert [each.version for each in pending(2, known)] == [3]
    assert pending(3, known) == []
    with pytest.raises(UnusableControlPlane, match="version 4"):
        pending(4, known)
