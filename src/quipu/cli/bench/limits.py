"""The machine's own limits, measured in the same run and with the same load generator.

    append     bare server: receive + page-cache append (P1, P2)
    echo       bare server: receive + answer, on the broker's kind of loop (P3, P6)
    send       bare server: sendfile of a file (P4), or bytes of memory
    fan_out    bare server: receive once, send to many (P5)
    fdatasync  append + fdatasync in a loop, no network (P7)
    crc, page_cache, loopback   single costs, for orientation
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

from quipu.cli.bench import bare
from quipu.cli.bench.closed_loop import Window, run_fetch, run_produce
from quipu.cli.bench.control import FETCH_VERSION, Address
from quipu.cli.bench.frames import Batch, FetchFrame, ProduceFrame
from quipu.cli.bench.measured import Latency, Measured
from quipu.cli.bench.open_loop import RateMeasured, run_at_rate
from quipu.cli.bench.processes import in_child, serving
from quipu.cli.bench.tail import run_tail
from quipu.wire.frame import encode_response
from quipu.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData

FILE_SIZE: Final = 128 << 20  # of the file that bare servers send from
SHORT_SECONDS: Final = 0.5

_LOCAL: Final = "127.0.0.1"


@contextmanager
def scratch(directory: str | None) -> Iterator[str]:
    """A directory for files of limits, on the same disk as the broker's if it can be."""
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
    """Receive the same requests and answer them, nothing else."""
    with serving(bare.echo, len(frame.data), frame.sample) as (port, pid):
        targets = [(Address(_LOCAL, port), [frame])] * connections
        found: Measured = in_child(run_produce, targets, pipeline, replace(window, server_pid=pid))
        return found


def echo_at_rate(frame: ProduceFrame, *, rate: float, window: Window) -> RateMeasured:
    """The same at a fixed rate, for latency."""
    with serving(bare.echo, len(frame.data), frame.sample) as (port, pid):
        found: RateMeasured = in_child(
            run_at_rate, Address(_LOCAL, port), frame, None, rate, replace(window, server_pid=pid)
        )
        return found


def send(
    frame: FetchFrame,
    batch: Batch,
    *,
    topic: str,
    size_max: int,
    connections: int,
    window: Window,
    directory: str,
    by_sendfile: bool,
) -> Measured:
    """Answer the same requests from a file, by sendfile or through memory, nothing else."""
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
    batch: Batch,
    *,
    topic: str,
    consumers: int,
    window: Window,
) -> Measured:
    """Send each batch from memory to every consumer, nothing else."""
    piece = _fetch_answer(topic, batch.data, batch.record_count)
    sizes = (len(produce.data), len(fetch.template))
    with serving(bare.fan_out, sizes, produce.sample, piece) as (port, pid):
        found: Measured = in_child(
            run_tail, Address(_LOCAL, port), produce, fetch, consumers,
            replace(window, server_pid=pid),
        )
        return found


def fdatasync(directory: str, size: int, *, seconds: float) -> Measured:
    """Append `size` bytes and make them durable, again and again."""
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


def crc(batch: Batch, *, seconds: float = SHORT_SECONDS) -> Measured:
    """Check the checksum of the same batch, again and again."""
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


def page_cache(directory: str, batch: Batch, *, size_max: int = 256 << 20) -> Measured:
    """Write the same batch to a new file, again and again, without making it durable."""
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


# --- what bare servers send -------------------------------------------------------------------


def _write_batches(path: Path, batch: Batch, topic: str, size_max: int) -> bare.Piece:
    """Fill a file with batches of rising offsets; tell how a piece of it is framed."""
    per_piece = max(1, size_max // len(batch.data))
    count = max(per_piece, FILE_SIZE // len(batch.data) // per_piece * per_piece)
    with path.open("wb") as file:
        for index in range(count):
            base_offset = index * batch.record_count
            file.write(base_offset.to_bytes(8, "big") + batch.data[8:])
    size = per_piece * len(batch.data)
    answer = _fetch_answer(topic, bytes(size), count * batch.record_count)
    head_size = len(answer) - size - 3  # 3: empty tag sections of partition, topic and answer
    return bare.Piece(answer[:head_size], size, answer[-3:])


def _fetch_answer(topic: str, records: bytes, high_watermark: int) -> bytes:
    part = PartitionData(
        high_watermark=high_watermark, last_stable_offset=high_watermark, log_start_offset=0,
        aborted_transactions=[], records=memoryview(records),
    )
    answer = FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[part])])
    return encode_response(0, answer, FETCH_VERSION)
