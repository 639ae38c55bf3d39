"""DescribeRacks — API key 10005, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * returns the racks of the cluster with their states, and what follows from them for diskless
      topics
    * the controller responds; other nodes forward the request to it
"""

from quipu.wire.fields import INT32, array, boolean, int8, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DescribeRacksRequest(Request, key=10_005, versions="0", flexible="0+"):
    """Get all racks."""


class DescribedRack(Struct):
    """A rack.  `state`: 0 healthy, 1 degraded, 2 unavailable."""

    name: str = string()
    state: int = int8()
    degraded_since_ms: int = int64()  # since 1970 UTC; 0: one of its brokers is up
    brokers: list[int] = array(INT32)  # all that are registered
    eligible_brokers: list[int] = array(INT32)  # those that may get replicas


class DescribeRacksResponse(Response, key=10_005, versions="0", flexible="0+"):
    """The racks by name, and how the controller places diskless partitions."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    controller_id: int = int32(default=-1)
    effective_rf: int = int32()  # replicas that each diskless partition should have
    auto_reconcile: bool = boolean()
    rack_unavailable_threshold_ms: int = int64()
    reassignment_backlog: int = int64()  # partitions that are not at their target
    racks: list[DescribedRack] = array(DescribedRack)
