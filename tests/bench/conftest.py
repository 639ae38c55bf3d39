"""A fake broker for every test that asks for one."""

from collections.abc import Iterator

import pytest

from tests.bench.fake_broker import FakeBroker, fake_broker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker() as made:
        yield made
