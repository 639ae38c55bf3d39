"""URLs of metadata stores."""

import pytest

from quipu.model.errors import SettingError
from quipu.remote.metadata.storage.urls import parse_metadata_url
from quipu.runtime.databases.urls import DatabaseUrl

GOOD = [
    ("memory:", DatabaseUrl("memory")),
    ("topic:", DatabaseUrl("topic")),
    ("sqlite:///var/lib/quipu/metadata.sqlite",
     DatabaseUrl("sqlite", "/var/lib/quipu/metadata.sqlite")),
    ("sqlite:////var/a%20b.sqlite", DatabaseUrl("sqlite", "/var/a b.sqlite")),
    ("postgresql://u:p@h:5432/db?sslmode=require",
     DatabaseUrl("postgresql", "postgresql://u:p@h:5432/db?sslmode=require")),
    ("postgres://h/db", DatabaseUrl("postgresql", "postgres://h/db")),
]
BAD = ["", "nothing", "memory:x", "memory://", "topic:a", "topic:?a", "sqlite:", "sqlite://",
       "sqlite:///", "sqlite:///dir/", "sqlite://host/path", "sqlite:///a/../b", "sqlite:///a?b=1",
       "sqlite:///a#b", "sqlite:///a%00b", "postgresql:", "postgresql://", "mysql://u:s3cret@h/db",
       "postgresql://[s3cret", "x" * 5000, "memory:\n", "s3cret"]


@pytest.mark.parametrize(("text", "expected"), GOOD)
def test_a_url_says_where_metadata_is(text: str, expected: DatabaseUrl) -> None:
    """R9: one function reads all of them."""
    assert parse_metadata_url(text) == expected


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_url_is_refused_with_what_to_write(text: str) -> None:
    """R9: the error never shows a password."""
    with pytest.raises(SettingError, match="write sqlite:///ABSOLUTE/PATH") as raised:
        parse_metadata_url(text)
    assert "s3cret" not in str(raised.value)


def test_the_parts_of_a_url_do_not_show_a_password() -> None:
    """R9: neither does a log line with the object in it."""
    assert "p4ss" not in repr(parse_metadata_url("postgresql://u:p4ss@h/db"))
