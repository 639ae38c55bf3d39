"""Listens for connections that are served by a protocol of asyncio, such as those of HTTP.

The kernel keeps many that nobody has accepted yet, and few are accepted in one turn of the loop:
so a crowd that connects at once costs nobody a second attempt, which kernels make after a second,
and who is connected is heard before as many others are accepted.  A loop's own server does not
know the difference between the two numbers.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from quipu.runtime.descriptors import connections_end
from quipu.runtime.spawn import spawn

BACKLOG: Final = 4096  # connections that wait in the kernel, if it allows so many
RETRY_SECONDS: Final = 0.1  # after an accept that found no descriptor


class Listener:
    """The sockets of one address, which has several numbers if it is a name."""

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
                port = sock.getsockname()[1]  # all have the one that the first was given
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
        """Listen no longer; connections live on."""
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()


def _is_gone(sock: socket.socket) -> bool:
    """Has the peer closed already, without a word?  It costs far less to see that first."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def _connect(protocol: Callable[[], asyncio.Protocol], sock: socket.socket) -> None:
    """Give an accepted socket its protocol; one that has closed meanwhile needs none."""
    try:
        await asyncio.get_running_loop().connect_accepted_socket(protocol, sock)
    except OSError:
        sock.close()
