"""Reserved ports, for servers that need a fixed port and keep it over a restart.

A socket that is bound and never listens reserves the port.  The system assigns such a port to no
other process that asks for any free one, neither to listen on nor to connect from; only a process
that binds exactly this port, with SO_REUSEADDR as Quipu's listeners do, may listen on it.
"""

import socket
import weakref


def hold_port(owner: object) -> int:
    """Reserve a free port on loopback for as long as the object `owner` exists."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    weakref.finalize(owner, holder.close)
    port: int = holder.getsockname()[1]
    return port
