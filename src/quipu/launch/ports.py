"""TCP ports of this machine: free ones for nodes, and the process that listens on one."""

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PORT_MIN: Final = 16_384
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_START: Final = 32_768  # Linux's own default
TRIES_PER_PORT: Final = 100


def free_ports(count: int) -> list[int]:
    """Different ports on loopback that no process listens on now.

    Nodes of a cluster must know each other's ports before any of them starts.  So these are ports
    that the kernel gives to nobody by itself: neither to a connection nor to a listener without a
    port of its own, which could take them in between.
    """
    ports = range(PORT_MIN, max(_ephemeral_start(), PORT_MIN + 2 * TRIES_PER_PORT * count))
    free: list[int] = []
    for port in random.SystemRandom().sample(ports, TRIES_PER_PORT * count):
        if len(free) < count and _is_free(port):
            free.append(port)
    if len(free) < count:
        raise OSError(errno.EADDRINUSE, f"fewer than {count} free ports in {ports}")
    return free


def _ephemeral_start() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_START


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def listening_pid(port: int) -> int | None:
    """The process that listens on a TCP port; None if there is none, or it is another user's."""
    inodes = set(_listening_inodes(port))
    for process in Path("/proc").iterdir() if inodes else ():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # ended, or another user's
            for descriptor in (process / "fd").iterdir():
                if descriptor.readlink().name in inodes:
                    return int(process.name)
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"
