"""The machine's own limits, measured in the same run and with the same load generator.

    append     bare server: receive + page-cache append (P1, P2)
    echo       bare server: receive + response, on the broker's kind of loop (P3, P6)
    send       bare server: sendfile of a file (P4), or bytes of memory
    fan_out    bare server: receive once, send to many (P5)
    fdatasync  append + fdatasync in a loop, no network (P7)
    crc, page_cache   single costs, for comparison
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from crc32c import crc32c

from quipu.bench import bare
from quipu.bench.closed_loop import Window, run_fetch, run_produce
from quipu.bench.frames import FETCH_VERSION, FetchFrame, ProduceBatch, ProduceFrame
from quipu.bench.measured import Latency, Measured
from quipu.bench.open_loop import RateMeasured, run_at_rate
from quipu.bench.processes import in_child, serving
from quipu.bench.tail import run_tail
from quipu.model.settings_types import Address
from quipu.wire.frame import encode_response
from quipu.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData

FILE_SIZE: Final = 128 << 20  # of the file that bare servers send from
SHORT_SECONDS: Final = 0.5

_LOCAL: Final = "127.0.0.1"


@contextmanager
def scratch(directory: str | None) -> Iterator[str]:
    """A temporary directory, on the broker's disk if its data directory is known."""
    with tempfile.TemporaryDirectory(prefix="quipu-bench-", dir=directory) as path:
        yield path


def append(
    frame: ProduceFrame,
    *,
    connections: int,
    pipeline: int,
    window: Window,
    directory: str,
    by_request: bool = False,
) -> Measured:
    """Receive the same requests and write them to a file, nothing else."""
    path = Path(directory) / "append"
    try:
        arguments = (len(frame.data), frame.sample, str(path), by_request)
        with serving(bare.append, *arguments) as (port, pid):
            targets = [(Address(_LOCAL, port), [frame])] * connections
            found: Measured = in_child(
                run_produce, targets, pipeline, replace(window, server_pid=pid)
            )
            return found
    finally:
        path.unlink(missing_ok=True)


def echo(
    frame: ProduceFrame, *, connections: int, pipeline: int, window: Window
) -> Measured:
    """Receive the same requests and respond to them, nothing else."""
    with serving(bare.echo, len(frame.data), frame.sample) as (port, pid):
        targets = [(Address(_LOCAL, port), [frame])] * connections
        found: Measured = in_child(run_produce, targets, pipeline, replace(window, server_pid=pid))
        return found


def echo_at_rate(frame: ProduceFrame, *, rate: float, window: Window) -> RateMeasured:
    """Receive requests at a fixed rate and respond to them, for latency."""
    with serving(bare.echo, len(frame.data), frame.sample) as (port, pid):
        found: RateMeasured = in_child(
            run_at_rate, Address(_LOCAL, port), frame, None, rate, replace(window, server_pid=pid)
        )
        return found


def send(
    frame: FetchFrame,
    batch: ProduceBatch,
    *,
    topic: str,
    size_max: int,
    connections: int,
    window: Window,
    directory: str,
    by_sendfile: bool,
) -> Measured:
    """Respond to the same requests from a file, by sendfile or through memory, nothing else."""
    path = Path(directory) / "send"
    piece = _write_batches(path, batch, topic, size_max)
    server = bare.send_file if by_sendfile else bare.send_memory
    try:
        with serving(server, len(frame.template), piece, str(path)) as (port, pid):
            targets = [(Address(_LOCAL, port), frame)] * connections
            found: Measured = in_child(
                run_fetch, targets, size_max, replace(window, server_pid=pid)
            )
            return found
    finally:
        path.unlink(missing_ok=True)


def fan_out(
    produce: ProduceFrame,
    fetch: FetchFrame,
    batch: ProduceBatch,
    *,
    topic: str,
    consumers: int,
    window: Window,
) -> Measured:
    """Send each batch from memory to every consumer, nothing else."""
    piece = _fetch_response(topic, batch.data, batch.record_count)
    sizes = (len(produce.data), len(fetch.template))
    with serving(bare.fan_out, sizes, produce.sample, piece) as (port, pid):
        found: Measured = in_child(
            run_tail, Address(_LOCAL, port), produce, fetch, consumers,
            replace(window, server_pid=pid),
        )
        return found


def fdatasync(directory: str, size: int, *, seconds: float) -> Measured:
    """Append `size` bytes and call fdatasync, repeatedly."""
    path = Path(directory) / "fdatasync"
    data = bytes(size)
    latencies = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        started = now = time.perf_counter()
        while now - started < seconds:
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            before, now = now, time.perf_counter()
            latencies.append(now - before)
    finally:
        os.close(descriptor)
        path.unlink()
    return Measured(
        seconds=now - started, requests=len(latencies), records=0,
        size=size * len(latencies), latency=Latency.of(latencies),
    )


def crc(batch: ProduceBatch, *, seconds: float = SHORT_SECONDS) -> Measured:
    """Compute the checksum of the same batch repeatedly."""
    body = memoryview(batch.data)[21:]
    count = 0
    started = now = time.perf_counter()
    while now - started < seconds:
        for _ in range(16):
            crc32c(body)
        count += 16
        now = time.perf_counter()
    return Measured(
        seconds=now - started, requests=count, records=count * batch.record_count,
        size=count * len(batch.data), latency=None, server_cpu_seconds=now - started,
    )


def page_cache(directory: str, batch: ProduceBatch, *, size_max: int = 256 << 20) -> Measured:
    """Write the same batch to a new file repeatedly, without fsync."""
    path = Path(directory) / "page-cache"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    count = max(1, size_max // len(batch.data))
    try:
        started = time.perf_counter()
        cpu = time.process_time()
        for _ in range(count):
            os.write(descriptor, batch.data)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    finally:
        os.close(descriptor)
        path.unlink()
    return Measured(
        seconds=seconds, requests=count, records=count * batch.record_count,
        size=count * len(batch.data), latency=None, server_cpu_seconds=cpu,
    )


# --- responses of the bare servers ------------------------------------------------------------


def _write_batches(
    path: Path, batch: ProduceBatch, topic: str, size_max: int
) -> bare.SplitResponse:
    """Fill a file with batches of rising offsets; returns the frame around a piece of the file."""
    per_piece = max(1, size_max // len(batch.data))
    count = max(per_piece, FILE_SIZE // len(batch.data) // per_piece * per_piece)
    with path.open("wb") as file:
        for index in range(count):
            base_offset = index * batch.record_count
            file.write(base_offset.to_bytes(8, "big") + batch.data[8:])
    size = per_piece * len(batch.data)
    response = _fetch_response(topic, bytes(size), count * batch.record_count)
    head_size = len(response) - size - 3  # 3: empty tag sections of partition, topic and response
    return bare.SplitResponse(response[:head_size], size, response[-3:])


def _fetch_response(topic: str, records: bytes, high_watermark: int) -> bytes:
    part = PartitionData(
        high_watermark=high_watermark, last_stable_offset=high_watermark, log_start_offset=0,
        aborted_transactions=[], records=memoryview(records),
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[part])])
    return encode_response(0, response, FETCH_VERSION)
