"""Every test of connections is run over each transport."""

from collections.abc import Iterator

import pytest

from tests.runtime.net import frame_world

OVER_TRANSPORTS = {"test_server", "test_hangups", "test_admission"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in OVER_TRANSPORTS:
        metafunc.parametrize("_transport", frame_world.TRANSPORTS, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def _transport(request: pytest.FixtureRequest) -> Iterator[None]:
    name = getattr(request, "param", "plain")
    frame_world.TRANSPORT = frame_world.TRANSPORTS[name]
    yield
    frame_world.TRANSPORT = frame_world.TRANSPORTS["plain"]
