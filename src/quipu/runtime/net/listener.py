"""Listens for connections that an asyncio protocol serves, such as HTTP.

The kernel's backlog is long, and few connections are accepted in one turn of the loop: so when many
clients connect at once, none has to connect again, which kernels do only after a second, and
connections that are open get the loop before many others are accepted.  asyncio's own server uses
one number for both.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from quipu.runtime.disks.descriptors import connections_end
from quipu.runtime.spawn import spawn

BACKLOG: Final = 4096  # connections that wait in the kernel, if its own limit allows as many
RETRY_SECONDS: Final = 0.1  # after an accept failed for lack of descriptors


class ProtocolListener:
    """The listening sockets of one address; a host name may resolve to several."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], *, accept_max: int) -> None:
        self._protocol = protocol
        self._accept_max = accept_max  # in one turn of the loop
        self._descriptors_end = connections_end()
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address taken; raises OSError."""
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in infos:
                sock = socket.socket(family, kind, protocol)
                self._sockets.append(sock)
                sock.setblocking(False)  # noqa: FBT003 the standard library's own signature
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((address[0], port, *address[2:]))
                sock.listen(BACKLOG)
                port = sock.getsockname()[1]  # all sockets use the port of the first
        except OSError:
            self.close()
            raise
        for sock in self._sockets:
            loop.add_reader(sock.fileno(), self._accept, sock)
        name = self._sockets[0].getsockname()
        return name[0], name[1]

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._accept_max):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    loop.remove_reader(listening.fileno())
                    loop.call_later(RETRY_SECONDS, self._accept_again, listening)
                return
            sock.setblocking(False)  # noqa: FBT003 the standard library's own signature
            # The last descriptors are for logs and other nodes.
            if sock.fileno() >= self._descriptors_end or _is_gone(sock):
                sock.close()
            else:
                spawn(_connect(self._protocol, sock), "accept")

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def close(self) -> None:
        """Stop listening; open connections stay."""
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()


def _is_gone(sock: socket.socket) -> bool:
    """Whether the peer has closed already without sending: cheaper to find before serving it."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def _connect(protocol: Callable[[], asyncio.Protocol], sock: socket.socket) -> None:
    """Attach an accepted socket to a protocol; close the socket if that fails."""
    try:
        await asyncio.get_running_loop().connect_accepted_socket(protocol, sock)
    except OSError:
        sock.close()
