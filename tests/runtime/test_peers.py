"""Nodes that talk over real loopback sockets: who is let in, what arrives, what happens without."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from quipu.model.errors import Code, Kind, RequestError
from quipu.model.ids import NodeId
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime import peer_calls
from quipu.runtime.connection import Buffer
from quipu.runtime.peer_net import (
    PEER_BACKLOG_MAX,
    Identity,
    PeerError,
    PeerKind,
    PeerUnavailable,
)
from quipu.runtime.peers import Peers
from quipu.runtime.rng import SystemRng

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
CHAIN, RAFT = PeerKind.CHAIN, PeerKind.RAFT


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def up(self, node_id: NodeId) -> None:
        self.told.append(("up", node_id))

    def down(self, node_id: NodeId) -> None:
        self.told.append(("down", node_id))

    def drained(self, node_id: NodeId) -> None:
        self.told.append(("drained", node_id))


class Cluster:
    """Nodes in this loop, each with a listener and the messages that it got."""

    def __init__(self) -> None:
        self.started: list[Peers] = []
        self.got: dict[Peers, list[tuple[int, bytes]]] = {}
        self.heard: dict[Peers, Listener] = {}

    async def node(self, node_id: int, *pairs: str, cluster_id: str = "", port: int = 0) -> Peers:
        settings = broker_settings(from_assignments([
            f"peer.listener=127.0.0.1:{port}", "broker.session.timeout.ms=800",
            "broker.heartbeat.interval.ms=100", *pairs]))
        identity = Identity(NodeId(node_id), f"a-{node_id}", SystemRng().uuid(), cluster_id)
        peers = Peers(identity, settings, SystemRng())
        messages = self.got[peers] = []
        peers.on(CHAIN, lambda sender, body: messages.append((sender, bytes(body))))
        self.heard[peers] = Listener()
        peers.watch(self.heard[peers])
        await peers.start()
        self.started.append(peers)
        return peers

    async def pair(self, *pairs: str) -> tuple[Peers, Peers]:
        one, two = await self.node(1, *pairs), await self.node(2, *pairs)
        introduce(one, two)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        return one, two


def introduce(one: Peers, two: Peers) -> None:
    assert two.address is not None
    one.know(two.identity.node_id, *two.address)


def fall_silent(peers: Peers) -> None:
    """As if the machine had lost its power: nothing is read, nothing said, nothing closed."""
    for link in peers._links:
        link.connection._stop_reading()
    peers._server.stop_accepting()
    peers._book.stop()
    assert peers._ticker is not None
    peers._ticker.cancel()


def run(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        try:
            async with asyncio.timeout(20):
                await story(cluster)
        finally:
            for peers in cluster.started:
                await peers.stop()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not happen in time")


# -- messages


def test_messages_arrive_in_order_and_both_learn_each_other() -> None:
    """V9: one node knows the other's address; both can send, and what is sent stays in order."""

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
    """V2: a chain of one runs the same code."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        assert one.is_up(ONE)
        assert one.send(ONE, CHAIN, [b"to ", bytearray(b"me")])
        assert cluster.got[one] == []
        await asyncio.sleep(0)
        assert cluster.got[one] == [(1, b"to me")]

    run(story)


def test_nothing_is_taken_for_a_node_that_is_not_there() -> None:
    """V10: the sender is told at once, and sends again when the node is up."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        one.know(TWO, "127.0.0.1", free_port())
        assert not one.send(TWO, CHAIN, [b"x"])
        assert not one.send(THREE, CHAIN, [b"x"])
        assert not one.is_up(TWO)

    run(story)


def test_a_peer_that_takes_nothing_fills_a_bounded_backlog() -> None:
    """V10: beyond the bound bulk is refused, small messages still pass; room is told."""

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
    """V9: a refusal within one turn of the loop is followed by word of room."""

    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.pair()
        while one.send(TWO, CHAIN, [memoryview(bytes(3_000_000))]):
            pass
        await until(lambda: ("drained", 2) in cluster.heard[one].told)
        assert cluster.heard[one].told.count(("drained", 2)) == 1

    run(story)


# -- calls


async def upper(sender: NodeId, body: bytes) -> bytes:
    return bytes([sender]) + body.upper()


def test_a_call_is_answered() -> None:
    """V5: request and answer, to another node and to oneself."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        for peers in (one, two):
            peers.serve(7, upper)
        assert await one.call(TWO, 7, b"ask", timeout_seconds=5) == b"\x01ASK"
        assert await one.call(ONE, 7, b"me", timeout_seconds=5) == b"\x01ME"
        answers = await asyncio.gather(
            *(two.call(ONE, 7, str(index).encode(), timeout_seconds=5) for index in range(300)))
        assert answers == [b"\x02" + str(index).encode() for index in range(300)]

    run(story)


def test_an_error_of_the_other_side_keeps_its_code_and_words() -> None:
    """V5: what the handler raised is what the caller gets; a bug is told as one."""

    async def refuse(sender: NodeId, body: bytes) -> bytes:
        if body == b"bug":
            raise ZeroDivisionError("oh")
        raise RequestError("go away", code=Code.NOT_CONTROLLER, kind=Kind.REFRESH)

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, refuse)
        with pytest.raises(PeerError, match="go away") as caught:
            await one.call(TWO, 1, b"", timeout_seconds=5)
        assert (caught.value.code, caught.value.kind) == (Code.NOT_CONTROLLER, Kind.REFRESH)
        with pytest.raises(PeerError, match="ZeroDivisionError: oh") as caught:
            await one.call(TWO, 1, b"bug", timeout_seconds=5)
        assert caught.value.kind is Kind.BUG
        with pytest.raises(PeerError, match="kind 9 are not answered") as caught:
            await one.call(TWO, 9, b"", timeout_seconds=5)
        assert caught.value.code == Code.UNSUPPORTED_VERSION

    run(story)


def test_a_call_ends_without_an_answer() -> None:
    """V5: in time, when the connection is lost, when the node stops, and at once without one."""

    async def never(sender: NodeId, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, never)
        with pytest.raises(PeerUnavailable, match=r"did not answer within 0\.05 s"):
            await one.call(TWO, 1, b"", timeout_seconds=0.05)
        with pytest.raises(PeerUnavailable, match="cannot be reached"):
            await one.call(THREE, 1, b"", timeout_seconds=5)
        waits = asyncio.ensure_future(one.call(TWO, 1, b"", timeout_seconds=20))
        await asyncio.sleep(0.01)
        await two.stop()
        with pytest.raises(PeerUnavailable, match="was lost"):
            await waits
        waits = asyncio.ensure_future(one.call(ONE, 5, b"", timeout_seconds=20))
        one._calls._handlers[5] = never
        await asyncio.sleep(0.01)
        await one.stop()
        with pytest.raises(PeerUnavailable, match="stopping"):
            await waits

    run(story)


def test_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: neither side keeps more calls than it can count."""
    monkeypatch.setattr(peer_calls, "SERVED_MAX", 2)
    monkeypatch.setattr(peer_calls, "WAITING_MAX", 3)

    async def slow(sender: NodeId, body: bytes) -> bytes:
        await asyncio.sleep(0.1)
        return b"done"

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, slow)
        ends = await asyncio.gather(
            *(one.call(TWO, 1, b"", timeout_seconds=5) for _ in range(4)), return_exceptions=True)
        assert ends[:2] == [b"done", b"done"]
        assert isinstance(ends[2], PeerError)
        assert isinstance(ends[3], PeerUnavailable)
        assert await one.call(TWO, 1, b"", timeout_seconds=5) == b"done"

    run(story)


# -- who is let in


async def refused(cluster: Cluster, one: Peers, two: Peers, caplog: pytest.LogCaptureFixture,
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
    """V5: the hello tells who is there, whatever the address book says."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.node(1), await cluster.node(2)
        assert two.address is not None
        one.know(THREE, *two.address)
        await until(lambda: "is where node 3 was looked for" in caplog.text)
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
    """V16: the one that is there keeps its place; when it has gone, the other one takes it."""

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


# -- connections that fail


def test_a_node_that_comes_back_is_connected_again() -> None:
    """V16: whoever restarts on its address is found, and finds the others."""

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
    """V5: a connection that nobody answers on is closed, and its messages are refused."""

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
    """K8: bytes that are no hello are answered with a closed connection."""

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
    """K8: a stranger who connects and says nothing is sent away soon."""

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
    """V5: whoever answers is known from then on; the own address is recognised."""

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
    """V5: other nodes dial what they are told, with the port that was really taken."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        two = await cluster.node(
            2, "peer.listener=0.0.0.0:0", "advertised.peer.listener=localhost:0")
        assert two.address is not None
        assert two.address.host == "localhost"
        introduce(two, one)
        await until(lambda: one.is_up(TWO))
        assert one.known() == {TWO: two.address}

    run(story)


def test_a_node_without_a_listener_can_still_call() -> None:
    """V5: answers come back on the connection of the call."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1)
        one.serve(1, upper)
        settings = broker_settings(from_assignments([]))
        tool = Peers(Identity(NodeId(99), "tool-0", SystemRng().uuid()), settings, SystemRng())
        await tool.start()
        cluster.started.append(tool)
        introduce(tool, one)
        await until(lambda: tool.is_up(ONE))
        assert await tool.call(ONE, 1, b"x", timeout_seconds=5) == b"cX"
        assert one.known() == {}

    run(story)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
