"""DescribeChains — API key 10000, version 0.  Quipu's own.

Behaviour
    * tells chains by name, with their members in the order in which records travel
    * no list of names asks for all; a name that is not there is left out
    * any node answers, from what it knows: also while there is no controller
"""

from quipu.broker.context import Broker, Context
from quipu.controller.chains import ChainView, describe
from quipu.wire.messages.k10000_describe_chains import (
    ChainMember,
    DescribeChainsRequest,
    DescribeChainsResponse,
    DescribedChain,
)


def handle(
    broker: Broker, request: DescribeChainsRequest, context: Context
) -> DescribeChainsResponse:
    del context
    views = describe(broker.cluster.state, request.names)
    return DescribeChainsResponse(chains=list(map(described, views)))


def described(view: ChainView) -> DescribedChain:
    """A chain as it is told."""
    chain = view.chain
    return DescribedChain(
        name=chain.name, epoch=chain.epoch, version=chain.version,
        topic_count=view.topic_count, partition_count=view.partition_count,
        members=[
            ChainMember(node_id=broker.node_id, name=broker.name, host=broker.host,
                        port=broker.port, rack=broker.rack, state=state,
                        is_fenced=broker.fenced)
            for broker, state, _ in view.members])
