"""The settings of brokers, as they are in force."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER: Final = 4  # a type of resource
DEFAULT: Final = "default"
SOURCES: Final[Mapping[int, str]] = {
    2: "dynamic, of this broker", 3: "dynamic, of all brokers", 4: "configuration of the broker",
    5: DEFAULT}


class BrokerSetting(NamedTuple):
    """One setting of a broker."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    about: str


def describe_broker(cluster: Cluster, node_id: int) -> list[BrokerSetting]:
    """The settings of one broker, which is asked itself: only it knows its configuration."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(node_id), configuration_keys=None)],
        include_documentation=True)
    (result,) = cluster.connection(node_id).ask(request, DescribeConfigsResponse).results
    if result.error_code:
        raise broker_refused(
            result.error_code, f"cannot read the settings of broker {node_id}",
            result.error_message)
    return [BrokerSetting(each.name, each.value, SOURCES.get(each.config_source, "?"),
                          each.is_sensitive, each.read_only, each.documentation or "")
            for each in result.configs]
