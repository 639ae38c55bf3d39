"""An open loop: requests leave at fixed times, whether or not the server keeps up.

Latency counts from the moment at which a request was due, not from when it was sent, so a server
that stalls is charged for every request that should have been made meanwhile; a closed loop would
leave them out and praise the server for its pause.
"""

import contextlib
import select
import time
from array import array
from pathlib import Path
from typing import Final, NamedTuple

from quipu.cli.bench.closed_loop import Fetcher, Meter, Producer, Window
from quipu.cli.bench.control import Address, BenchError
from quipu.cli.bench.frames import Fetched, FetchFrame, ProduceFrame
from quipu.cli.bench.measured import Latency, Measured
from quipu.cli.bench.processes import cost_of

FETCH_SIZE_MAX: Final = 1 << 20
ANSWER_SECONDS_MAX: Final = 10.0  # waited for what is outstanding when the last request has left
TIMER_SLACK_NS: Final = 1_000  # how late the kernel may wake us; 50 us unless told


class RateMeasured(NamedTuple):
    """What a run at a rate gave."""

    produce: Measured
    end_to_end: Latency | None  # from due to received by a consumer; None without one


class _Follower(Fetcher):
    """A consumer that compares when records were due with when they came."""

    def __init__(self, address: Address, frame: FetchFrame, due: "_Schedule") -> None:
        super().__init__(address, frame, FETCH_SIZE_MAX, Meter())
        self._due = due
        self.latencies: array[float] = array("d")

    def took(self, found: Fetched, offset: int, now: float) -> int:
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

    The topic must be empty: a record's offset tells when it was due.
    """
    assert produce.record_count == 1, produce.record_count
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text(str(TIMER_SLACK_NS), encoding="ascii")
    meter = Meter()
    producer = Producer(address, [produce], 0, meter)
    producer.stop()  # sends what it is told to, and nothing by itself
    schedule = _Schedule(time.perf_counter() + 0.05, rate)
    follower = None if fetch is None else _Follower(address, fetch, schedule)
    try:
        if follower is not None:
            follower.request(time.perf_counter())
        return _run(producer, follower, schedule, meter, window)
    finally:
        producer.socket.close()
        if follower is not None:
            follower.socket.close()


def _run(
    producer: Producer, follower: _Follower | None, schedule: _Schedule, meter: Meter,
    window: Window,
) -> RateMeasured:
    warmup_count = int(window.warmup_seconds * schedule.rate)
    count = warmup_count + int(window.seconds * schedule.rate)
    _send(producer, follower, schedule, range(warmup_count))
    before = None if window.server_pid is None else cost_of(window.server_pid)
    generator_before = time.process_time()
    _send(producer, follower, schedule, range(warmup_count, count))
    after = None if window.server_pid is None else cost_of(window.server_pid)
    generator_after = time.process_time()
    _wait_for_answers(producer, follower, meter, count)
    size = (count - warmup_count) * producer.frame.batch_size
    measured = Measured(
        seconds=(count - warmup_count) / schedule.rate, requests=count - warmup_count,
        records=count - warmup_count, size=size,
        latency=Latency.of(meter.latencies[warmup_count:]),
        server_cpu_seconds=after[0] - before[0] if after and before else None,
        server_resident_bytes=after[1] if after else None,
        generator_cpu_seconds=generator_after - generator_before,
    )
    return RateMeasured(
        measured, None if follower is None else Latency.of(follower.latencies[warmup_count:])
    )


def _send(
    producer: Producer, follower: _Follower | None, schedule: _Schedule, indexes: range
) -> None:
    for index in indexes:
        due = schedule.at(index)
        while (wait := due - time.perf_counter()) > 0:
            _receive(producer, follower, wait)
        producer.request(1, due)


def _wait_for_answers(
    producer: Producer, follower: _Follower | None, meter: Meter, count: int
) -> None:
    deadline = time.perf_counter() + ANSWER_SECONDS_MAX
    while meter.requests < count or (follower is not None and len(follower.latencies) < count):
        if time.perf_counter() > deadline:
            raise BenchError(
                f"{count - meter.requests} of {count} answers are missing after "
                f"{ANSWER_SECONDS_MAX:.0f} s; the broker does not keep up: lower --rate"
            )
        _receive(producer, follower, 0.1)


def _receive(producer: Producer, follower: _Follower | None, wait: float) -> None:
    """Take what comes within `wait` seconds; `select` alone waits with microseconds."""
    sockets = [producer.socket] if follower is None else [producer.socket, follower.socket]
    writing = [producer.socket] if producer.wants_write else []
    readable, writable, _ = select.select(sockets, writing, [], wait)
    now = time.perf_counter()
    if writable:
        producer.writable()
    for sock in readable:
        if sock is producer.socket:
            producer.readable(now)
        elif follower is not None:
            follower.readable(now)
