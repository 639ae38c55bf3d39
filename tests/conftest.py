"""What holds for every test: hypothesis repeats itself, and finds its budget in one place.

The default profile is deterministic: one commit, one result.  `HYPOTHESIS_PROFILE=soak` looks at
fresh examples, and at many more of them; `sim` takes its chance from --hypothesis-seed, and gives
state machines many more runs than a test has time for.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import CREDENTIALS, S3Server

SIM_EXAMPLES = 1_500
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")

# A shell's background job ignores Ctrl-C, and so would every program that a test starts from it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # machines that run tests are busy
)
settings.register_profile(
    "soak", settings.get_profile("default"), derandomize=False, max_examples=2_000,
)
settings.register_profile("sim", settings.get_profile("default"), derandomize=False, database=None)
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a simulation, let state machines run for longer than their tests say."""
    if PROFILE != "sim":
        return
    for item in items:
        machine = getattr(item, "cls", None)
        own = getattr(machine, "settings", None)
        if isinstance(own, settings):
            machine.settings = settings(own, max_examples=SIM_EXAMPLES)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for all tests of this process, and credentials in the environment."""
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    with S3Server() as server:
        yield server
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests of this process; each test has keys of its own."""
    server = PostgresServer()
    yield server
    server.stop()
