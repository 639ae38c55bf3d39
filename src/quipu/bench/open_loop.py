"""An open loop: requests are sent at fixed times, whether or not the server keeps up.

Latency counts from the moment at which a request was due, not from when it was sent, so a stall of
the server shows in every request that should have been sent meanwhile; a closed loop would not send
them, and so would hide the stall.
"""

import contextlib
import select
import time
from array import array
from pathlib import Path
from typing import Final, NamedTuple

from quipu.bench.closed_loop import Fetcher, LoadCounter, Producer, Window
from quipu.bench.errors import BenchError
from quipu.bench.frames import FetchFrame, FetchSummary, ProduceFrame
from quipu.bench.measured import Latency, Measured
from quipu.bench.processes import cost_of
from quipu.model.settings_types import Address

FETCH_SIZE_MAX: Final = 1 << 20
RESPONSE_SECONDS_MAX: Final = 10.0  # wait for responses after the last request was sent
TIMER_SLACK_NS: Final = 1_000  # how late the kernel may wake us; 50 us by default


class RateMeasured(NamedTuple):
    """The measurements at a fixed rate: of Produce, and from producer to consumer."""

    produce: Measured
    end_to_end: Latency | None  # until a consumer has the record; None without a consumer


class _LatencyConsumer(Fetcher):
    """A consumer that measures the time from when a record was due until it came."""

    def __init__(self, address: Address, frame: FetchFrame, due: "_Schedule") -> None:
        super().__init__(address, frame, FETCH_SIZE_MAX, LoadCounter())
        self._due = due
        self.latencies: array[float] = array("d")

    def handle_fetched(self, found: FetchSummary, offset: int, now: float) -> int:
        for index in range(offset, found.next_offset):
            self.latencies.append(now - self._due.at(index))
        return found.next_offset


class _Schedule:
    """When each request is due."""

    def __init__(self, start: float, rate: float) -> None:
        self.start = start
        self.rate = rate

    def at(self, index: int) -> float:
        return self.start + index / self.rate


def run_at_rate(
    address: Address,
    produce: ProduceFrame,
    fetch: FetchFrame | None,
    rate: float,
    window: Window,
) -> RateMeasured:
    """Produce `rate` requests a second, one record each, and fetch them if `fetch` is given.

    The topic must be empty: a record's offset says when it was due.
    """
    assert produce.record_count == 1, produce.record_count
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text(str(TIMER_SLACK_NS), encoding="ascii")
    counter = LoadCounter()
    producer = Producer(address, [produce], 0, counter)
    producer.stop()  # from here on it sends only by `_send`
    schedule = _Schedule(time.perf_counter() + 0.05, rate)
    consumer = None if fetch is None else _LatencyConsumer(address, fetch, schedule)
    try:
        if consumer is not None:
            consumer.request(time.perf_counter())
        return _run(producer, consumer, schedule, counter, window)
    finally:
        producer.socket.close()
        if consumer is not None:
            consumer.socket.close()


def _run(
    producer: Producer, consumer: _LatencyConsumer | None, schedule: _Schedule,
    counter: LoadCounter, window: Window,
) -> RateMeasured:
    warmup_count = int(window.warmup_seconds * schedule.rate)
    count = warmup_count + int(window.seconds * schedule.rate)
    _send(producer, consumer, schedule, range(warmup_count))
    before = None if window.server_pid is None else cost_of(window.server_pid)
    generator_before = time.process_time()
    _send(producer, consumer, schedule, range(warmup_count, count))
    after = None if window.server_pid is None else cost_of(window.server_pid)
    generator_after = time.process_time()
    _wait_for_responses(producer, consumer, counter, count)
    size = (count - warmup_count) * producer.frame.batch_size
    measured = Measured(
        seconds=(count - warmup_count) / schedule.rate, requests=count - warmup_count,
        records=count - warmup_count, size=size,
        latency=Latency.of(counter.latencies[warmup_count:]),
        server_cpu_seconds=after[0] - before[0] if after and before else None,
        server_resident_bytes=after[1] if after else None,
        generator_cpu_seconds=generator_after - generator_before,
    )
    return RateMeasured(
        measured, None if consumer is None else Latency.of(consumer.latencies[warmup_count:])
    )


def _send(
    producer: Producer, consumer: _LatencyConsumer | None, schedule: _Schedule, indexes: range
) -> None:
    for index in indexes:
        due = schedule.at(index)
        receive_until(producer, due, consumer)
        producer.request(1, due)


def receive_until(
    producer: Producer, due: float, consumer: _LatencyConsumer | None = None
) -> None:
    """Receive responses until it is time to send again."""
    while (wait := due - time.perf_counter()) > 0:
        _receive(producer, consumer, wait)


def _wait_for_responses(
    producer: Producer, consumer: _LatencyConsumer | None, counter: LoadCounter, count: int
) -> None:
    deadline = time.perf_counter() + RESPONSE_SECONDS_MAX
    while counter.requests < count or (consumer is not None and len(consumer.latencies) < count):
        if time.perf_counter() > deadline:
            raise BenchError(
                f"{count - counter.requests} of {count} responses are missing after "
                f"{RESPONSE_SECONDS_MAX:.0f} s; the broker does not keep up: lower --rate"
            )
        _receive(producer, consumer, 0.1)


def _receive(producer: Producer, consumer: _LatencyConsumer | None, wait: float) -> None:
    """Receive for `wait` seconds; uses `select`, whose time-out has microseconds."""
    sockets = [producer.socket] if consumer is None else [producer.socket, consumer.socket]
    writing = [producer.socket] if producer.wants_write else []
    readable, writable, _ = select.select(sockets, writing, [], wait)
    now = time.perf_counter()
    if writable:
        producer.writable()
    for sock in readable:
        if sock is producer.socket:
            producer.readable(now)
        elif consumer is not None:
            consumer.readable(now)
