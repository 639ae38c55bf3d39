"""Every test of the contract runs in each of the worlds."""

from collections.abc import Callable

import pytest

from tests.contract.partition_log.worlds import WORLDS, World


@pytest.fixture(params=sorted(WORLDS))
def make(request: pytest.FixtureRequest) -> Callable[..., World]:
    """A world of each kind, not opened yet: `make(path, **settings of the log)`."""
    return WORLDS[request.param]
