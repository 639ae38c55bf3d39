"""Chains: described, created, extended and removed by requests to one node."""

import pytest

from quipu.broker.handlers import (
    k10000_describe_chains,
    k10001_create_chain,
    k10002_extend_chain,
    k10007_remove_chain,
)
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k10000_describe_chains import DescribeChainsRequest
from quipu.wire.messages.k10001_create_chain import CreateChainRequest
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest
from quipu.wire.messages.k10007_remove_chain import RemoveChainRequest
from tests.broker.clusters import a_broker, ask
from tests.looped import looped


@looped
async def test_a_chain_is_removed_in_steps() -> None:
    """V7, K6: what cannot be is refused with what to do; an empty chain goes at once."""
    broker = await a_broker(NewTopic("t"))
    for request, why in (
            (RemoveChainRequest(name="x"), "no chain x"),
            (RemoveChainRequest(name="quipu"), "1 partitions of 1 topics"),
            (RemoveChainRequest(name="quipu", drain=True), "no chain but quipu"),
            (RemoveChainRequest(name="quipu", node_name="quipu-9"), "no node called 'quipu-9'"),
            (RemoveChainRequest(name="quipu", node_name="quipu-0", shorten=True), "alone")):
        with pytest.raises(QuipuError, match=why):
            await ask(broker, k10007_remove_chain, request, 0)
    await broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
    response = await ask(broker, k10007_remove_chain, RemoveChainRequest(
        name="quipu", node_name="quipu-0"), 0)
    assert (response.is_done, response.node_id, response.node_is_up) == (True, 1, True)
    described = await ask(broker, k10000_describe_chains, DescribeChainsRequest(), 0)
    assert described.chains == []


@looped
async def test_a_chain_of_one_is_told() -> None:
    """V2, V6: who is in it, where, and what is on it."""
    broker = await a_broker(NewTopic("t", 2), NewTopic("u"))

    response = await ask(broker, k10000_describe_chains, DescribeChainsRequest(), 0)
    none = await ask(broker, k10000_describe_chains, DescribeChainsRequest(names=["x"]), 0)

    (chain,) = response.chains
    (member,) = chain.members
    assert (chain.name, chain.topic_count, chain.partition_count) == ("quipu", 2, 3)
    assert (member.node_id, member.name, member.state, member.is_fenced) == (
        1, "quipu-0", 0, False)
    assert (member.host, member.port) == ("kafka.test", 9092)
    assert none.chains == []


@looped
async def test_chains_are_made_of_nodes_that_are_free() -> None:
    """V4, V6: a node belongs to one chain, and says by its name to which."""
    broker = await a_broker()
    with pytest.raises(QuipuError) as exists:
        await ask(broker, k10001_create_chain, CreateChainRequest(name="quipu"), 0)
    with pytest.raises(QuipuError, match="no node called b-0"):
        await ask(broker, k10001_create_chain, CreateChainRequest(name="b"), 0)
    with pytest.raises(QuipuError, match="quipu-0 is in chain quipu already"):
        await ask(broker, k10002_extend_chain,
                  ExtendChainRequest(name="quipu", node_name="quipu-0"), 0)

    assert exists.value.code is Code.DUPLICATE_RESOURCE
