"""The software under test; a test whose software is not there is skipped, and says why."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.object_store.stores import Bucket, StoreUnderTest
from tests.interop.brokers import NAMES, Broker, one, three
from tests.interop.kafka_tools import end_shared_driver
from tests.interop.servers import SERVERS, StoreServer, Versitygw
from tests.interop.software import folder_of


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


# -- Kafka and Quipu side by side; each is started by the first test that wants it

Running = Callable[[str, int], Broker]


@pytest.fixture(scope="session")
def running(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Brokers by name and number of nodes; started once."""
    known: dict[tuple[str, int], Broker] = {}
    with contextlib.ExitStack() as stack:
        def start(name: str, nodes: int) -> Broker:
            if (name, nodes) not in known:
                scratch = tmp_path_factory.mktemp(f"{name}-{nodes}")
                make = one if nodes == 1 else three
                known[name, nodes] = stack.enter_context(make(name, kafka_jars, scratch))
            return known[name, nodes]

        yield start
        end_shared_driver()


@pytest.fixture(params=NAMES)
def broker(request: pytest.FixtureRequest, running: Running) -> Broker:
    """One node: Kafka, then Quipu."""
    return running(request.param, 1)


@pytest.fixture(params=NAMES)
def cluster(request: pytest.FixtureRequest, running: Running) -> Broker:
    """Three nodes: Kafka, then Quipu."""
    return running(request.param, 3)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
