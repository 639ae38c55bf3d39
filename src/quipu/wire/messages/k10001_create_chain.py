"""CreateChain — API key 10001, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * makes a chain of registered nodes that belong to no other, in the order of their numbers
    * nodes are given by name, `<chain>-<number>`; none at all stands for every node whose name
      says that it belongs to the chain
"""

from quipu.wire.fields import STRING, array, boolean, int16, int32, string, struct
from quipu.wire.messages.k10000_describe_chains import DescribedChain
from quipu.wire.schema import Request, Response


class CreateChainRequest(Request, key=10_001, versions="0", flexible="0+"):
    """Make a chain."""

    name: str = string()
    node_names: list[str] = array(STRING)
    timeout: int = int32(default=30_000)
    validate_only: bool = boolean()


class CreateChainResponse(Response, key=10_001, versions="0", flexible="0+"):
    """The chain as it was made; null if it was not."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    chain: DescribedChain | None = struct(DescribedChain, nullable="0+")
