"""ExtendChain — API key 10002, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * adds a registered node to the end of a chain; it is sent every record of the
      chain, and serves once it has caught up
"""

from quipu.wire.fields import int16, int32, string, struct
from quipu.wire.messages.k10000_describe_chains import DescribedChain
from quipu.wire.schema import Request, Response


class ExtendChainRequest(Request, key=10_002, versions="0", flexible="0+"):
    """Add a node to a chain."""

    name: str = string()
    node_name: str = string()
    timeout: int = int32(default=30_000)


class ExtendChainResponse(Response, key=10_002, versions="0", flexible="0+"):
    """The chain with its new member, which is syncing; null if it was not added."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    chain: DescribedChain | None = struct(DescribedChain, nullable="0+")
