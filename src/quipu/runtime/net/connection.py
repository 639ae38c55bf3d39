"""One connection that carries frames: a length of four bytes, then that many bytes.

Made for throughput: a raw non-blocking socket watched by the event loop, behind a transport that
may encrypt its bytes; a receive buffer that all connections share; and no copy of a frame that
arrives whole.

Invariants
    runtime.N1  a frame passed to the handler is valid, and writable, only until the handler
                returns; the bytes that `keep` returns are valid while the connection is paused
    runtime.N2  memory is allocated only for bytes that have arrived, never for a length alone
    runtime.N3  the memory for frames that have arrived in part stays within `partial_size_max` over
                all connections; to keep it so, the connection whose frame arrives slowest is closed
    runtime.N4  buffers are sent in the order of the calls to `send`, at the end of the loop's turn:
                the responses to all requests of one turn are sent together.  Buffers of `send_lent`
                are sent at once, and what the socket does not accept is copied
    runtime.N5  a peer that closes or resets is noticed at once, also while the connection is paused
    runtime.N6  a closed connection drops its handler: the two refer to each other, and the garbage
                collector may free such a cycle only much later (garbage.py)

Not here: accepting connections, and the memory they share (server.py); which buffers are sent
together (outgoing.py); what a frame means, and the order of responses (broker/serving/server.py).
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from quipu.runtime.net.frame_handler import NOBODY, FrameHandler, LastBytes
from quipu.runtime.net.limits import (
    BY_NODE,
    HUNG_UP,
    IDLE,
    MALFORMED,
    NO_MEMORY,
    PEER_CLOSED,
    TOO_SLOW,
    NetLimits,
)
from quipu.runtime.net.outgoing import Buffer, drop_sent, keep_own, next_buffers
from quipu.runtime.net.transport import Transport

if TYPE_CHECKING:  # the server makes connections; a connection only points back to it
    from quipu.runtime.net.server import FrameServer

__all__ = ["Buffer", "Connection", "NetLimits"]

RECEIVE_SIZE: Final = 512 * 1024  # of one read: a smaller one is slower, a larger one misses cache
BEGIN_SIZE: Final = 64 * 1024  # of a read at which a larger frame may begin: it is copied
GROWTH_MIN: Final = 64 * 1024  # first buffer for a frame that has arrived in part
GROWTH_MAX: Final = 8 * 1024 * 1024  # bytes by which a buffer grows at once
KEPT_BUFFER_MAX: Final = 4 * 1024 * 1024  # a larger one is freed after its frame
SWEEP_SECONDS: Final = 1.0
FRAME_GRACE_SECONDS: Final = 30.0  # for a frame to arrive, plus ...
FRAME_RATE_MIN: Final = 16 * 1024  # ... one second per this many bytes
SEND_STALL_SECONDS: Final = 60.0  # a peer that reads nothing for this long is disconnected
EVICT_AGE_SECONDS: Final = 1.0  # a connection with a younger frame is never closed to make room
ROOM_RETRY_SECONDS: Final = 0.1

_SIZE: Final = Struct(">i")


@dataclass(slots=True)
class _Partial:
    """Stored bytes: a frame that has arrived in part, or frames that came during a pause."""

    data: bytearray
    size: int  # how many bytes of `data` are filled
    since: float


class Connection:
    """One peer.  Created by a `FrameServer`, which accepted or dialled it."""

    __slots__ = (
        "_descriptor", "_flushing", "_handler", "_is_bulk", "_keeps_bytes", "_last_active",
        "_last_sent", "_out", "_partial", "_paused", "_read_rest", "_reading", "_receive_into",
        "_send", "_send_many", "_server", "_spare", "_transport", "_view", "_writing", "closed",
        "frame_size_max", "listener", "peer_host", "peer_port", "sent_size",
    )

    def __init__(
        self, server: "FrameServer", transport: Transport, peer: tuple[str, int], listener: str
    ) -> None:
        self._server = server
        self._transport = transport
        self._receive_into = transport.receive_into  # looked up once: called for each read
        self._send, self._send_many = transport.send, transport.send_many
        self._descriptor = transport.fileno()
        self._keeps_bytes = transport.keeps_bytes
        self.peer_host, self.peer_port = peer
        self.listener = listener  # that the peer connected to; empty if this node connected
        self.frame_size_max = server.limits.frame_size_max  # lower for unauthenticated peers
        self.sent_size = 0  # bytes that the kernel has accepted
        self._handler: FrameHandler = LastBytes(self.close)  # until `start`
        self._out: deque[Buffer] = deque()
        self._partial: _Partial | None = None
        self._view: memoryview | None = None  # of the partial's data, so that reads need no copy
        self._spare: bytearray | None = None  # the last partial's buffer, to be reused
        self._is_bulk = False  # whether the last frame that came in parts was larger than a read
        self._flushing = False  # a flush is scheduled
        self._writing = False
        self._reading = False
        self._paused = False
        self._read_rest = False  # whether to handle frames that came before the peer closed
        self.closed = False
        self._last_active = self._last_sent = server.loop.time()

    # -- for the handler

    @property
    def peer_name(self) -> str | None:
        """The authenticated name of the peer (transport.py)."""
        return self._transport.peer_name

    def send(self, buffers: list[Buffer]) -> None:
        """Send `buffers` in order; they must not change before they are sent."""
        if self.closed:
            return
        self._out.extend(buffers)
        if not self._writing and not self._flushing:
            self._flushing = True
            self._server.flush_soon(self)

    def send_lent(self, buffers: list[Buffer]) -> None:
        """Send `buffers` at once; they may change as soon as this returns (runtime.N4)."""
        if self.closed:
            return
        out = self._out
        out.extend(buffers)
        if not self._writing:
            self._flush()
        if out:
            keep_own(out, len(buffers))

    def pause(self, *, read_rest: bool = False) -> None:
        """Handle no more frames until `resume`; at most the bytes of one read are stored.

        If the peer closes meanwhile, so does the connection: nobody waits for responses any more.
        With `read_rest` the frames that it sent before are handled first, after `resume`.
        """
        self._paused = True  # reading stops only when more arrives: most pauses end before
        self._read_rest = read_rest

    def keep(self, frame: memoryview) -> memoryview:
        """The bytes of `frame`, valid from `pause` to `resume` (runtime.N1).

        A frame larger than a read is in a buffer of this connection, which is not overwritten
        during a pause; a smaller one is copied.
        """
        return frame if len(frame) > RECEIVE_SIZE else memoryview(bytearray(frame))

    def resume(self) -> None:
        """End a `pause`."""
        if self._paused and not self.closed:
            self._paused = False
            if self._partial is not None or not self._reading or self._keeps_bytes:
                self._server.loop.call_soon(self._go_on)

    def close(self, *, after_sending: bool = False, why: str = BY_NODE) -> None:
        """Close, at once or after all buffers are sent; `why` is the reason for metrics."""
        if self.closed:
            return
        if after_sending and (self._out or self._transport.unsent):
            self.pause()
            self._handler_lost()
            self._handler = LastBytes(self.close)
            if not self._writing:
                self._flush()
            return
        self._close(why)

    # -- receiving

    def start(self, handler: FrameHandler) -> None:
        """Start to read, and pass frames to `handler`."""
        self._handler = handler
        self._paused = False
        self._start_reading()

    def hold(self) -> None:
        """Read nothing before `start`, but notice if the peer disconnects (runtime.N5)."""
        self.pause()
        self._server.hang_ups.watch(self._descriptor, self._hung_up)

    def _start_reading(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._server.hang_ups.forget(self._descriptor)
            self._server.loop.add_reader(self._descriptor, self._on_readable)
        if self._keeps_bytes:
            self._server.loop.call_soon(self._read_pending)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._server.loop.remove_reader(self._descriptor)

    def _go_on(self) -> None:
        """Handle the frames that came during a pause, then read again."""
        if self.closed or self._paused:
            return
        partial = self._partial
        if partial is not None:
            data, size = partial.data, partial.size
            self._forget_partial()
            self._consume(memoryview(data), size)
        has_room = self._partial is None or self._view is not None
        if has_room and not self._paused:
            self._start_reading()  # without room, `_retry_room` continues

    def _on_readable(self) -> None:
        if self._read():
            self._read()  # the end of a frame was read, and most likely more bytes have come
        if self._keeps_bytes and not self.closed:
            if self._transport.unsent:  # to receive, the transport may have to send first
                self._watch_room()
            if self._transport.pending:
                self._server.loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        """Read bytes that the transport holds: the socket will not become readable for them."""
        if self._reading and not self._paused and not self.closed and self._transport.pending:
            self._on_readable()

    def _read(self) -> bool:
        """Read once and handle whole frames; True if exactly one frame was completed."""
        if self._paused:
            self._stop_reading()  # the end of the stream will not be read either (runtime.N5)
            self._server.hang_ups.watch(self._descriptor, self._hung_up)
            return False
        server = self._server
        view = self._view
        if view is None and self._partial is not None:
            self._go_on()  # bytes stored during a pause come before those in the socket
            return False
        try:
            if view is None:
                size = self._receive_into(server.buffer, BEGIN_SIZE if self._is_bulk else 0)
            else:
                size = self._receive_into(view)
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
        del view  # a bytearray cannot grow while a view of it exists
        self._continue_partial(size)
        return self._partial is None and not self.closed

    def _hung_up(self, is_reset: bool) -> None:  # noqa: FBT001 see `hangups.OnHangUp`
        """The peer has disconnected during a pause (runtime.N5)."""
        has_rest = self._partial is not None or self._transport.has_unread()
        if is_reset or not (self._read_rest and has_rest):
            self._close(HUNG_UP)

    def _consume(self, view: memoryview, filled: int) -> None:
        """Handle every whole frame in view[:filled]; store the rest."""
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
            if self.closed:
                return
            position = end
        if position < filled:
            self._keep(view[position:filled])

    def _refuse(self, size: int) -> None:
        self._server.stats.malformed += 1
        self._server.limited.warning(
            "bad frame", "closing connection of %s:%d: frame of %d bytes, must be from 0 to %d",
            self.peer_host, self.peer_port, size, self.frame_size_max)
        self._close(MALFORMED)

    # -- frames that arrive in parts

    def _keep(self, rest: memoryview) -> None:
        """Copy bytes that cannot be handled yet, and let the next read fill the buffer."""
        size = len(rest)
        wanted = 4 + _SIZE.unpack_from(rest)[0] if size >= 4 else GROWTH_MIN
        room = max(size, min(wanted, max(GROWTH_MIN, 2 * size)))  # runtime.N2
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= room:
            data = spare
        else:
            if spare is not None:
                self._server.give_back(len(spare))
            if not self._server.take(room):
                self.evict()  # there is no memory for what has arrived
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
            return True  # whole frames, which came during a pause
        if len(partial.data) <= partial.size and not self._grow(wanted):
            self._stop_reading()
            self._server.loop.call_later(ROOM_RETRY_SECONDS, self._retry_room)
            return False
        self._view = memoryview(partial.data)[partial.size : min(wanted, len(partial.data))]
        return True

    def _grow(self, wanted: int) -> bool:
        """Double the buffer of a frame whose bytes arrive; at most to the size of the frame, and
        by at most GROWTH_MAX at once: large buffers grow in place, and new pages take time.
        """
        partial = self._partial
        assert partial is not None
        more = min(wanted - len(partial.data), len(partial.data), GROWTH_MAX)
        if not self._server.take(more):
            return False
        if self.closed:  # `take` closed this connection: its own frame was the slowest
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
                self._spare = data  # kept for the next frame
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
        if self.closed or self._paused or self._partial is None or self._view is not None:
            return
        if self._aim():
            self._start_reading()

    # -- sending

    def flush(self) -> None:
        """Send the buffers of this turn of the loop."""
        self._flushing = False
        if self._out and not self._writing and not self.closed:
            self._flush()

    def _flush(self) -> None:
        """Send as much as the socket accepts; if that is not all, wait until it is writable."""
        out = self._out
        stats = self._server.stats
        try:
            if self._keeps_bytes:
                self._transport.flush()
            while out:
                buffers = next_buffers(out)
                sent = self._send_many(buffers) if len(buffers) > 1 else self._send(buffers[0])
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
        if out or self._transport.unsent:
            self._watch_room()
            return
        was_slow, self._writing = self._writing, False
        if was_slow:
            self._server.loop.remove_writer(self._descriptor)
        if was_slow or self._paused:
            self._handler.drained()

    def _watch_room(self) -> None:
        if not self._writing:
            self._writing = True
            self._last_sent = self._server.loop.time()
            self._server.loop.add_writer(self._descriptor, self._flush)

    @property
    def backlog(self) -> int:
        """Number of buffers not sent yet; more than a few mean that the peer is slow."""
        return len(self._out)

    # -- the end

    def sweep(self, now: float) -> None:
        """Close the connection if it is idle, stalled or too slow; free an unused buffer."""
        partial = self._partial
        if (partial is not None and partial.size >= 4 and self._view is not None
                and not self._paused):  # else this node is the one that does not read
            frame_size: int = _SIZE.unpack_from(partial.data)[0]
            if now - partial.since > FRAME_GRACE_SECONDS + frame_size / FRAME_RATE_MIN:
                self._time_out(TOO_SLOW, "a frame took too long to arrive")
                return
        if self._writing and now - self._last_sent > SEND_STALL_SECONDS:
            self._time_out(TOO_SLOW, "the peer reads no bytes")
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
        """Bytes per second of the arriving frame; None if it may not be closed to make room."""
        if self._partial is None or now - self._partial.since < EVICT_AGE_SECONDS:
            return None
        return self._partial.size / (now - self._partial.since)

    def evict(self) -> None:
        """Close this connection to free memory for others (runtime.N3)."""
        self._server.stats.evicted += 1
        self._server.limited.warning(
            "evicted", "closing connection of %s:%d: memory for partial requests is used up "
            "and its request arrives slowest (queued.max.request.bytes)",
            self.peer_host, self.peer_port)
        self._close(NO_MEMORY)

    def _handler_lost(self) -> None:
        handler, self._handler = self._handler, NOBODY  # runtime.N6
        handler.connection_lost()

    def _close(self, why: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._server.stats.closed[why] += 1
        self._stop_reading()
        self._server.hang_ups.forget(self._descriptor)
        if self._writing:
            self._server.loop.remove_writer(self._descriptor)
        self._out.clear()
        self._forget_partial()
        self._release_spare()
        self._server.forget(self)
        self._transport.close()
        self._handler_lost()
