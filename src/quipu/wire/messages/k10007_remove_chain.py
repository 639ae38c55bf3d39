"""RemoveChain — API key 10007, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * takes out a chain, or one node of it, and moves the partitions there elsewhere first
    * responds at once with how far it is; to be sent again until it is done
"""

from quipu.wire.fields import boolean, int16, int32, string
from quipu.wire.schema import Request, Response


class RemoveChainRequest(Request, key=10_007, versions="0", flexible="0+"):
    """Take out a chain, or one node of it."""

    name: str = string()
    node_name: str | None = string(nullable="0+", default=None)  # null: the whole chain
    replace_by: str | None = string(nullable="0+", default=None)  # the node in its place
    drain: bool = boolean()  # of a whole chain: move its partitions to other chains
    shorten: bool = boolean()  # partitions may have fewer replicas afterwards
    timeout: int = int32(default=30_000)


class RemoveChainResponse(Response, key=10_007, versions="0", flexible="0+"):
    """How far it is."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    is_done: bool = boolean()
    partitions_left: int = int32()
    partitions_moving: int = int32()
    trouble: str | None = string(nullable="0+", default=None)  # why some do not move
    node_id: int = int32(default=-1)  # of the node that was named
    node_is_up: bool = boolean()
