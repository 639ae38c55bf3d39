"""The backend under test."""

from pathlib import Path

import pytest

from tests.contract.metadata_backend.backends import (
    NAMES,
    BackendUnderTest,
    Memory,
    Postgres,
    Sqlite,
    Topic,
)


@pytest.fixture(params=NAMES)
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> BackendUnderTest:
    match request.param:
        case "postgres":
            return Postgres(request.getfixturevalue("postgres_server"))
        case "sqlite":
            return Sqlite(tmp_path)
        case "topic":
            return Topic(tmp_path)
        case name:
            return Memory(is_simple=name == "simple")
