"""The stores that segments are written to; tests/interop has others."""

from pathlib import Path

import pytest

from tests.harness.s3_server import S3Server


@pytest.fixture(params=["memory", "local", "s3"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "memory":
        return "memory:"
    if request.param == "local":
        return (tmp_path / "objects").as_uri()
    server: S3Server = request.getfixturevalue("s3_server")
    return server.url(server.bucket())
