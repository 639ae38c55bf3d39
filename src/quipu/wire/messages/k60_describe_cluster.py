"""DescribeCluster — API key 60, versions 0-2.

Behaviour
    * returns the cluster's id, its brokers and its controller
Versions
    v0  flexible from the start
    v1  endpoint type: brokers (1) or controllers (2)
    v2  fenced brokers too, if requested
"""

from quipu.wire.fields import array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    """Get the cluster's id, controller and brokers."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    """A broker and its address."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    """The cluster."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x8000_0000)
