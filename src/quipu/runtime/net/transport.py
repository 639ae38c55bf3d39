"""The layer between a connection and its socket, which may encrypt bytes.

A connection passes plain bytes to its transport and gets plain bytes from it.  `PlainTransport`
sends them as they are, at no cost: a connection calls the socket's own methods.  TLS will be
another class here.

A transport never blocks: it raises `BlockingIOError` where a socket would.  One that encrypts
buffers bytes in both directions:

    pending   it holds plain bytes for which the socket will not become readable: receive them
    unsent    it holds encrypted bytes that the socket had no room for: call `flush` once it has

Not here: frames and their order (connection.py), limits of connections (admission.py).
"""

import socket
from collections.abc import Callable
from typing import Final, Protocol

from quipu.runtime.net.outgoing import Buffer

PLAINTEXT: Final = "PLAINTEXT"


class Transport(Protocol):
    """Sends and receives the bytes of one connection."""

    @property
    def security_protocol(self) -> str:
        """Kafka's name of the security protocol."""
        ...

    @property
    def peer_name(self) -> str | None:
        """The authenticated name of the peer; None if it has not authenticated."""
        ...

    @property
    def keeps_bytes(self) -> bool:
        """Whether `pending` and `unsent` can ever be true; it does not change."""
        ...

    @property
    def pending(self) -> bool: ...

    @property
    def unsent(self) -> bool: ...

    @property
    def receive_into(self) -> Callable[..., int]:
        """As `socket.recv_into`: a buffer, and how many bytes at most (0: all of it)."""
        ...

    @property
    def send(self) -> Callable[[Buffer], int]:
        """As `socket.send`; returns how many bytes were accepted."""
        ...

    @property
    def send_many(self) -> Callable[[list[Buffer]], int]:
        """As `socket.sendmsg`; returns how many bytes were accepted."""
        ...

    def flush(self) -> None:
        """Send the `unsent` bytes; raise `BlockingIOError` if some are left."""
        ...

    def has_unread(self) -> bool:
        """Whether the peer sent bytes that have not been received yet."""
        ...

    def fileno(self) -> int:
        """The socket's descriptor, for the loop to watch."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


Wrap = Callable[[socket.socket], Transport]


class PlainTransport:
    """Sends bytes as they are, by the socket's own methods."""

    __slots__ = ("_socket", "close", "fileno", "receive_into", "send", "send_many")

    security_protocol: Final = PLAINTEXT
    peer_name: Final = None
    keeps_bytes: Final = False
    pending: Final = False
    unsent: Final = False

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.receive_into = sock.recv_into
        self.send = sock.send
        self.send_many = sock.sendmsg
        self.fileno = sock.fileno
        self.close = sock.close

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def has_unread(self) -> bool:
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False
