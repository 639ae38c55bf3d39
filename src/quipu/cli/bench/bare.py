"""Servers that do nothing but move bytes: what the machine allows, asked by the same generator.

Each listens on a free port of loopback, in a process of its own, on uvloop with raw non-blocking
sockets, as the broker does.  Each answers with frames that the generator takes for a broker's:

    append    receive, write to a file, answer: the floor of a Produce
    echo      receive, answer: the floor of a small request
    send      answer with bytes of a file, by sendfile, or of memory: the floor of a Fetch
    fan_out   receive on one connection, send to all others: the floor of tailing consumers

They trust their client and check nothing.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

Ready = Callable[[int], None]

RECEIVE_SIZE: Final = 256 << 10
BACKLOG: Final = 4096


class Peer:
    """One connection: how much of a request has come, and what waits to be sent."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.socket = sock
        self.received = 0  # bytes of requests not answered yet
        self.position = 0  # in the file, for `send`
        self._loop = loop
        self._out: list[bytes | memoryview] = []

    def send(self, *buffers: bytes | memoryview) -> None:
        """Send in order; what the socket does not take waits until it does."""
        waits = bool(self._out)
        self._out += buffers
        if not waits and not self._flush():
            self._loop.add_writer(self.socket.fileno(), self._writable)

    def _writable(self) -> None:
        if self._flush():
            self._loop.remove_writer(self.socket.fileno())

    def _flush(self) -> bool:
        while self._out:
            try:
                sent = self.socket.sendmsg(self._out[:64])
            except BlockingIOError:
                return False
            while self._out and sent >= len(self._out[0]):
                sent -= len(self._out.pop(0))
            if sent:
                self._out[0] = memoryview(self._out[0])[sent:]
        return True


class BareServer:
    """Accepts, receives into one buffer, and tells `received` how many whole requests came."""

    def __init__(self, request_size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.request_size = request_size
        self.loop = loop
        self.peers: list[Peer] = []
        self.view = memoryview(bytearray(RECEIVE_SIZE))
        self.on_bytes: Callable[[memoryview], None] | None = None
        self.on_requests: Callable[[Peer, int], None] = lambda _peer, _count: None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        loop.add_reader(self._listener.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Peer(sock, self.loop)
            self.peers.append(peer)
            self.loop.add_reader(sock.fileno(), self._readable, peer)

    def _readable(self, peer: Peer) -> None:
        try:
            size = peer.socket.recv_into(self.view)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if size == 0:
            self.loop.remove_reader(peer.socket.fileno())
            self.loop.remove_writer(peer.socket.fileno())
            self.peers.remove(peer)
            peer.socket.close()
            return
        if self.on_bytes is not None:
            self.on_bytes(self.view[:size])
        total = peer.received + size
        count, peer.received = divmod(total, self.request_size)
        if count:
            self.on_requests(peer, count)


def append(
    ready: Ready, request_size: int, answer: bytes, path: str, by_request: bool
) -> None:
    """Write what comes to a new file, through the page cache, and answer each request.

    Writes go out as they come in, or `by_request`: one for each, as a broker has to that gives
    every batch its offset.
    """
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def write(data: memoryview) -> None:
        os.write(descriptor, data)

    def write_requests(data: memoryview) -> None:
        for start in range(0, len(data), request_size):
            os.write(descriptor, data[start : start + request_size])

    server.on_bytes = write_requests if by_request else write
    server.on_requests = lambda peer, count: peer.send(answer * count)
    _run(loop, server, ready)


def echo(ready: Ready, request_size: int, answer: bytes) -> None:
    """Answer each request."""
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    server.on_requests = lambda peer, count: peer.send(answer * count)
    _run(loop, server, ready)


class Piece:
    """An answer in three parts: bytes before the records, their size, and bytes after them."""

    def __init__(self, head: bytes, size: int, tail: bytes) -> None:
        self.head = head
        self.size = size
        self.tail = tail


def send_memory(ready: Ready, request_size: int, piece: Piece, path: str) -> None:
    """Answer each request with the next piece of a file that was read into memory."""
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    data = memoryview(Path(path).read_bytes())

    def answer(peer: Peer, count: int) -> None:
        for _ in range(count):
            start = peer.position
            peer.send(piece.head, data[start : start + piece.size], piece.tail)
            peer.position = (start + piece.size) % len(data)

    server.on_requests = answer
    _run(loop, server, ready)


def send_file(ready: Ready, request_size: int, piece: Piece, path: str) -> None:
    """Answer each request with the next piece of a file, by sendfile; one request at a time."""
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    descriptor = os.open(path, os.O_RDONLY)
    file_size = os.fstat(descriptor).st_size

    def send(peer: Peer, left: int) -> None:
        sock = peer.socket
        while left:
            try:
                sent = os.sendfile(sock.fileno(), descriptor, peer.position, left)
            except BlockingIOError:
                loop.add_writer(sock.fileno(), send, peer, left)
                return
            left -= sent
            peer.position = (peer.position + sent) % file_size
        loop.remove_writer(sock.fileno())
        peer.send(piece.tail)

    def answer(peer: Peer, count: int) -> None:
        assert count == 1, count
        peer.socket.send(piece.head, socket.MSG_MORE)
        send(peer, piece.size)

    server.on_requests = answer
    _run(loop, server, ready)


def fan_out(ready: Ready, sizes: tuple[int, int], answer: bytes, piece: bytes) -> None:
    """The first connection produces; each request of it is sent on to every other connection.

    `sizes` are those of a Produce and of a Fetch request; a Fetch is answered once, when the next
    batch comes, so each round is one Produce and one Fetch per consumer.
    """
    loop = uvloop.new_event_loop()
    produce_size, fetch_size = sizes
    server = BareServer(1, loop)
    view = memoryview(piece)
    waiting: list[Peer] = []
    received = batch_count = 0

    def produced(peer: Peer, size: int) -> None:
        nonlocal received, batch_count
        received += size
        if received >= produce_size:
            received -= produce_size
            batch_count += 1
            peer.send(answer)
            for consumer in waiting:
                give(consumer)
            waiting.clear()

    def give(consumer: Peer) -> None:
        consumer.position = batch_count  # counts batches here
        consumer.send(view)

    def took(peer: Peer, size: int) -> None:
        if peer is server.peers[0]:
            produced(peer, size)
            return
        assert size == fetch_size, size  # small enough to come in one piece
        if peer.position < batch_count:
            give(peer)
        else:
            waiting.append(peer)

    server.on_requests = took
    _run(loop, server, ready)


def _run(loop: asyncio.AbstractEventLoop, server: BareServer, ready: Ready) -> None:
    ready(server.port)
    loop.run_forever()  # until the process is ended
