"""The control plane under test."""

from pathlib import Path

import pytest

from tests.contract.control_plane.planes import (
    NAMES,
    ByUrl,
    Memory,
    PlaneUnderTest,
    postgres_url,
    sqlite_url,
)


@pytest.fixture(params=NAMES)
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> PlaneUnderTest:
    match request.param:
        case "postgres":
            return ByUrl(postgres_url(request.getfixturevalue("postgres_server")))
        case "sqlite":
            return ByUrl(sqlite_url(tmp_path))
        case _:
            return Memory()
