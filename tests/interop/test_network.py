"""Stores in the cloud behind a wire that fails (tests/runtime/objects/test_cloud.py), on servers of
other makers.
"""

from collections.abc import Iterator

import pytest

from tests.harness.store_proxy import StoreProxy
from tests.interop.inherit import inherited
from tests.interop.servers import StoreServer
from tests.runtime.objects import test_cloud

pytestmark = pytest.mark.interop
globals().update(inherited(test_cloud, "s3_server", but={
    "test_what_errors_say",  # of moto, which knows no credentials; test_objects.py has its own
}))


@pytest.fixture
def proxy(server: StoreServer) -> Iterator[StoreProxy]:
    with StoreProxy(server.port) as proxy:
        yield proxy
