"""A closed loop: every connection keeps a number of requests in flight, as fast as responses come.

Non-blocking sockets on one epoll, frames encoded beforehand (frames.py), one clock reading per
poll.  Returns a `Measured` for a Produce or a Fetch load; runs in a process of its own.

A closed loop shows throughput, and latency under full load.  Latency at a given rate needs an open
loop, which does not wait for the server (open_loop.py).
"""

import itertools
import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from quipu.bench.errors import BenchError
from quipu.bench.frames import (
    FETCH_OVERHEAD_MAX,
    FetchFrame,
    FetchSummary,
    ProduceFrame,
    read_fetch,
)
from quipu.bench.measured import Latency, Measured
from quipu.bench.processes import cost_of
from quipu.model.bounds import OFFSET_MAX
from quipu.model.settings_types import Address

RECEIVE_SIZE: Final = 256 << 10
JOIN_SIZE_MAX: Final = 16 << 10  # frames up to this size are sent several at once
SILENCE_SECONDS_MAX: Final = 30.0
DRAIN_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long to measure, and the processes whose CPU is counted."""

    seconds: float
    warmup_seconds: float = 0.3
    size_max: int = 1 << 62  # bytes after which the window ends early
    server_pid: int | None = None
    other_pids: tuple[int, ...] = ()  # of the nodes that work with the server


@dataclass(slots=True)
class LoadCounter:
    """Counts requests with a response, their records and bytes, and keeps their latencies."""

    requests: int = 0
    records: int = 0
    size: int = 0
    latencies: "array[float]" = field(default_factory=lambda: array("d"))


class Worker(Protocol):
    """One connection of a closed loop."""

    socket: socket.socket

    @property
    def awaited(self) -> int:
        """The number of responses that must be waited for at the end."""

    @property
    def wants_write(self) -> bool:
        """Are there bytes to send as soon as the socket accepts them?"""

    def start(self, now: float) -> None:
        """Send the first requests."""

    def readable(self, now: float) -> None:
        """Receive responses, and send as many new requests unless stopped."""

    def writable(self) -> None:
        """Send the bytes that the socket did not accept before."""

    def stop(self) -> None:
        """Send no more requests; responses in flight are still received."""


def connect(address: Address) -> socket.socket:
    """A non-blocking connection without Nagle's delay."""
    try:
        made = socket.create_connection(address, SILENCE_SECONDS_MAX)
    except OSError as error:
        raise BenchError(f"cannot connect to {address}: {error}") from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


class _Sender:
    """Sends frames in order and keeps the bytes that the socket does not accept."""

    def __init__(self, address: Address) -> None:
        self.socket = connect(address)
        self.in_flight = 0
        self._out: deque[memoryview] = deque()

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    @property
    def awaited(self) -> int:
        return self.in_flight

    def send(self, data: bytes) -> None:
        waits = bool(self._out)
        self._out.append(memoryview(data))
        if not waits:
            self.flush()

    def flush(self) -> None:
        out = self._out
        while out:
            try:
                sent = self.socket.send(out[0])
            except BlockingIOError:
                return
            except OSError as error:
                raise BenchError(f"the broker broke the connection: {error}") from error
            if sent < len(out[0]):
                out[0] = out[0][sent:]
            else:
                out.popleft()


class Producer(_Sender):
    """Sends the same frames in turn, repeatedly; they differ only in their partition."""

    def __init__(
        self, address: Address, frames: Sequence[ProduceFrame], pipeline: int, counter: LoadCounter
    ) -> None:
        super().__init__(address)
        self.frame = frames[0]
        self._next = itertools.cycle([frame.data for frame in frames]).__next__
        self._counter = counter
        self._pipeline = pipeline
        self._sent_at: deque[float] = deque()
        self._stopped = False
        self._buffer = bytearray(RECEIVE_SIZE)
        self._view = memoryview(self._buffer)
        self._have = 0  # bytes of an incomplete response
        self._response = self.frame.response

    @property
    def wants_write(self) -> bool:
        return bool(self._out) or (self.frame.acks == 0 and not self._stopped)

    def start(self, now: float) -> None:
        if self.frame.acks != 0:
            self.request(self._pipeline, now)

    def stop(self) -> None:
        self._stopped = True

    def writable(self) -> None:
        self.flush()
        if self.frame.acks == 0 and not self._stopped and not self._out:
            for _ in range(self._pipeline):  # acks=0 has no response: a request counts when sent
                self.send(self._next())
            self._count(self._pipeline)

    def readable(self, now: float) -> None:
        have = self._have + _receive(self.socket, self._view[self._have :])
        size = self.frame.response_size
        good = (size - 4, 0)
        unpack = self._response.unpack_from
        position = 0
        while have - position >= size and unpack(self._buffer, position) == good:
            position += size
        self._have = have - position
        if self._have:
            self._check(position, have)
            self._buffer[: self._have] = self._buffer[position:have]
        if position:
            self._handle_responses(position // size, now)

    def _check(self, position: int, have: int) -> None:
        """Raise if the next response is complete and has an error."""
        frame = bytes(self._buffer[position:have])
        size = 4 + int.from_bytes(frame[:4], "big")
        if size <= len(frame) or size > len(self._buffer):
            reason = self.frame.explain(frame[:size])
            raise BenchError(f"the broker refused a batch: {reason}")

    def _handle_responses(self, count: int, now: float) -> None:
        self._count(count)
        sent_at = self._sent_at
        for _ in range(count):
            self._counter.latencies.append(now - sent_at.popleft())
        self.in_flight -= count
        if not self._stopped:
            self.request(count, now)

    def _count(self, count: int) -> None:
        self._counter.requests += count
        self._counter.records += count * self.frame.record_count
        self._counter.size += count * self.frame.batch_size

    def request(self, count: int, now: float) -> None:
        """Send `count` batches; `now` is when their latencies begin."""
        self._sent_at.extend([now] * count)
        self.in_flight += count
        if count > 1 and len(self.frame.data) <= JOIN_SIZE_MAX:
            self.send(b"".join([self._next() for _ in range(count)]))
        else:
            for _ in range(count):
                self.send(self._next())


class Fetcher(_Sender):
    """Reads one partition from its start to its end, or to the offset `end`, repeatedly."""

    def __init__(
        self, address: Address, frame: FetchFrame, size_max: int, counter: LoadCounter, *,
        end: int | None = None,
    ) -> None:
        super().__init__(address)
        self.frame = frame
        self._end = OFFSET_MAX if end is None else end
        self._counter = counter
        self._offset = 0
        self._stopped = False
        self._sent_at = 0.0
        self._view = memoryview(bytearray(size_max * 2 + FETCH_OVERHEAD_MAX))
        self._have = 0

    def start(self, now: float) -> None:
        self.request(now)

    def stop(self) -> None:
        self._stopped = True

    def writable(self) -> None:
        self.flush()

    def readable(self, now: float) -> None:
        self._have += _receive(self.socket, self._view[self._have :])
        if self._have < 4:
            return
        size = 4 + int.from_bytes(self._view[:4], "big")
        if size > len(self._view):
            raise BenchError(f"a response of {size} bytes: the broker sent more than requested")
        if self._have < size:
            return
        assert self._have == size, (self._have, size)  # one request at a time
        self._have = 0
        found = read_fetch(self._view[:size], self._offset, self.frame.topic_size)
        counter = self._counter
        counter.requests += 1
        counter.records += found.record_count
        counter.size += found.records_size
        counter.latencies.append(now - self._sent_at)
        self.in_flight -= 1
        self._offset = self.handle_fetched(found, self._offset, now)
        if not self._stopped:
            self.request(now)

    def handle_fetched(self, found: FetchSummary, offset: int, now: float) -> int:
        """Handle what was fetched at `offset`; returns the offset to read next."""
        assert now >= self._sent_at
        assert found.next_offset >= offset
        end = min(found.high_watermark, self._end)
        return 0 if found.next_offset >= end else found.next_offset

    def request(self, now: float) -> None:
        self._sent_at = now
        self.in_flight += 1
        self.send(self.frame.at(self._offset))


def run_produce(
    targets: Sequence[tuple[Address, Sequence[ProduceFrame]]], pipeline: int, window: Window
) -> Measured:
    """Produce on one connection per target, to the partitions of its frames in turn."""
    counter = LoadCounter()
    workers = [Producer(address, frames, pipeline, counter) for address, frames in targets]
    return drive(workers, counter, window)


def run_fetch(
    targets: list[tuple[Address, FetchFrame]], size_max: int, window: Window,
    end: int | None = None,
) -> Measured:
    """Fetch on one connection per target, below the offset `end` if it is given."""
    counter = LoadCounter()
    workers = [Fetcher(address, frame, size_max, counter, end=end) for address, frame in targets]
    return drive(workers, counter, window)


def drive(workers: Sequence[Worker], counter: LoadCounter, window: Window) -> Measured:
    """Run the loop for warm-up and window, then wait for the responses in flight."""
    poller = select.epoll()
    by_descriptor: dict[int, Worker] = {}
    clock = time.perf_counter
    for worker in workers:
        by_descriptor[worker.socket.fileno()] = worker
        poller.register(worker.socket.fileno(), select.EPOLLIN)
        worker.start(clock())
    loop = _PollLoop(poller, by_descriptor)
    try:
        loop.until(clock() + window.warmup_seconds, counter, window.size_max)
        counter.requests = counter.records = counter.size = 0
        counter.latencies = array("d")
        before, cpu_before, started = _server(window), time.process_time(), clock()
        loop.until(started + window.seconds, counter, window.size_max)
        ended, cpu_after, after = clock(), time.process_time(), _server(window)
        measured = Measured(
            seconds=ended - started, requests=counter.requests, records=counter.records,
            size=counter.size, latency=Latency.of(counter.latencies),
            server_cpu_seconds=after[0] - before[0] if after and before else None,
            server_resident_bytes=after[1] if after else None,
            generator_cpu_seconds=cpu_after - cpu_before,
        )
        loop.drain()
    finally:
        poller.close()
        for worker in workers:
            worker.socket.close()
    return measured


class _PollLoop:
    """Polls the connections until a time, or until no response is outstanding."""

    def __init__(self, poller: select.epoll, workers: dict[int, Worker]) -> None:
        self._poller = poller
        self._workers = workers
        self._writing: set[int] = set()
        for descriptor in workers:
            self._watch(descriptor)

    def until(self, end: float, counter: LoadCounter, size_max: int) -> None:
        clock = time.perf_counter
        last_event = clock()
        while (now := clock()) < end and counter.size < size_max:
            if self._once(min(end - now, 1.0)):
                last_event = now
            elif now - last_event > SILENCE_SECONDS_MAX:
                raise BenchError(f"the broker sent nothing for {SILENCE_SECONDS_MAX:.0f} s")

    def drain(self) -> None:
        deadline = time.perf_counter() + DRAIN_SECONDS_MAX
        for worker in self._workers.values():
            worker.stop()
        while any(worker.awaited for worker in self._workers.values()):
            if time.perf_counter() > deadline:
                raise BenchError(f"responses are missing after {DRAIN_SECONDS_MAX:.0f} s")
            self._once(0.1)

    def _once(self, wait_seconds: float) -> bool:
        found = self._poller.poll(wait_seconds)
        now = time.perf_counter()
        for descriptor, events in found:
            worker = self._workers[descriptor]
            if events & select.EPOLLOUT:
                worker.writable()
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                worker.readable(now)
            if worker.wants_write != (descriptor in self._writing):
                self._watch(descriptor)
        return bool(found)

    def _watch(self, descriptor: int) -> None:
        if self._workers[descriptor].wants_write:
            self._writing.add(descriptor)
            self._poller.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
        else:
            self._writing.discard(descriptor)
            self._poller.modify(descriptor, select.EPOLLIN)


def _receive(sock: socket.socket, into: memoryview) -> int:
    try:
        size = sock.recv_into(into)
    except BlockingIOError:
        return 0
    except OSError as error:
        raise BenchError(f"the broker broke the connection: {error}") from error
    if size == 0:
        raise BenchError("the broker closed the connection; its log says why")
    return size


def _server(window: Window) -> tuple[float, int] | None:
    """CPU of the server and of the nodes that work with it, and the server's memory."""
    if window.server_pid is None:
        return None
    cpu, resident = cost_of(window.server_pid)
    return cpu + sum(cost_of(pid).cpu_seconds for pid in window.other_pids), resident
