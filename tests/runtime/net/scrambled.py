"""A toy transport: every byte is changed on its way, and bytes are kept as TLS keeps them.

It protects nothing.  It receives more from the socket than it is asked for, and keeps what it has
changed and the socket did not take: so it shows that a connection gets on with a transport that has
bytes of its own in both directions.
"""

import socket
from contextlib import suppress
from typing import Final

from quipu.runtime.net.outgoing import Buffer

MASK: Final = 0x5A
RECEIVE_SIZE: Final = 5000  # from the socket at once
GIVE_SIZE: Final = 1999  # to the connection at once
TAKE_SIZE: Final = 30_011  # from the connection at once
_TABLE: Final = bytes(number ^ MASK for number in range(256))


def scrambled(data: Buffer) -> bytes:
    """There, and back again."""
    return bytes(data).translate(_TABLE)


class ScrambledTransport:
    """The node's end."""

    security_protocol = "SCRAMBLED"
    peer_name = "a peer who says so"
    keeps_bytes = True

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._in = bytearray()
        self._out = bytearray()
        self._has_ended = False

    @property
    def pending(self) -> bool:
        return bool(self._in) or self._has_ended

    @property
    def unsent(self) -> bool:
        return bool(self._out)

    def receive_into(self, buffer: bytearray | memoryview, size: int = 0) -> int:
        if not self._in and not self._has_ended:
            received = self._socket.recv(RECEIVE_SIZE)
            self._has_ended = not received
            self._in += scrambled(received)
        count = min(size or len(buffer), len(self._in), GIVE_SIZE)
        memoryview(buffer)[:count] = self._in[:count]
        del self._in[:count]
        return count

    def send(self, buffer: Buffer) -> int:
        return self.send_many([buffer])

    def send_many(self, buffers: list[Buffer]) -> int:
        self.flush()
        for buffer in buffers:
            room = TAKE_SIZE - len(self._out)
            self._out += scrambled(memoryview(buffer)[:room])
        taken = len(self._out)
        with suppress(BlockingIOError):  # it is this transport's to send now
            self.flush()
        return taken

    def flush(self) -> None:
        while self._out:
            del self._out[: self._socket.send(self._out)]

    def has_unread(self) -> bool:
        try:
            return bool(self._in) or bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class ScrambledClient(socket.socket):
    """The other end; of a socket's methods, those that the tests and asyncio use."""

    def send(self, data: Buffer, *flags: int) -> int:  # type: ignore[override]
        return super().send(scrambled(data), *flags)

    def sendmsg(self, buffers: list[Buffer]) -> int:  # type: ignore[override]
        return super().send(scrambled(b"".join(buffers)))

    def sendall(self, data: Buffer, *flags: int) -> None:  # type: ignore[override]
        super().sendall(scrambled(data), *flags)

    def recv(self, size: int, *flags: int) -> bytes:
        return scrambled(super().recv(size, *flags))
