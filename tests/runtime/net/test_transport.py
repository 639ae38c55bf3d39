"""The seam between a connection and its socket, with a transport that is not plain."""

import asyncio
import socket

import pytest

from quipu.runtime.net.connection import Connection
from quipu.runtime.net.server import FrameServer
from quipu.runtime.net.transport import PLAINTEXT, PlainTransport
from tests.looped import looped
from tests.runtime.net.frame_world import Echo, frame, until
from tests.runtime.net.scrambled import ScrambledTransport, scrambled


class Listening(Echo):
    """Sends nothing."""

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))


@looped
async def test_each_listener_has_its_transport() -> None:
    """One server, two addresses: what travels differs, what handlers see does not."""
    seen: list[Echo] = []

    def accept(connection: Connection) -> Echo:
        seen.append(Echo(connection))
        return seen[-1]

    server = FrameServer(accept=accept)
    plain = server.bind("127.0.0.1", 0, listener="A")
    other = server.bind("127.0.0.1", 0, listener="B", wrap=ScrambledTransport)
    server.serve()
    for address, sent in ((plain, frame(b"hello")), (other, scrambled(frame(b"hello")))):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()
    assert [handler.frames for handler in seen] == [[b"hello"], [b"hello"]]
    assert [handler.connection.listener for handler in seen] == ["A", "B"]
    assert [handler.connection.peer_name for handler in seen] == [None, "a peer who says so"]
    await server.close(grace_seconds=0.1)


@looped
async def test_a_connection_that_is_dialled_has_one_too() -> None:
    """As the links between nodes will."""
    server = FrameServer(accept=Echo)
    address = server.bind("127.0.0.1", 0, wrap=ScrambledTransport)
    server.serve()
    connection = await server.dial(*address, seconds_max=5, wrap=ScrambledTransport)
    mine = Listening(connection)
    connection.start(mine)
    data = bytes(range(256)) * 2000
    connection.send([frame(data), frame(b"second")])
    await until(lambda: len(mine.frames) == 2)
    assert mine.frames == [data, b"second"]
    await server.close(grace_seconds=0.1)


def test_a_plain_transport_is_the_socket_itself() -> None:
    """No call of Python's own lies between a connection and the kernel."""
    one, two = socket.socketpair()
    transport = PlainTransport(one)
    builtin = type(one.recv_into)
    assert all(type(method) is builtin for method in (
        transport.receive_into, transport.send, transport.send_many))
    assert transport.send_many([b"a", b"b"]) + transport.send(b"c") == 3
    assert two.recv(10) == b"abc"
    one.setblocking(False)
    assert not transport.has_unread()
    two.send(b"x")
    assert transport.has_unread()
    two.close()
    assert transport.receive_into(bytearray(10)) == 1
    assert not transport.has_unread()
    assert (transport.security_protocol, transport.peer_name) == (PLAINTEXT, None)
    assert [transport.keeps_bytes, transport.pending, transport.unsent] == [False] * 3
    transport.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        transport.send(b"x")
