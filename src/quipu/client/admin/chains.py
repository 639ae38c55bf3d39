"""Describes, creates, extends and removes chains of nodes, with Quipu's own Kafka requests."""

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
    DescribedOrder,
)
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse
from quipu.wire.messages.k10007_remove_chain import RemoveChainRequest, RemoveChainResponse

NO_REASON = "no reason was given"


class ChainMemberDescription(NamedTuple):
    """A node of a chain."""

    name: str
    node_id: int
    state: MemberState
    is_fenced: bool  # the controller gets no heartbeats from it
    rack: str | None
    address: str | None  # its address for Kafka clients; None if it is not registered


class OrderDescription(NamedTuple):
    """Partitions of a chain that have the same replicas in the same order."""

    preferred: tuple[int, ...]  # node ids; the first is the preferred leader
    members: tuple[tuple[int, MemberState], ...]  # as they are now, along which records travel
    epoch: int
    partition_count: int


class ChainDescription(NamedTuple):
    """A chain; its serving members in the order in which records travel, then the others."""

    name: str
    epoch: int
    version: int
    topic_count: int
    partition_count: int
    members: tuple[ChainMemberDescription, ...]
    orders: tuple[OrderDescription, ...]  # that its partitions have; none: an older broker


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


class ChainRemoval(NamedTuple):
    """How far the removal of a chain, or of one of its nodes, is."""

    is_done: bool
    partitions_left: int  # that are still there
    partitions_moving: int
    trouble: str | None  # why some do not move
    node_id: int | None  # of the node that is removed
    node_is_up: bool


def remove_chain(
    cluster: Cluster, name: str, node: str | None = None, *, replace_by: str | None = None,
    drain: bool = False, shorten: bool = False,
) -> ChainRemoval:
    """Take the next steps of a removal; to be repeated until it is done."""
    request = RemoveChainRequest(
        name=name, node_name=node, replace_by=replace_by, drain=drain, shorten=shorten)
    response, _ = ask_any(cluster, request, RemoveChainResponse)
    if response.error_code:
        what = f"chain {name}" if node is None else f"node {node} of chain {name}"
        raise broker_refused(
            response.error_code, f"cannot remove {what}", response.error_message or NO_REASON)
    return ChainRemoval(
        response.is_done, response.partitions_left, response.partitions_moving, response.trouble,
        response.node_id if response.node_id >= 0 else None, response.node_is_up)


def _made(response: CreateChainResponse | ExtendChainResponse, doing: str) -> ChainDescription:
    if response.error_code or response.chain is None:
        raise broker_refused(response.error_code, doing, response.error_message or NO_REASON)
    return _description(response.chain)


def _description(chain: DescribedChain) -> ChainDescription:
    return ChainDescription(
        chain.name, chain.epoch, chain.version, chain.topic_count, chain.partition_count,
        tuple(map(_member, chain.members)), tuple(map(_order, chain.orders)))


def _order(order: DescribedOrder) -> OrderDescription:
    members = zip(order.nodes, map(MemberState, order.states), strict=True)
    return OrderDescription(
        tuple(order.preferred), tuple(members), order.epoch, order.partition_count)


def _member(member: DescribedChainMember) -> ChainMemberDescription:
    return ChainMemberDescription(
        member.name, member.node_id, MemberState(member.state), member.is_fenced, member.rack,
        f"{member.host}:{member.port}" if member.host else None)
