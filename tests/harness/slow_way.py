"""A proxy to a node that can delay requests, even until after their client has ended.

    with SlowWay() as way:
        node = RunningNode(data, settings={"advertised.listeners": way.address})
        way.target = node.start().port
        way.hold()       # connections that there are: what clients send on them waits
        way.release()    # it arrives; connections that were made in between were not held

Clients reach the node only through `way.address`.  For tests of retries whose first attempt arrives
late.
"""

import contextlib
import socket
import threading
from typing import Self

PART_SIZE = 1 << 16
HELD_SIZE_MAX = 64 << 20


class SlowWay:
    """A proxy with a thread for each direction of each connection."""

    def __init__(self) -> None:
        self.target = 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._ways: list[_Way] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()
        self.release()

    def hold(self) -> None:
        """What clients send on the connections that there are now waits."""
        with self._lock:
            for way in self._ways:
                way.is_held = True

    def release(self) -> None:
        """What waited arrives."""
        with self._lock:
            for way in self._ways:
                way.is_held = False
                way.pass_on(b"")

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            try:
                node = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            way = _Way(node)
            with self._lock:
                self._ways.append(way)
            threading.Thread(target=self._there, args=(client, way), daemon=True).start()
            threading.Thread(target=_back, args=(client, node), daemon=True).start()

    def _there(self, client: socket.socket, way: "_Way") -> None:
        with contextlib.suppress(OSError):
            while part := client.recv(PART_SIZE):
                with self._lock:
                    way.pass_on(part)
        with self._lock:
            way.is_over = True
            way.pass_on(b"")


class _Way:
    """From a client to the node."""

    def __init__(self, node: socket.socket) -> None:
        self.is_held = False
        self.is_over = False  # the client says no more
        self._node = node
        self._waiting = b""

    def pass_on(self, part: bytes) -> None:
        self._waiting += part
        assert len(self._waiting) < HELD_SIZE_MAX
        if self.is_held:
            return
        with contextlib.suppress(OSError):
            self._node.sendall(self._waiting)
            if self.is_over:
                self._node.shutdown(socket.SHUT_WR)
        self._waiting = b""


def _back(client: socket.socket, node: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := node.recv(PART_SIZE):
            client.sendall(part)
    with contextlib.suppress(OSError):
        client.close()
    node.close()
