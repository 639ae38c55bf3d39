"""Bare servers, which only receive and send bytes: they show the limits of the machine.

Each listens on a free port of loopback, in a process of its own, on uvloop with raw non-blocking
sockets, as the broker does.  The load generator uses them like a broker:

    append    receive, write to a file, respond: the least cost of a Produce
    echo      receive, respond: the least cost of a small request
    send      respond with bytes of a file, by sendfile, or of memory: the least cost of a Fetch
    fan_out   receive on one connection, send to all others: the least cost of tailing consumers

They do not check the requests.
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


class BareConnection:
    """One connection: the bytes received of a request, and the bytes still to send."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.socket = sock
        self.received = 0  # bytes of an incomplete request
        self.position = 0  # in the file, for `send`
        self._loop = loop
        self._out: list[bytes | memoryview] = []

    def send(self, *buffers: bytes | memoryview) -> None:
        """Send buffers in order; what the socket does not accept now is sent later."""
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
    """Accepts connections, receives into one buffer, and calls back for every whole request."""

    def __init__(self, request_size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.request_size = request_size
        self.loop = loop
        self.connections: list[BareConnection] = []
        self.view = memoryview(bytearray(RECEIVE_SIZE))
        self.on_bytes: Callable[[memoryview], None] | None = None
        self.on_requests: Callable[[BareConnection, int], None] = lambda _connection, _count: None
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
            connection = BareConnection(sock, self.loop)
            self.connections.append(connection)
            self.loop.add_reader(sock.fileno(), self._readable, connection)

    def _readable(self, connection: BareConnection) -> None:
        try:
            size = connection.socket.recv_into(self.view)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if size == 0:
            self.loop.remove_reader(connection.socket.fileno())
            self.loop.remove_writer(connection.socket.fileno())
            self.connections.remove(connection)
            connection.socket.close()
            return
        if self.on_bytes is not None:
            self.on_bytes(self.view[:size])
        total = connection.received + size
        count, connection.received = divmod(total, self.request_size)
        if count:
            self.on_requests(connection, count)


def append(
    ready: Ready, request_size: int, response: bytes, path: str, by_request: bool
) -> None:
    """Write what comes to a new file, through the page cache, and respond to each request.

    There is a write for each piece received, or with `by_request` for each request, as in a broker,
    which must give every batch its offset.
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
    server.on_requests = lambda connection, count: connection.send(response * count)
    _run(loop, server, ready)


def echo(ready: Ready, request_size: int, response: bytes) -> None:
    """Respond to each request with the same bytes."""
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    server.on_requests = lambda connection, count: connection.send(response * count)
    _run(loop, server, ready)


class SplitResponse:
    """A response in three parts: bytes before the records, their size, and bytes after them."""

    def __init__(self, head: bytes, size: int, tail: bytes) -> None:
        self.head = head
        self.size = size
        self.tail = tail


def send_memory(ready: Ready, request_size: int, piece: SplitResponse, path: str) -> None:
    """Respond to each request with the next piece of a file that was read into memory."""
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    data = memoryview(Path(path).read_bytes())

    def respond(connection: BareConnection, count: int) -> None:
        for _ in range(count):
            start = connection.position
            connection.send(piece.head, data[start : start + piece.size], piece.tail)
            connection.position = (start + piece.size) % len(data)

    server.on_requests = respond
    _run(loop, server, ready)


def send_file(ready: Ready, request_size: int, piece: SplitResponse, path: str) -> None:
    """Respond to each request with the next piece of a file, by sendfile; one at a time."""
    loop = uvloop.new_event_loop()
    server = BareServer(request_size, loop)
    descriptor = os.open(path, os.O_RDONLY)
    file_size = os.fstat(descriptor).st_size

    def send(connection: BareConnection, left: int) -> None:
        sock = connection.socket
        while left:
            try:
                sent = os.sendfile(sock.fileno(), descriptor, connection.position, left)
            except BlockingIOError:
                loop.add_writer(sock.fileno(), send, connection, left)
                return
            left -= sent
            connection.position = (connection.position + sent) % file_size
        loop.remove_writer(sock.fileno())
        connection.send(piece.tail)

    def respond(connection: BareConnection, count: int) -> None:
        assert count == 1, count
        connection.socket.send(piece.head, socket.MSG_MORE)
        send(connection, piece.size)

    server.on_requests = respond
    _run(loop, server, ready)


def fan_out(ready: Ready, sizes: tuple[int, int], response: bytes, piece: bytes) -> None:
    """Send a batch to every other connection for each Produce request on the first one.

    `sizes` are those of a Produce and of a Fetch request; a Fetch gets its response when the next
    batch comes, so each round is one Produce and one Fetch per consumer.
    """
    loop = uvloop.new_event_loop()
    produce_size, fetch_size = sizes
    server = BareServer(1, loop)
    view = memoryview(piece)
    waiting: list[BareConnection] = []
    received = batch_count = 0

    def produced(connection: BareConnection, size: int) -> None:
        nonlocal received, batch_count
        received += size
        if received >= produce_size:
            received -= produce_size
            batch_count += 1
            connection.send(response)
            for consumer in waiting:
                give(consumer)
            waiting.clear()

    def give(consumer: BareConnection) -> None:
        consumer.position = batch_count  # counts batches here
        consumer.send(view)

    def handle(connection: BareConnection, size: int) -> None:
        if connection is server.connections[0]:
            produced(connection, size)
            return
        assert size == fetch_size, size  # small enough to come in one piece
        if connection.position < batch_count:
            give(connection)
        else:
            waiting.append(connection)

    server.on_requests = handle
    _run(loop, server, ready)


def _run(loop: asyncio.AbstractEventLoop, server: BareServer, ready: Ready) -> None:
    ready(server.port)
    loop.run_forever()  # until the process is ended
