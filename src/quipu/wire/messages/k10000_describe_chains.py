"""DescribeChains — API key 10000, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * tells chains and their members, in the order in which records travel
    * no list of names asks for all; a name that is not there is left out
"""

from quipu.wire.fields import STRING, array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DescribeChainsRequest(Request, key=10_000, versions="0", flexible="0+"):
    """Tell about chains."""

    names: list[str] | None = array(STRING, nullable="0+", default=None)


class ChainMember(Struct):
    """A node of a chain.  `state`: 0 serving, 1 syncing, 2 offline."""

    node_id: int = int32()
    name: str = string()
    host: str = string()  # as Kafka clients reach it; empty if it is not registered
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    state: int = int8()
    is_fenced: bool = boolean()  # the controller does not hear of it


class DescribedChain(Struct):
    """A chain: members that serve first, the head before all, then syncing and offline ones."""

    name: str = string()
    epoch: int = int32()
    version: int = int32()
    topic_count: int = int32()  # topics that have a partition on it
    partition_count: int = int32()
    members: list[ChainMember] = array(ChainMember)


class DescribeChainsResponse(Response, key=10_000, versions="0", flexible="0+"):
    """The chains, by name."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    chains: list[DescribedChain] = array(DescribedChain)
