"""Notices at once that a peer disconnects whose connection is not being read.

While a request of a connection waits, the connection is not read, because the bytes that follow
would have to be stored.  So the end of the stream, which comes after those bytes, is not read
either.  But the kernel reports it: a second epoll watches such sockets for hang-ups only, and
the event loop watches that epoll as it does any descriptor.

If the peer has sent more than the kernels' buffers hold, its own kernel delays the end of the
stream until there is room.  Therefore every wait also has a timeout (`fetch.max.wait.ms`).
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final

EVENTS_PER_TURN: Final = 64  # closing each connection takes time; other work gets the loop too
_RESET: Final = select.EPOLLHUP | select.EPOLLERR

OnHangUp = Callable[[bool], None]  # the argument: whether it was a reset, so nothing can be read


class HangUps:
    """Watches sockets for hang-ups, by descriptor."""

    __slots__ = ("_epoll", "_loop", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None  # made when the first socket is watched
        self._watched: dict[int, OnHangUp] = {}

    def watch(self, descriptor: int, on_hang_up: OnHangUp) -> None:
        """Call `on_hang_up` once, when the peer closes or resets, or if it has already."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._on_events)
        self._epoll.register(descriptor, select.EPOLLRDHUP)
        self._watched[descriptor] = on_hang_up

    def forget(self, descriptor: int) -> None:
        """Stop watching it; to be called before it is closed, because its number is reused."""
        if self._watched.pop(descriptor, None) is not None:
            assert self._epoll is not None
            self._epoll.unregister(descriptor)

    def _on_events(self) -> None:
        assert self._epoll is not None
        for descriptor, events in self._epoll.poll(0, EVENTS_PER_TURN):
            on_hang_up = self._watched.get(descriptor)
            if on_hang_up is not None:  # an earlier event may have closed it
                self.forget(descriptor)
                on_hang_up(bool(events & _RESET))

    def close(self) -> None:
        """Stop watching all sockets."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._watched.clear()
