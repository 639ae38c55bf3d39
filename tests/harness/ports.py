"""Ports of one's own: for servers that must be told their port, and keep it over a restart.

A socket that is bound and never listens holds the port.  The system gives such a port to nobody
who asks for any free one, neither to listen on nor to connect from; only who asks for exactly this
port, and reuses addresses as Quipu's listeners do, may listen on it beside the holder.
"""

import socket
import weakref


def hold_port(owner: object) -> int:
    """A free port on loopback, which stays `owner`'s as long as that object lives."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    weakref.finalize(owner, holder.close)
    port: int = holder.getsockname()[1]
    return port
