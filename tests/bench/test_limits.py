"""Limits are measured with real processes and sockets, and come out as numbers above nothing."""

import os
from pathlib import Path

import pytest

from quipu.bench import limits
from quipu.bench.closed_loop import Window
from quipu.bench.errors import BenchError
from quipu.bench.frames import fetch_frame, make_batch, produce_frame
from quipu.bench.measured import Measured
from quipu.bench.processes import cost_of, in_child, serving
from quipu.launch.ports import listening_pid
from tests.bench.fake_broker import FakeBroker

SHORT = Window(seconds=0.2, warmup_seconds=0.0)
BATCH = make_batch(record_size=100, batch_size=4000)


def check(found: Measured) -> None:
    """It moved bytes, and the server's CPU was seen."""
    assert found.requests > 0
    assert found.size > 0
    assert found.server_cpu_seconds is not None
    assert 0 < found.server_cpu_seconds < 60


def test_bare_servers_take_a_produce_load(tmp_path: Path) -> None:
    """K2: receive and append, receive and answer; files are removed."""
    frame = produce_frame("t", 0, BATCH, acks=1, version=9)
    check(limits.append(frame, connections=2, pipeline=3, window=SHORT, directory=str(tmp_path)))
    check(limits.echo(frame, connections=2, pipeline=3, window=SHORT))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by_sendfile", [True, False])
def test_bare_servers_send_what_a_fetch_reads(tmp_path: Path, by_sendfile: bool) -> None:
    """K2: every byte that is sent is one of a whole batch that the generator accepts."""
    fetch = fetch_frame("t", 0, size_max=100_000)
    found = limits.send(
        fetch, BATCH, topic="t", size_max=100_000, connections=2, window=SHORT,
        directory=str(tmp_path), by_sendfile=by_sendfile)

    check(found)
    assert found.size % len(BATCH.data) == 0
    assert found.records == found.size // len(BATCH.data) * BATCH.record_count
    assert list(tmp_path.iterdir()) == []


def test_a_bare_server_fans_out() -> None:
    """K2: consumers get whole batches, about as many each."""
    produce = produce_frame("t", 0, BATCH, acks=1, version=9)
    fetch = fetch_frame("t", 0, size_max=len(BATCH.data))
    found = limits.fan_out(produce, fetch, BATCH, topic="t", consumers=5, window=SHORT)

    check(found)
    assert found.size == found.requests * len(BATCH.data)


def test_an_echo_has_a_latency_at_a_rate() -> None:
    """K2: what the machine needs for one request and one response."""
    frame = produce_frame("t", 0, make_batch(record_size=10, batch_size=1), acks=1, version=9)
    found = limits.echo_at_rate(frame, rate=200.0, window=SHORT).produce

    assert found.requests == 40
    assert found.latency is not None


def test_single_costs_are_measured(tmp_path: Path) -> None:
    """K2: checksum, page cache and fdatasync, without a network."""
    check(limits.crc(BATCH, seconds=0.05))
    check(limits.page_cache(str(tmp_path), BATCH, size_max=1 << 20))
    synced = limits.fdatasync(str(tmp_path), 4096, seconds=0.05)
    assert synced.requests > 0
    assert synced.size == synced.requests * 4096
    assert list(tmp_path.iterdir()) == []


# --- processes --------------------------------------------------------------------------------


def fail() -> None:
    raise ValueError("as told")


def end_silently(_ready: object) -> None:
    os._exit(3)


def test_a_function_runs_in_another_process() -> None:
    """K9: what it returns comes back, and what it raises is told."""
    assert in_child(os.getpid) != os.getpid()
    with pytest.raises(BenchError, match="ValueError: as told"):
        in_child(fail)
    with pytest.raises(BenchError, match="ended without a result"), serving(end_silently):
        pass


def test_a_broker_on_this_machine_is_found_by_its_port(broker: FakeBroker) -> None:
    """K9: the process that listens is the one whose CPU is read."""
    assert listening_pid(broker.address.port) == os.getpid()
    assert cost_of(os.getpid()).cpu_seconds > 0
    assert cost_of(os.getpid()).resident_bytes > 1 << 20


def test_a_process_that_is_not_there_is_an_error() -> None:
    """K8: a wrong --pid gets one clear message."""
    with pytest.raises(BenchError, match="cannot read the usage of process 4194999"):
        cost_of(4_194_999)
