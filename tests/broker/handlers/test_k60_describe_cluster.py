"""DescribeCluster in every version."""

import pytest

from quipu.broker.handlers import k60_describe_cluster
from quipu.model.errors import Code
from quipu.model.settings import BrokerSettings
from quipu.wire.messages.k60_describe_cluster import DescribeClusterRequest
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


@pytest.mark.parametrize("version", versions(DescribeClusterRequest))
@looped
async def test_the_cluster_is_told(version: int) -> None:
    """K1, K12: its id, its controller, its brokers with their racks."""
    broker = await a_broker(settings=BrokerSettings(broker_rack="r1"))
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)

    response = await ask(broker, k60_describe_cluster, request, version)

    assert response.error_code == Code.NONE
    assert response.cluster_id == broker.cluster.state.cluster_id
    assert response.controller_id == 1
    assert [(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in response.brokers] == [
        (1, "kafka.test", 9092, "r1", False)]
    assert response.cluster_authorized_operations > 0


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (7, 115)])
@looped
async def test_controllers_have_no_endpoints_here(endpoint_type: int, code: int) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)

    response = await ask(await a_broker(), k60_describe_cluster, request, 2)

    assert (response.error_code, response.brokers) == (code, [])
    assert response.error_message
