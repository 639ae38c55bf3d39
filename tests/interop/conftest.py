"""The software under test; a test whose software is not there is skipped, and says why."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.object_store.stores import Bucket, StoreUnderTest
from tests.interop.servers import SERVERS, StoreServer, Versitygw
from tools.interop import PROBLEMS, SOFTWARE


def folder_of(name: str) -> Path:
    """Where a software is installed; the test is skipped if it is not."""
    problem = json.loads(os.environ.get(PROBLEMS, "{}")).get(name)
    (software,) = (each for each in SOFTWARE if each.name == name)
    if problem is None and not software.folder.is_dir():
        problem = f"{name} is not installed: run `make interop`"
    if problem is not None:
        pytest.skip(problem)
    return software.folder


def has_attributes(folder: Path) -> bool:
    """Does the file system keep extended attributes of users?"""
    try:
        os.setxattr(folder, "user.quipu", b"1")
    except OSError:
        return False
    return True


@pytest.fixture(scope="session", params=SERVERS, ids=lambda each: each.software_name)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreServer]:
    """A server, with its credentials in the environment while it runs."""
    kind: type[StoreServer] = request.param
    software = folder_of(kind.software_name)
    scratch = tmp_path_factory.mktemp(kind.software_name)
    if kind is Versitygw and not has_attributes(scratch):
        pytest.skip(f"versitygw needs extended attributes of users, which the file system of "
                    f"{scratch.parent} does not have: set TMPDIR to one that has")
    with pytest.MonkeyPatch.context() as patch, kind(software, scratch) as running:
        for name, value in running.variables.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def under_test(server: StoreServer) -> StoreUnderTest:
    store = Bucket(server.url(server.bucket()))
    store.versions_by_bytes = server.versions_by_bytes
    store.keys_are_paths = server.keys_are_paths
    return store


@pytest.fixture
def s3_server(server: StoreServer) -> StoreServer:
    """For tests that are written for the S3 server of tests/harness, which has the same methods."""
    return server


@pytest.fixture
def store_url(server: StoreServer) -> str:
    return server.url(server.bucket())


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The jars of Apache Kafka, and what they need."""
    return folder_of("kafka") / "jars"
