"""The store under test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.object_store.stores import STORES, Bucket, Simulated, StoreUnderTest
from tests.harness.s3_server import S3Server


@pytest.fixture(params=[*STORES, "s3"])
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUnderTest]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        yield Bucket(server.url(server.bucket()))
        return
    store = STORES[request.param](tmp_path)
    yield store
    if isinstance(store, Simulated):
        store.world.end()
