"""DescribeChains — API key 10000, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * returns chains and their members, in the order in which records are sent
    * a null list of names means all chains; an unknown name is left out
    * says in which orders of its nodes, or of some of them, partitions are on a chain
"""

from quipu.wire.fields import INT8, INT32, STRING, array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DescribeChainsRequest(Request, key=10_000, versions="0", flexible="0+"):
    """Get chains and their members."""

    names: list[str] | None = array(STRING, nullable="0+", default=None)


class DescribedChainMember(Struct):
    """A node of a chain.  `state`: 0 serving, 1 syncing, 2 offline."""

    node_id: int = int32()
    name: str = string()
    host: str = string()  # its address for Kafka clients; empty if it is not registered
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    state: int = int8()
    is_fenced: bool = boolean()  # the controller gets no heartbeats from it


class DescribedOrder(Struct):
    """Partitions of a chain that have the same replicas in the same order."""

    preferred: list[int] = array(INT32)  # the nodes; the first is the preferred leader
    nodes: list[int] = array(INT32)  # the same nodes as they are now: head, others that serve, ...
    states: list[int] = array(INT8)  # of `nodes`
    epoch: int = int32()
    partition_count: int = int32()


class DescribedChain(Struct):
    """A chain: the head, the other serving members, then syncing and offline ones."""

    name: str = string()
    epoch: int = int32()
    version: int = int32()
    topic_count: int = int32()  # topics that have a partition on the chain, in any order
    partition_count: int = int32()
    members: list[DescribedChainMember] = array(DescribedChainMember)
    orders: list[DescribedOrder] = array(DescribedOrder, tag=0)  # its own first, then others


class DescribeChainsResponse(Response, key=10_000, versions="0", flexible="0+"):
    """The chains, by name."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    chains: list[DescribedChain] = array(DescribedChain)
