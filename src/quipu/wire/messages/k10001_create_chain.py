"""CreateChain — API key 10001, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * creates a chain of registered nodes that are in no other chain, in the order of their numbers
    * nodes are given by name, `<chain>-<number>`; none at all means every
      registered node whose name begins with the chain's
"""

from quipu.wire.fields import STRING, array, boolean, int16, int32, string, struct
from quipu.wire.messages.k10000_describe_chains import DescribedChain
from quipu.wire.schema import Request, Response


class CreateChainRequest(Request, key=10_001, versions="0", flexible="0+"):
    """Create a chain."""

    name: str = string()
    node_names: list[str] = array(STRING)
    timeout: int = int32(default=30_000)
    validate_only: bool = boolean()


class CreateChainResponse(Response, key=10_001, versions="0", flexible="0+"):
    """The new chain; null if none was created."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    chain: DescribedChain | None = struct(DescribedChain, nullable="0+")
