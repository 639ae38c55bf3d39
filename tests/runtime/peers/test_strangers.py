"""Strangers at the peer listener: few, not for long, and never in the way of a node."""

import asyncio
import logging
import socket

import pytest

from quipu.model.ids import NodeId
from quipu.runtime.log_limits import BURST, LINE_SIZE_MAX
from quipu.runtime.peers import peers as peers_module
from quipu.runtime.peers.hello import Handshake
from quipu.runtime.peers.peers import TcpPeers
from tests.runtime.peers.peer_cluster import (
    CHAIN,
    ONE,
    THREE,
    TWO,
    Cluster,
    introduce,
    run,
    until,
)
from tests.runtime.peers.test_hello import hello

SECRET = "peer.secret=a secret of the whole cluster"
FEW = "peer.max.unauthenticated.connections=5"
GARBAGE = [b"", b"\0", b"\0\0\0", b"\0\0\0\1", b"\0\0\4\0\1", b"GET / HTTP/1.1\r\n\r\n",
           b"\xff" * 100, b"\0\0\0\5\1abcd", b"\0\0\0\1\2", b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3"]


def connect(peers: TcpPeers) -> socket.socket:
    assert peers.address is not None
    sock = socket.create_connection(peers.address)
    sock.setblocking(False)
    return sock


def hello_frame(node_id: int, secret: bytes) -> bytes:
    first = Handshake(mine=hello(node_id), secret=secret, is_dialler=True).first()
    return len(first).to_bytes(4, "big") + first


def test_strangers_have_a_small_budget_of_their_own() -> None:
    """K8: runtime.B3; the oldest of them goes when one more comes; links of nodes stay."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair(SECRET, FEW)
        strangers = []
        for number in range(60):
            stranger = connect(one)
            stranger.send(GARBAGE[number % 5][:4])  # nothing that closes it at once
            strangers.append(stranger)
            await asyncio.sleep(0.001)
            assert len(one._strangers) <= 5
        await until(lambda: one.stats.unproved_evicted >= 55)
        assert ("down", TWO) not in cluster.heard[one].told
        assert ("down", ONE) not in cluster.heard[two].told
        assert one.send(TWO, CHAIN, [b"still here"])
        await until(lambda: cluster.got[two] == [(1, b"still here")])
        for stranger in strangers:
            stranger.close()

    run(story)


def test_a_crowd_of_strangers_does_not_keep_a_node_from_joining() -> None:
    """K8: the node authenticates while strangers connect and disconnect at a high rate."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1, SECRET, FEW)
        crowd: list[socket.socket] = []

        async def press() -> None:
            while True:
                crowd.extend(connect(one) for _ in range(20))
                while len(crowd) > 200:
                    crowd.pop(0).close()
                await asyncio.sleep(0.001)

        pressing = asyncio.get_running_loop().create_task(press())
        await until(lambda: one.stats.unproved_evicted > 100)
        two = await cluster.node(2, SECRET, FEW)
        introduce(two, one)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        await asyncio.sleep(1.5)  # longer than a silent link lives
        assert cluster.heard[one].told == [("up", TWO)]
        assert cluster.heard[two].told == [("up", ONE)]
        pressing.cancel()
        for stranger in crowd:
            stranger.close()

    run(story)


def test_copies_of_a_hello_do_not_keep_a_node_from_joining() -> None:
    """K8: a hello that was overheard is not proof; it makes room for one that proves itself."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1, SECRET, FEW)
        copy = hello_frame(7, SECRET.partition("=")[2].encode())
        crowd = []
        for _ in range(40):
            stranger = connect(one)
            stranger.send(copy)
            crowd.append(stranger)
            await asyncio.sleep(0.002)
            assert len(one._vouched) <= 5
        two = await cluster.node(2, SECRET, FEW)
        introduce(two, one)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        assert not one.is_up(NodeId(7))
        for stranger in crowd:
            stranger.close()

    run(story)


def test_strangers_are_told_to_go_in_time() -> None:
    """K8: runtime.K1; half a hello, dripped byte by byte, does not hold a connection."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1, SECRET)
        slow = connect(one)
        frame = hello_frame(7, b"another secret that is long enough")
        await until(lambda: len(one._strangers) == 1)
        started = asyncio.get_running_loop().time()
        for number in range(len(frame) - 1):
            try:
                slow.send(frame[number : number + 1])
            except OSError:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("nobody closed it")
        assert asyncio.get_running_loop().time() - started < 5
        assert not one._links
        slow.close()

    run(story)


def test_what_strangers_do_is_logged_in_few_short_lines(caplog: pytest.LogCaptureFixture) -> None:
    """K8: names of a stranger's choice, garbage and wrong secrets do not fill the log."""

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1, SECRET)
        for number in range(100):
            stranger = connect(one)
            wrong = hello_frame(number, b"another secret that is long enough")
            stranger.send(wrong if number % 2 else GARBAGE[5 + number // 2 % 5])
            await asyncio.sleep(0.002)
            stranger.close()
        await until(lambda: one.stats.unproved_lost >= 100)

    with caplog.at_level(logging.INFO):
        run(story)
    lines = [record for record in caplog.records if record.name == peers_module.__name__]
    assert 0 < len(lines) <= 3 * BURST
    assert all(len(record.getMessage()) < LINE_SIZE_MAX + 100 for record in lines)
    assert "peer.secret is not the same" in caplog.text
    assert "another secret" not in caplog.text


def test_nodes_that_are_no_members_leave_room_for_members(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: runtime.B4; a process that knows the secret and invents many ids keeps no member out."""
    monkeypatch.setattr(peers_module, "GUESTS_MAX", 3)

    async def story(cluster: Cluster) -> None:
        one = await cluster.node(1, SECRET)
        one.members = frozenset({ONE, TWO})
        guests = [await cluster.node(number, SECRET) for number in range(10, 15)]
        for guest in guests:
            introduce(guest, one)
        await until(lambda: one.stats.guests_refused > 0)
        await asyncio.sleep(0.2)
        assert len([node for node in one.known() if node not in one.members]) <= 3
        two = await cluster.node(2, SECRET)
        introduce(two, one)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        for guest in guests:
            await guest.stop()
        three = await cluster.node(3, SECRET)
        introduce(three, one)  # the place of one that is gone
        await until(lambda: one.is_up(THREE) and three.is_up(ONE))

    run(story)
