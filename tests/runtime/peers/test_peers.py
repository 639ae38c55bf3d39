"""Nodes that talk over real loopback sockets: what arrives, what is refused, what comes back."""

import asyncio
import socket
import struct
from contextlib import suppress

import pytest

from quipu.broker.listening import peer_config
from quipu.model.ids import NodeId
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.peer_net import PEER_BACKLOG_MAX, Identity
from quipu.runtime.peers.peers import TcpPeers
from quipu.runtime.rng import SystemRng
from tests.runtime.peers.peer_cluster import (
    CHAIN,
    ONE,
    RAFT,
    THREE,
    TWO,
    Cluster,
    fall_silent,
    free_port,
    introduce,
    run,
    until,
    upper,
)

# -- messages


def test_messages_arrive_in_order_and_both_learn_each_other() -> None:
    """V9: runtime.P1; one node knows the other's address; both can send, and what is sent stays in
    order.
    """

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        sent = [str(index).encode() * (index % 50) for index in range(2000)]
        for index, body in enumerate(sent):
            assert one.send(TWO, CHAIN, [body[: index % 7], memoryview(body)[index % 7 :]])
        assert two.send(ONE, CHAIN, [b"back"])
        await until(lambda: len(cluster.got[two]) == 2000 and len(cluster.got[one]) == 1)
        assert cluster.got[two] == [(1, body) for body in sent]
        assert cluster.got[one] == [(2, b"back")]
        assert cluster.heard[one].told == [("up", 2)]
        assert two.known() == {ONE: one.address}
        assert one.backlog(TWO) == 0

    run(story)


def test_a_large_message_is_whole_and_its_buffers_are_not_copied() -> None:
    """V10: an entry of several MiB goes out as the views it was given, in one message."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        pieces: list[Buffer] = [memoryview(bytes([index]) * 1_000_000) for index in range(20)]
        assert one.send(TWO, CHAIN, [b"head", *pieces])
        assert one.backlog(TWO) > 20_000_000
        await until(lambda: len(cluster.got[two]) == 1)
        assert cluster.got[two] == [(1, b"".join([b"head", *pieces]))]
        await until(lambda: one.backlog(TWO) == 0)

    run(story)


def test_a_message_to_itself_comes_on_a_later_turn() -> None:
    """V2: runtime.P4; a chain of one runs the same code."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        assert one.is_up(ONE)
        assert one.send(ONE, CHAIN, [b"to ", bytearray(b"me")])
        assert cluster.got[one] == []
        await asyncio.sleep(0)
        assert cluster.got[one] == [(1, b"to me")]

    run(story)


def test_nothing_is_taken_for_a_node_that_is_not_there() -> None:
    """V10: `send` returns False at once; the sender sends again when the node is up."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        one.know(TWO, "127.0.0.1", free_port())
        assert not one.send(TWO, CHAIN, [b"x"])
        assert not one.send(THREE, CHAIN, [b"x"])
        assert not one.is_up(TWO)

    run(story)


def test_a_peer_that_takes_nothing_fills_a_bounded_backlog() -> None:
    """V10: runtime.K3, runtime.P2; above the limit large messages are refused, small ones still
    pass; `drained` is called.
    """

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair("broker.session.timeout.ms=20000")
        (connection,) = (link.connection for link in two._links if not link.is_dialled)
        connection.pause()
        chunk = memoryview(bytes(1_000_000))
        taken = 0
        while one.send(TWO, CHAIN, [chunk]):
            taken += 1
            await asyncio.sleep(0.001)
            assert taken < 100
        assert PEER_BACKLOG_MAX < one.backlog(TWO) <= PEER_BACKLOG_MAX + 1_000_100
        assert one.send(TWO, CHAIN, [b"small"])
        connection.resume()
        await until(lambda: ("drained", 2) in cluster.heard[one].told)
        assert one.send(TWO, CHAIN, [chunk])
        await until(lambda: len(cluster.got[two]) == taken + 2)

    run(story)


def test_room_is_told_even_if_all_that_waited_left_at_once() -> None:
    """V9: runtime.P5; a refusal within one turn of the loop is followed by `drained`."""

    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.pair()
        while one.send(TWO, CHAIN, [memoryview(bytes(3_000_000))]):
            pass
        await until(lambda: ("drained", 2) in cluster.heard[one].told)
        assert cluster.heard[one].told.count(("drained", 2)) == 1

    run(story)


# -- connections that fail


def test_a_node_that_comes_back_is_connected_again() -> None:
    """V16: a node that restarts on its address is found, and finds the others."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        assert two.address is not None
        await two.stop()
        await until(lambda: not one.is_up(TWO))
        again = await cluster.node(2, port=two.address.port)
        await until(lambda: one.is_up(TWO))
        assert one.send(TWO, CHAIN, [b"welcome"])
        await until(lambda: cluster.got[again] == [(1, b"welcome")])
        assert cluster.heard[one].told == [("up", 2), ("down", 2), ("up", 2)]

    run(story)


def test_a_silent_peer_is_noticed() -> None:
    """V5: runtime.K2; a connection without responses is closed, and its messages are refused."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        await asyncio.sleep(1)  # more than the time allowed to silence: idle links are asked
        assert cluster.heard[one].told == [("up", 2)]
        fall_silent(two)
        await until(lambda: ("down", 2) in cluster.heard[one].told)

    run(story)


def test_a_listener_that_says_nothing_is_given_up() -> None:
    """V5: something accepts connections at a node's address and never says hello."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            mute.setblocking(False)
            one.know(TWO, *mute.getsockname()[:2])
            loop = asyncio.get_running_loop()
            first, _ = await loop.sock_accept(mute)
            second, _ = await loop.sock_accept(mute)  # it was given up, and tried again
            first.close()
            second.close()

    run(story)


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    struct.pack(">i", 0),
    struct.pack(">i", 2_000_000),
    struct.pack(">i", 5) + b"\x01abcd",
    struct.pack(">i", 12) + b"\x01QUIPU/peer\0",
    struct.pack(">i", 100) + b"\x01QUIPU/peer\0\x01" + b"\xff" * 87,
    struct.pack(">i", 13) + b"\x01QUIPU/peer\xff\xff",
    struct.pack(">i", 33) + b"\x02" + bytes(32),
    struct.pack(">i", 33) + b"\x03" + bytes(32),
    struct.pack(">i", 3) + b"\x04no",
]


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: data[:16].hex())
def test_garbage_costs_its_sender_the_connection_and_nobody_else_anything(data: bytes) -> None:
    """K8: a connection that sends something other than a hello is closed."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        assert one.address is not None
        reader, writer = await asyncio.open_connection(*one.address)
        writer.write(data)
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert two.send(ONE, CHAIN, [b"still here"])
        await until(lambda: cluster.got[one] == [(2, b"still here")])
        assert len(one._links) == 2

    run(story)


def test_a_half_open_hello_is_closed() -> None:
    """K8: a connection that sends nothing is closed soon."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        assert one.address is not None
        reader, writer = await asyncio.open_connection(*one.address)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await until(lambda: not one._links)

    run(story)


def test_a_handler_that_fails_closes_the_link_and_the_link_comes_back() -> None:
    """K8: a bug, or foreign bytes that break a rule, cost one connection."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.on(RAFT, broken)
        assert one.send(TWO, RAFT, [b"x"])
        await until(lambda: cluster.heard[one].told == [("up", 2), ("down", 2), ("up", 2)])
        assert one.send(TWO, CHAIN, [b"again"])
        await until(lambda: cluster.got[two] == [(1, b"again")])

    run(story)


def broken(sender: NodeId, body: memoryview) -> None:
    raise ZeroDivisionError


def test_messages_of_a_later_version_are_ignored() -> None:
    """T11: a kind that is not known harms nothing."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        assert one.send(TWO, 200, [b"from the future"])
        assert one.send(TWO, CHAIN, [b"now"])
        await until(lambda: cluster.got[two] == [(1, b"now")])

    run(story)


# -- the address book


def test_an_address_without_a_name_is_met() -> None:
    """V5: the node at the address is known from then on; the own address is recognized."""

    async def story(cluster: Cluster) -> None:
        one, two, three = [await cluster.node(index) for index in (1, 2, 3)]
        addresses = [node.address for node in (one, two, three)]
        for _ in range(3):
            for address in addresses:
                assert address is not None
                one.meet(*address)
            await asyncio.sleep(0.05)
        await until(lambda: one.is_up(TWO) and one.is_up(THREE))
        assert one.known() == {TWO: two.address, THREE: three.address}
        await until(lambda: two.is_up(ONE))
        assert two.known() == {ONE: one.address}
        assert cluster.heard[one].told.count(("up", 2)) == 1

    run(story)


def test_other_addresses_of_a_node_disturb_nothing() -> None:
    """V5: runtime.B1; a node that is found under a second name keeps its one connection, and so
    does one whose address another entry claims.
    """

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        assert two.address is not None
        for _ in range(5):
            one.meet("localhost", two.address.port)
            one.know(THREE, *two.address)
            await asyncio.sleep(0.1)
        assert one.is_up(TWO)
        assert not one.is_up(THREE)
        assert cluster.heard[one].told == [("up", 2)]
        assert cluster.heard[two].told == [("up", 1)]
        assert one.send(TWO, CHAIN, [b"undisturbed"])
        await until(lambda: cluster.got[two] == [(1, b"undisturbed")])

    run(story)


def test_a_node_that_moved_is_found_at_its_new_address() -> None:
    """V16: the address book is corrected, by the controller or by the node itself."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        await two.stop()
        await until(lambda: not one.is_up(TWO))
        moved = await cluster.node(2)
        introduce(one, moved)
        await until(lambda: one.is_up(TWO))
        assert one.known() == {TWO: moved.address}

    run(story)


def test_a_node_that_is_forgotten_is_left_alone() -> None:
    """V5: its links close, and nobody dials it."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.forget(ONE)
        one.forget(TWO)
        assert not one.is_up(TWO)
        assert one.known() == {}
        assert ("down", 2) in cluster.heard[one].told
        await asyncio.sleep(0.3)
        assert not one.is_up(TWO)

    run(story)


def test_the_advertised_address_is_told() -> None:
    """V5: other nodes dial the advertised address, with the port that was really bound."""

    async def story(cluster: Cluster) -> None:
        secret = "peer.secret=required where others connect"
        one = await cluster.node(1, secret)
        two = await cluster.node(
            2, "peer.listener=0.0.0.0:0", "advertised.peer.listener=localhost:0", secret)
        assert two.address is not None
        assert two.address.host == "localhost"
        introduce(two, one)
        await until(lambda: one.is_up(TWO))
        assert one.known() == {TWO: two.address}

    run(story)


def test_a_node_without_a_listener_can_still_call() -> None:
    """V5: replies come back on the connection of the call."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        one.serve(1, upper)
        settings = broker_settings(from_assignments([]))
        identity = Identity(NodeId(99), "tool-0", SystemRng().uuid())
        tool = TcpPeers(identity, peer_config(settings), SystemRng())
        await tool.start()
        cluster.started.append(tool)
        introduce(tool, one)
        await until(lambda: tool.is_up(ONE))
        assert await tool.call(ONE, 1, b"x", timeout_seconds=5) == b"cX"
        assert one.known() == {}

    run(story)
