"""One connection that carries frames: a length of four bytes, then that many bytes.

Made for throughput: a raw non-blocking socket on the loop's readers and writers, a receive buffer
that all connections share, and no copy of a frame that arrives whole.

Invariants
    N1  a frame handed over is valid, and writable, only until the handler returns; what `keep`
        gives of it is for as long as the connection is paused
    N2  no memory is taken for bytes that have not arrived: a claimed length is only a claim
    N3  the bytes kept for frames that have arrived in part stay within `partial_size_max` over
        all connections; when they would not, the connection that fills its frame slowest is closed
    N4  what is sent leaves in the order in which it was given, at the end of the loop's turn: the
        answers to all that came in one turn leave together, and wake their peers together;
        what is only lent leaves at once, and what the socket does not take of it is copied
    N5  a peer that closes or resets is noticed at once, also while its frames are held back
    N6  a closed connection lets go of its handler: the two refer to each other, and what only the
        garbage collector frees may stay for long (garbage.py)

Not here: accepting connections and the memory they share (net.py); which buffers leave together
(outgoing.py); what a frame means, or in which order requests are answered (broker/server.py).
"""

import socket
from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from quipu.runtime.frame_handler import NOBODY, FrameHandler, LastBytes
from quipu.runtime.net_limits import (
    BY_NODE,
    HUNG_UP,
    IDLE,
    MALFORMED,
    NO_MEMORY,
    PEER_CLOSED,
    TOO_SLOW,
    NetLimits,
)
from quipu.runtime.outgoing import Buffer, drop_sent, keep_own, next_buffers

if TYPE_CHECKING:  # the server makes connections; a connection only points back to it
    from quipu.runtime.net import FrameServer

__all__ = ["Buffer", "Connection", "NetLimits"]

RECEIVE_SIZE: Final = 512 * 1024  # one read: a smaller one costs rate, a larger one misses cache
BEGIN_SIZE: Final = 64 * 1024  # a read where a larger frame may begin: it is copied
GROWTH_MIN: Final = 64 * 1024  # first buffer for a frame that has arrived in part
GROWTH_MAX: Final = 8 * 1024 * 1024  # bytes that a buffer grows by at once
KEPT_BUFFER_MAX: Final = 4 * 1024 * 1024  # a larger one is given back after its frame
SWEEP_SECONDS: Final = 1.0
FRAME_GRACE_SECONDS: Final = 30.0  # for a frame to arrive, and on top of it ...
FRAME_RATE_MIN: Final = 16 * 1024  # ... a second for each so many bytes
SEND_STALL_SECONDS: Final = 60.0  # a peer that takes nothing for so long is gone
EVICT_AGE_SECONDS: Final = 1.0  # younger frames are never closed to make room
ROOM_RETRY_SECONDS: Final = 0.1

_SIZE: Final = Struct(">i")


@dataclass(slots=True)
class _Partial:
    """Bytes that wait: a frame that has arrived in part, or frames held back by a pause."""

    data: bytearray
    size: int  # how many bytes of `data` are filled
    since: float


class Connection:
    """One peer.  Created by a `FrameServer`, which accepted or dialled it."""

    __slots__ = (
        "_closed", "_flushing", "_handler", "_is_bulk", "_last_active", "_last_sent", "_out",
        "_partial", "_paused", "_read_rest", "_reading", "_server", "_socket", "_spare", "_view",
        "_writing", "frame_size_max", "peer_host", "peer_port", "sent_size",
    )

    def __init__(self, server: "FrameServer", sock: socket.socket, peer: tuple[str, int]) -> None:
        self._server = server
        self._socket = sock
        self.peer_host, self.peer_port = peer
        self.frame_size_max = server.limits.frame_size_max  # lower it for a peer nobody trusts yet
        self.sent_size = 0  # bytes that the kernel has taken
        self._handler: FrameHandler = LastBytes(self.close)  # until `start`
        self._out: deque[Buffer] = deque()
        self._partial: _Partial | None = None
        self._view: memoryview | None = None  # of the partial's data, so that reads need no copy
        self._spare: bytearray | None = None  # the last partial's buffer, to be used again
        self._is_bulk = False  # was the last frame that came in parts larger than a read?
        self._flushing = False  # a flush is scheduled
        self._writing = False
        self._reading = False
        self._paused = False
        self._read_rest = False  # frames that came before the peer closed are wanted all the same
        self._closed = False
        self._last_active = self._last_sent = server.loop.time()

    # -- for the handler

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, buffers: list[Buffer]) -> None:
        """Send `buffers` in order after what was sent before; they must not change meanwhile."""
        if self._closed:
            return
        self._out.extend(buffers)
        if not self._writing and not self._flushing:
            self._flushing = True
            self._server.flush_soon(self)

    def send_lent(self, buffers: list[Buffer]) -> None:
        """The same at once; the buffers may change as soon as this returns (N4)."""
        if self._closed:
            return
        out = self._out
        out.extend(buffers)
        if not self._writing:
            self._flush()
        if out:
            keep_own(out, len(buffers))

    def pause(self, *, read_rest: bool = False) -> None:
        """Hand over no more frames until `resume`; at most one read's worth is kept meanwhile.

        If the peer closes meanwhile, so does the connection: nobody waits for answers any more.
        With `read_rest` the frames that it sent before are handed over first, after `resume`.
        """
        self._paused = True  # the reader goes when the peer sends more: most pauses end before
        self._read_rest = read_rest

    def keep(self, frame: memoryview) -> memoryview:
        """The bytes of `frame`, from `pause` to `resume` (N1): what is larger than a read lies in
        a buffer of this connection that nobody fills meanwhile, the rest is copied.
        """
        return frame if len(frame) > RECEIVE_SIZE else memoryview(bytearray(frame))

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._paused and not self._closed:
            self._paused = False
            if self._partial is not None or not self._reading:
                self._server.loop.call_soon(self._go_on)

    def close(self, *, after_sending: bool = False, why: str = BY_NODE) -> None:
        """Close, at once or as soon as everything given to `send` has left; `why` is counted."""
        if self._closed:
            return
        if after_sending and self._out:
            self.pause()
            self._handler_lost()
            self._handler = LastBytes(self.close)
            if not self._writing:
                self._flush()
            return
        self._close(why)

    # -- receiving

    def start(self, handler: FrameHandler) -> None:
        """Begin to hand frames to `handler`."""
        self._handler = handler
        self._paused = False
        self._start_reading()

    def hold(self) -> None:
        """Read nothing before `start`, but notice if the peer goes (N5)."""
        self.pause()
        self._server.hang_ups.watch(self._socket.fileno(), self._hung_up)

    def _start_reading(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._server.hang_ups.forget(self._socket.fileno())
            self._server.loop.add_reader(self._socket.fileno(), self._on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._server.loop.remove_reader(self._socket.fileno())

    def _go_on(self) -> None:
        """Deal with what was held back, then read again."""
        if self._closed or self._paused:
            return
        partial = self._partial
        if partial is not None:
            data, size = partial.data, partial.size
            self._forget_partial()
            self._consume(memoryview(data), size)
        has_room = self._partial is None or self._view is not None
        if has_room and not self._paused:
            self._start_reading()  # without room, `_retry_room` goes on

    def _on_readable(self) -> None:
        if self._read():
            self._read()  # the end of a frame was read, and most likely more came with it

    def _read(self) -> bool:
        """Read once and hand over what is whole; true if that was the end of one frame alone."""
        if self._paused:
            self._stop_reading()  # the end of the stream lies behind what is not read (N5)
            self._server.hang_ups.watch(self._socket.fileno(), self._hung_up)
            return False
        server = self._server
        view = self._view
        if view is None and self._partial is not None:
            self._go_on()  # bytes held back by a pause come before those that wait in the socket
            return False
        try:
            if view is None:
                size = self._socket.recv_into(
                    server.buffer, BEGIN_SIZE if self._is_bulk else 0)
            else:
                size = self._socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._close(PEER_CLOSED)
            return False
        if size == 0:
            self._close(PEER_CLOSED)
            return False
        server.stats.received_size += size
        self._last_active = server.loop.time()
        if view is None:
            self._consume(server.view, size)
            return False
        del view  # a buffer grows only while nobody looks at it
        self._continue_partial(size)
        return self._partial is None and not self._closed

    def _hung_up(self, is_reset: bool) -> None:  # noqa: FBT001 see `hangups.OnHangUp`
        """The peer is gone while its frames are held back (N5)."""
        if is_reset or not (self._read_rest and self._has_rest()):
            self._close(HUNG_UP)

    def _has_rest(self) -> bool:
        """Did the peer send anything that has not been handed over?"""
        try:
            return self._partial is not None or bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _consume(self, view: memoryview, filled: int) -> None:
        """Hand over every whole frame in view[:filled]; keep the rest."""
        position = 0
        frame_received = self._handler.frame_received
        while filled - position >= 4 and not self._paused:
            size: int = _SIZE.unpack_from(view, position)[0]
            if not 0 <= size <= self.frame_size_max:
                self._refuse(size)
                return
            end = position + 4 + size
            if end > filled:
                break
            frame_received(view[position + 4 : end])
            if self._closed:
                return
            position = end
        if position < filled:
            self._keep(view[position:filled])

    def _refuse(self, size: int) -> None:
        self._server.stats.malformed += 1
        self._server.limited.warning(
            "bad frame", "closing connection of %s:%d: frame of %d bytes, allowed are 0 to %d",
            self.peer_host, self.peer_port, size, self.frame_size_max)
        self._close(MALFORMED)

    # -- frames that arrive in parts

    def _keep(self, rest: memoryview) -> None:
        """Copy what cannot be handed over yet, and aim the next read behind it."""
        size = len(rest)
        wanted = 4 + _SIZE.unpack_from(rest)[0] if size >= 4 else GROWTH_MIN
        room = max(size, min(wanted, max(GROWTH_MIN, 2 * size)))
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= room:
            data = spare
        else:
            if spare is not None:
                self._server.give_back(len(spare))
            if not self._server.take(room):
                self.evict()  # what has arrived can be kept nowhere
                return
            data = bytearray(room)
        data[:size] = rest
        self._partial = _Partial(data, size, self._server.loop.time())
        self._aim()

    def _aim(self) -> bool:
        """Let the next read fill the partial frame, to its end and not beyond."""
        partial = self._partial
        assert partial is not None
        if partial.size < 4:
            wanted = 4
        else:
            frame_size: int = _SIZE.unpack_from(partial.data)[0]
            if not 0 <= frame_size <= self.frame_size_max:
                self._refuse(frame_size)
                return False
            wanted = 4 + frame_size
        self._view = None
        if wanted <= partial.size:
            return True  # whole frames, held back by a pause
        if len(partial.data) <= partial.size and not self._grow(wanted):
            self._stop_reading()
            self._server.loop.call_later(ROOM_RETRY_SECONDS, self._retry_room)
            return False
        self._view = memoryview(partial.data)[partial.size : min(wanted, len(partial.data))]
        return True

    def _grow(self, wanted: int) -> bool:
        """Twice the room for a frame whose bytes do arrive; never more than it needs, nor more
        than GROWTH_MAX at once: large buffers grow where they are, and new pages take time.
        """
        partial = self._partial
        assert partial is not None
        more = min(wanted - len(partial.data), len(partial.data), GROWTH_MAX)
        if not self._server.take(more):
            return False
        if self._closed:  # it was itself the slowest: room was made by closing it
            self._server.give_back(more)
            return False
        partial.data += bytes(more)
        return True

    def _continue_partial(self, size: int) -> None:
        partial = self._partial
        assert partial is not None
        partial.size += size
        if partial.size >= 4:
            frame_size: int = _SIZE.unpack_from(partial.data)[0]
            if partial.size == 4 + frame_size:
                data = partial.data
                self._is_bulk = frame_size > RECEIVE_SIZE
                self._view = None
                self._partial = None
                self._spare = data  # kept for the next one, unless that frame wants it larger
                self._consume(memoryview(data), partial.size)
                self._release_spare(keep_max=KEPT_BUFFER_MAX)
                return
        self._aim()

    def _forget_partial(self) -> None:
        if self._partial is not None:
            self._server.give_back(len(self._partial.data))
            self._partial = None
            self._view = None

    def _release_spare(self, *, keep_max: int = 0) -> None:
        spare = self._spare
        if spare is None:
            return
        if len(spare) > keep_max or self._server.crowded():
            self._spare = None
            self._server.give_back(len(spare))

    def _retry_room(self) -> None:
        if self._closed or self._paused or self._partial is None or self._view is not None:
            return
        if self._aim():
            self._start_reading()

    # -- sending

    def flush(self) -> None:
        """Send what has gathered in this turn of the loop."""
        self._flushing = False
        if self._out and not self._writing and not self._closed:
            self._flush()

    def _flush(self) -> None:
        """Send as much as the socket takes; watch it for room if it does not take all."""
        out = self._out
        stats = self._server.stats
        try:
            while out:
                buffers = next_buffers(out)
                sent = self._socket.sendmsg(buffers) if len(buffers) > 1 else (
                    self._socket.send(buffers[0]))
                stats.sent_size += sent
                self.sent_size += sent
                if not drop_sent(out, buffers, sent):
                    self._last_sent = self._server.loop.time()
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._close(PEER_CLOSED)
            return
        if out:
            self._watch_room()
            return
        was_slow, self._writing = self._writing, False
        if was_slow:
            self._server.loop.remove_writer(self._socket.fileno())
        if was_slow or self._paused:
            self._handler.drained()

    def _watch_room(self) -> None:
        if not self._writing:
            self._writing = True
            self._last_sent = self._server.loop.time()
            self._server.loop.add_writer(self._socket.fileno(), self._flush)

    @property
    def backlog(self) -> int:
        """How many buffers have not left yet; more than a few mean that the peer is slow."""
        return len(self._out)

    # -- the end

    def sweep(self, now: float) -> None:
        """Close a connection that is idle, stalled, or trickles a frame; free what is unused."""
        partial = self._partial
        if (partial is not None and partial.size >= 4 and self._view is not None
                and not self._paused):  # else it is this node that does not read
            frame_size: int = _SIZE.unpack_from(partial.data)[0]
            if now - partial.since > FRAME_GRACE_SECONDS + frame_size / FRAME_RATE_MIN:
                self._time_out(TOO_SLOW, "a frame took too long to arrive")
                return
        if self._writing and now - self._last_sent > SEND_STALL_SECONDS:
            self._time_out(TOO_SLOW, "the peer takes no bytes")
        elif now - max(self._last_active, self._last_sent) > self._server.limits.idle_seconds_max:
            self._time_out(IDLE, "idle")
        elif self._spare is not None and now - self._last_active > SWEEP_SECONDS:
            self._release_spare()

    def _time_out(self, reason: str, why: str) -> None:
        self._server.stats.timed_out += 1
        self._server.limited.info(
            "timed out", "closing connection of %s:%d: %s", self.peer_host, self.peer_port, why)
        self._close(reason)

    def partial_rate(self, now: float) -> float | None:
        """Bytes per second of the frame that is arriving, if it may be closed to make room."""
        if self._partial is None or now - self._partial.since < EVICT_AGE_SECONDS:
            return None
        return self._partial.size / (now - self._partial.since)

    def evict(self) -> None:
        """Close to make room for others (N3)."""
        self._server.stats.evicted += 1
        self._server.limited.warning(
            "evicted", "closing connection of %s:%d: memory for partial requests is used up "
            "and its request arrives slowest (queued.max.request.bytes)",
            self.peer_host, self.peer_port)
        self._close(NO_MEMORY)

    def _handler_lost(self) -> None:
        handler, self._handler = self._handler, NOBODY  # N6
        handler.connection_lost()

    def _close(self, why: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._server.stats.closed[why] += 1
        self._stop_reading()
        self._server.hang_ups.forget(self._socket.fileno())
        if self._writing:
            self._server.loop.remove_writer(self._socket.fileno())
        self._out.clear()
        self._forget_partial()
        self._release_spare()
        self._server.forget(self)
        self._socket.close()
        self._handler_lost()
