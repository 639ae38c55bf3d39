"""Describes, creates and extends chains of nodes, with Quipu's own Kafka requests."""

from collections.abc import Sequence
from typing import NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.model.chains import MemberState
from quipu.model.errors import Code
from quipu.wire.messages.k10000_describe_chains import (
    DescribeChainsRequest,
    DescribeChainsResponse,
    DescribedChain,
    DescribedChainMember,
)
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse

NO_REASON = "no reason was given"


class ChainMemberDescription(NamedTuple):
    """A node of a chain."""

    name: str
    node_id: int
    state: MemberState
    is_fenced: bool  # the controller gets no heartbeats from it
    rack: str | None
    address: str | None  # its address for Kafka clients; None if it is not registered


class ChainDescription(NamedTuple):
    """A chain; its serving members in the order in which records travel, then the others."""

    name: str
    epoch: int
    version: int
    topic_count: int
    partition_count: int
    members: tuple[ChainMemberDescription, ...]


def describe_chains(
    cluster: Cluster, names: Sequence[str] | None = None
) -> list[ChainDescription]:
    """Chains in the order of their names, all if none are named; unknown ones are left out."""
    request = DescribeChainsRequest(names=None if names is None else list(names))
    response = ask_any(cluster, request, DescribeChainsResponse).response
    if response.error_code:
        raise broker_refused(
            response.error_code, "cannot list chains", response.error_message or NO_REASON)
    return sorted(map(_description, response.chains), key=lambda chain: chain.name)


def create_chain(cluster: Cluster, name: str, nodes: Sequence[str]) -> ChainDescription:
    """Create a chain of nodes; if none are given, of every registered node named NAME-N."""
    request = CreateChainRequest(name=name, node_names=list(nodes))
    response, may_repeat = ask_any(cluster, request, CreateChainResponse)
    if response.error_code == Code.DUPLICATE_RESOURCE and may_repeat:
        (chain,) = describe_chains(cluster, [name])  # an earlier attempt created it
        return chain
    return _made(response, f"cannot create chain {name}")


def extend_chain(cluster: Cluster, name: str, node: str) -> ChainDescription:
    """Add a node to the end of a chain; it serves when it has caught up."""
    request = ExtendChainRequest(name=name, node_name=node)
    response, _ = ask_any(cluster, request, ExtendChainResponse)
    return _made(response, f"cannot add {node} to chain {name}")


def _made(response: CreateChainResponse | ExtendChainResponse, doing: str) -> ChainDescription:
    if response.error_code or response.chain is None:
        raise broker_refused(response.error_code, doing, response.error_message or NO_REASON)
    return _description(response.chain)


def _description(chain: DescribedChain) -> ChainDescription:
    return ChainDescription(
        chain.name, chain.epoch, chain.version, chain.topic_count, chain.partition_count,
        tuple(map(_member, chain.members)))


def _member(member: DescribedChainMember) -> ChainMemberDescription:
    return ChainMemberDescription(
        member.name, member.node_id, MemberState(member.state), member.is_fenced, member.rack,
        f"{member.host}:{member.port}" if member.host else None)
