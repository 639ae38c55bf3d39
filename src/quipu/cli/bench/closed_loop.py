"""A closed loop: every connection keeps a number of requests in flight, as fast as answers come.

Non-blocking sockets on one epoll, frames encoded beforehand (frames.py), one clock reading per
turn.  Answers a Produce or a Fetch load with `Measured`; runs in a process of its own.

A closed loop tells throughput, and latency under full load.  Latency at a given rate needs an open
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

from quipu.cli.bench.control import Address, BenchError
from quipu.cli.bench.frames import (
    FETCH_OVERHEAD_MAX,
    Fetched,
    FetchFrame,
    ProduceFrame,
    read_fetch,
)
from quipu.cli.bench.measured import Latency, Measured
from quipu.cli.bench.processes import cost_of

RECEIVE_SIZE: Final = 256 << 10
JOIN_SIZE_MAX: Final = 16 << 10  # frames up to this size are sent several at once
SILENCE_SECONDS_MAX: Final = 30.0
DRAIN_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long to run and what to watch."""

    seconds: float
    warmup_seconds: float = 0.3
    size_max: int = 1 << 62  # bytes after which the window ends early
    server_pid: int | None = None
    other_pids: tuple[int, ...] = ()  # of the nodes that work with the server


@dataclass(slots=True)
class Meter:
    """Counts of what was answered."""

    requests: int = 0
    records: int = 0
    size: int = 0
    latencies: "array[float]" = field(default_factory=lambda: array("d"))


class Worker(Protocol):
    """One connection of a closed loop."""

    socket: socket.socket

    @property
    def awaited(self) -> int:
        """Requests whose answers must be waited for at the end."""

    @property
    def wants_write(self) -> bool:
        """Is there something to send as soon as the socket takes it?"""

    def start(self, now: float) -> None:
        """Send the first requests."""

    def readable(self, now: float) -> None:
        """Take answers, and send as many requests anew unless stopped."""

    def writable(self) -> None:
        """Send what did not fit."""

    def stop(self) -> None:
        """Send no more."""


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
    """Sends frames in order and keeps what the socket does not take."""

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
    """Sends the same frames in turn, again and again; all look alike but for their partition."""

    def __init__(
        self, address: Address, frames: Sequence[ProduceFrame], pipeline: int, meter: Meter
    ) -> None:
        super().__init__(address)
        self.frame = frames[0]
        self._next = itertools.cycle([frame.data for frame in frames]).__next__
        self._meter = meter
        self._pipeline = pipeline
        self._sent_at: deque[float] = deque()
        self._stopped = False
        self._buffer = bytearray(RECEIVE_SIZE)
        self._view = memoryview(self._buffer)
        self._have = 0  # bytes of an answer that has not come whole
        self._answer = self.frame.answer

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
            for _ in range(self._pipeline):  # nobody will answer: handed to the kernel is done
                self.send(self._next())
            self._count(self._pipeline)

    def readable(self, now: float) -> None:
        have = self._have + _receive(self.socket, self._view[self._have :])
        size = self.frame.response_size
        good = (size - 4, 0)
        unpack = self._answer.unpack_from
        position = 0
        while have - position >= size and unpack(self._buffer, position) == good:
            position += size
        self._have = have - position
        if self._have:
            self._check(position, have)
            self._buffer[: self._have] = self._buffer[position:have]
        if position:
            self._answered(position // size, now)

    def _check(self, position: int, have: int) -> None:
        """What follows is a part of an answer, or else a whole one that says no."""
        frame = bytes(self._buffer[position:have])
        size = 4 + int.from_bytes(frame[:4], "big")
        if size <= len(frame) or size > len(self._buffer):
            reason = self.frame.explain(frame[:size])
            raise BenchError(f"the broker refused a batch: {reason}")

    def _answered(self, count: int, now: float) -> None:
        self._count(count)
        sent_at = self._sent_at
        for _ in range(count):
            self._meter.latencies.append(now - sent_at.popleft())
        self.in_flight -= count
        if not self._stopped:
            self.request(count, now)

    def _count(self, count: int) -> None:
        self._meter.requests += count
        self._meter.records += count * self.frame.record_count
        self._meter.size += count * self.frame.batch_size

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
    """Reads one partition from an offset to its end, and then again."""

    def __init__(self, address: Address, frame: FetchFrame, size_max: int, meter: Meter) -> None:
        super().__init__(address)
        self.frame = frame
        self._meter = meter
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
            raise BenchError(f"an answer of {size} bytes: the broker sent more than was asked for")
        if self._have < size:
            return
        assert self._have == size, (self._have, size)  # one request at a time
        self._have = 0
        found = read_fetch(self._view[:size], self._offset, self.frame.topic_size)
        meter = self._meter
        meter.requests += 1
        meter.records += found.record_count
        meter.size += found.records_size
        meter.latencies.append(now - self._sent_at)
        self.in_flight -= 1
        self._offset = self.took(found, self._offset, now)
        if not self._stopped:
            self.request(now)

    def took(self, found: Fetched, offset: int, now: float) -> int:
        """What was asked for at `offset` has come; returns where to read next."""
        assert now >= self._sent_at
        assert found.next_offset >= offset
        return 0 if found.next_offset >= found.high_watermark else found.next_offset

    def request(self, now: float) -> None:
        self._sent_at = now
        self.in_flight += 1
        self.send(self.frame.at(self._offset))


def run_produce(
    targets: Sequence[tuple[Address, Sequence[ProduceFrame]]], pipeline: int, window: Window
) -> Measured:
    """Produce on one connection per target, to the partitions of its frames in turn."""
    meter = Meter()
    workers = [Producer(address, frames, pipeline, meter) for address, frames in targets]
    return drive(workers, meter, window)


def run_fetch(
    targets: list[tuple[Address, FetchFrame]], size_max: int, window: Window
) -> Measured:
    """Fetch on one connection per target."""
    meter = Meter()
    workers = [Fetcher(address, frame, size_max, meter) for address, frame in targets]
    return drive(workers, meter, window)


def drive(workers: Sequence[Worker], meter: Meter, window: Window) -> Measured:
    """Run the loop for warm-up and window, then let what is in flight come in."""
    poller = select.epoll()
    by_descriptor: dict[int, Worker] = {}
    clock = time.perf_counter
    for worker in workers:
        by_descriptor[worker.socket.fileno()] = worker
        poller.register(worker.socket.fileno(), select.EPOLLIN)
        worker.start(clock())
    turn = _Turn(poller, by_descriptor)
    try:
        turn.until(clock() + window.warmup_seconds, meter, window.size_max)
        meter.requests = meter.records = meter.size = 0
        meter.latencies = array("d")
        before, cpu_before, started = _server(window), time.process_time(), clock()
        turn.until(started + window.seconds, meter, window.size_max)
        ended, cpu_after, after = clock(), time.process_time(), _server(window)
        measured = Measured(
            seconds=ended - started, requests=meter.requests, records=meter.records,
            size=meter.size, latency=Latency.of(meter.latencies),
            server_cpu_seconds=after[0] - before[0] if after and before else None,
            server_resident_bytes=after[1] if after else None,
            generator_cpu_seconds=cpu_after - cpu_before,
        )
        turn.drain()
    finally:
        poller.close()
        for worker in workers:
            worker.socket.close()
    return measured


class _Turn:
    """Turns of the loop, until a time or until nothing is in flight."""

    def __init__(self, poller: select.epoll, workers: dict[int, Worker]) -> None:
        self._poller = poller
        self._workers = workers
        self._writing: set[int] = set()
        for descriptor in workers:
            self._watch(descriptor)

    def until(self, end: float, meter: Meter, size_max: int) -> None:
        clock = time.perf_counter
        last_event = clock()
        while (now := clock()) < end and meter.size < size_max:
            if self._once(min(end - now, 1.0)):
                last_event = now
            elif now - last_event > SILENCE_SECONDS_MAX:
                raise BenchError(f"the broker said nothing for {SILENCE_SECONDS_MAX:.0f} s")

    def drain(self) -> None:
        deadline = time.perf_counter() + DRAIN_SECONDS_MAX
        for worker in self._workers.values():
            worker.stop()
        while any(worker.awaited for worker in self._workers.values()):
            if time.perf_counter() > deadline:
                raise BenchError(f"answers are missing after {DRAIN_SECONDS_MAX:.0f} s")
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
