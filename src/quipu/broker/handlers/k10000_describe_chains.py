"""DescribeChains — API key 10000, version 0.  Quipu's own.

Behaviour
    * responds with chains by name, and their members in the order in which records travel
    * topics and partitions are those on the nodes of a chain in any order, or on some of them; the
      orders that there are, and the members of each, are listed
    * no list of names asks for all; a name that does not exist is left out
    * addresses are those of the listener that the request came by; a node that has no such
      listener has none
    * any node responds, from its own metadata, also while there is no controller
"""

from quipu.broker.serving.context import Broker, Context
from quipu.controller.chains import ChainView, MemberView, OrderView, describe
from quipu.model.listeners import ClientListener
from quipu.wire.messages.k10000_describe_chains import (
    DescribeChainsRequest,
    DescribeChainsResponse,
    DescribedChain,
    DescribedChainMember,
    DescribedOrder,
)


def handle(
    broker: Broker, request: DescribeChainsRequest, context: Context
) -> DescribeChainsResponse:
    views = describe(broker.cluster.state, request.names)
    return DescribeChainsResponse(
        chains=[described(view, context.listener) for view in views])


def described(view: ChainView, listener: ClientListener) -> DescribedChain:
    """A chain as the response has it, with the addresses of `listener`."""
    chain = view.chain
    return DescribedChain(
        name=chain.name, epoch=chain.epoch, version=chain.version,
        topic_count=view.topic_count, partition_count=view.partition_count,
        members=[_member(member, listener) for member in view.members],
        orders=[_order(order) for order in view.orders])


def _order(order: OrderView) -> DescribedOrder:
    return DescribedOrder(
        preferred=list(order.preferred), epoch=order.chain.epoch,
        nodes=[member.broker.node_id for member in order.members],
        states=[member.state for member in order.members], partition_count=order.partition_count)


def _member(member: MemberView, listener: ClientListener) -> DescribedChainMember:
    broker = member.broker
    endpoint = broker.endpoint(listener.name)
    host, port = ("", 0) if endpoint is None else (endpoint.host, endpoint.port)
    return DescribedChainMember(
        node_id=broker.node_id, name=broker.name, host=host, port=port, rack=broker.rack,
        state=member.state, is_fenced=broker.fenced)
