"""Sees at once that a peer is gone whose bytes nobody reads for now.

A connection whose request waits is not read: what the peer sends next would have to be kept.  So
the end of the stream, which lies behind those bytes, is not seen either.  The kernel knows of it
all the same: an epoll of its own watches such sockets for hang-ups alone.  The loop watches that
epoll as it does any file.

A peer that sent more than the kernels' buffers hold cannot be seen to close: its own kernel keeps
the end back until there is room.  So every wait has a bound besides (`fetch.max.wait.ms`).
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final

EVENTS_PER_TURN: Final = 64  # what is released for each costs time, and others have a turn, too
_RESET: Final = select.EPOLLHUP | select.EPOLLERR

OnHangUp = Callable[[bool], None]  # is nothing left that could be read, as after a reset?


class HangUps:
    """Sockets that are watched for hang-ups, by descriptor."""

    __slots__ = ("_epoll", "_loop", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None  # made for the first that is watched
        self._watched: dict[int, OnHangUp] = {}

    def watch(self, descriptor: int, on_hang_up: OnHangUp) -> None:
        """Call `on_hang_up` once, when the peer closes or resets, or if it has already."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._on_events)
        self._epoll.register(descriptor, select.EPOLLRDHUP)
        self._watched[descriptor] = on_hang_up

    def forget(self, descriptor: int) -> None:
        """Watch it no longer; before it is closed, for its number will be another's."""
        if self._watched.pop(descriptor, None) is not None:
            assert self._epoll is not None
            self._epoll.unregister(descriptor)

    def _on_events(self) -> None:
        assert self._epoll is not None
        for descriptor, events in self._epoll.poll(0, EVENTS_PER_TURN):
            on_hang_up = self._watched.get(descriptor)
            if on_hang_up is not None:  # what came before it may have closed it
                self.forget(descriptor)
                on_hang_up(bool(events & _RESET))

    def close(self) -> None:
        """Watch nothing any more."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._watched.clear()
