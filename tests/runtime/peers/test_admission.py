"""Which peers are accepted: secrets, clusters, and one process for each id."""

import asyncio

import pytest

from quipu.runtime.peers.peers import TcpPeers
from tests.runtime.peers.peer_cluster import (
    CHAIN,
    ONE,
    THREE,
    TWO,
    Cluster,
    fall_silent,
    introduce,
    run,
    until,
)


async def refused(cluster: Cluster, one: TcpPeers, two: TcpPeers, caplog: pytest.LogCaptureFixture,
                  why: str) -> None:
    introduce(one, two)
    await until(lambda: any(why in record.getMessage() for record in caplog.records))
    assert not one.is_up(two.identity.node_id)
    assert not one.send(two.identity.node_id, CHAIN, [b"x"])
    assert cluster.got[two] == []


@pytest.mark.parametrize("secrets", [("x", "y"), ("x", None), (None, "x")], ids=str)
def test_another_secret_is_refused(
    secrets: tuple[str | None, str | None], caplog: pytest.LogCaptureFixture
) -> None:
    """V5: nodes prove to each other that they know the secret."""

    async def story(cluster: Cluster) -> None:
        one, two = [
            await cluster.node(index + 1, *([f"peer.secret={secret}"] if secret else []))
            for index, secret in enumerate(secrets)]
        await refused(cluster, one, two, caplog, "peer.secret is not the same")

    run(story)


def test_the_same_secret_lets_in() -> None:
    """V5: nodes of one cluster find each other."""

    async def story(cluster: Cluster) -> None:
        await cluster.pair("peer.secret=ß&x")

    run(story)


def test_a_node_of_another_cluster_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """V5: an address that now belongs to another cluster does no harm."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.node(1, cluster_id="X"), await cluster.node(2, cluster_id="Y")
        await refused(cluster, one, two, caplog, "a-1 belongs to cluster X, and a-2 to Y")

    run(story)


def test_a_cluster_that_becomes_known_is_told() -> None:
    """V5: nodes that met before they knew their cluster stay together if it is the same one."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        three = await cluster.node(3, cluster_id="X")
        introduce(three, one)
        await until(lambda: three.is_up(ONE) and one.is_up(THREE))
        for peers in (one, two):
            peers.identity = peers.identity._replace(cluster_id="X")
        await asyncio.sleep(0.05)
        assert one.is_up(TWO)
        assert two.is_up(ONE)
        assert one.is_up(THREE)
        assert {link.peer.cluster_id for link in one._links} == {"X"}

    run(story)


def test_a_node_that_turns_out_to_be_of_another_cluster_is_left() -> None:
    """V5: the same, if it is not."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        one.identity = one.identity._replace(cluster_id="X")
        two.identity = two.identity._replace(cluster_id="Y")
        await until(lambda: not one.is_up(TWO) and not two.is_up(ONE))
        await asyncio.sleep(0.2)
        assert not one.is_up(TWO)

    run(story)


def test_another_node_at_an_address_is_not_mistaken(caplog: pytest.LogCaptureFixture) -> None:
    """V5: the hello identifies a node, whatever the address book says."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.node(1), await cluster.node(2)
        assert two.address is not None
        one.know(THREE, *two.address)
        await until(lambda: "is at the address of node 3" in caplog.text)
        assert not one.is_up(THREE)

    run(story)


def test_two_nodes_with_one_id_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """V6: a node does not talk to another one that claims its own id."""

    async def story(cluster: Cluster) -> None:
        one, other = await cluster.node(1), await cluster.node(1)
        assert other.address is not None
        one.meet(*other.address)
        await until(lambda: "two nodes have the id 1: a-1 and a-1" in caplog.text)

    run(story)


def test_a_second_process_with_an_id_waits_until_the_first_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """V16: runtime.B2; the one that is there keeps its place; when it has gone, the other one takes
    it.
    """

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        second = await cluster.node(2)
        introduce(second, one)
        await until(lambda: "another process is node 2" in caplog.text)
        await asyncio.sleep(0.5)
        assert one.is_up(TWO)
        assert not second.is_up(ONE)
        assert one.send(TWO, CHAIN, [b"to the first"])
        await until(lambda: cluster.got[two] == [(1, b"to the first")])
        await two.stop()
        await until(lambda: second.is_up(ONE) and one.is_up(TWO))
        assert one.send(TWO, CHAIN, [b"to the second"])
        await until(lambda: cluster.got[second] == [(1, b"to the second")])

    run(story)


def test_a_new_process_takes_the_place_of_one_that_went_silent() -> None:
    """V16: a machine that lost power leaves connections open; its restart is let in."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair("broker.session.timeout.ms=3000")
        fall_silent(two)
        second = await cluster.node(2, "broker.session.timeout.ms=3000")
        introduce(second, one)
        await until(lambda: second.is_up(ONE) and one.is_up(TWO))
        assert one.send(TWO, CHAIN, [b"hello"])
        await until(lambda: cluster.got[second] == [(1, b"hello")])
        assert cluster.got[two] == []

    run(story)
