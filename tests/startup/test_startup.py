"""Start to ready, on an empty directory and after a clean stop; the memory of an idle node.

Times are printed and bounded generously, for machines that run tests are busy; what start-up must
not depend on is shown by counting bytes, which no neighbour can disturb.
"""

import urllib.request
from pathlib import Path

from confluent_kafka import Producer

from quipu.launch.usage import usage_of
from tests.harness.node import RunningNode
from tests.kill.load import create_topic

READY_SECONDS_MAX = 1.0
ATTEMPTS = 5
IDLE_RSS_MAX = 100 * 1024 * 1024
MIB = 1024 * 1024
SETTINGS = {"log.segment.bytes": str(4 * MIB)}


def metric(node: RunningNode, name: str) -> float:
    """One number of the node's own, without labels."""
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def bytes_read(node: RunningNode) -> int:
    """What the process has read from files so far."""
    for line in Path(f"/proc/{node.pid}/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError("no rchar")


def fill(node: RunningNode, size: int) -> None:
    """Write `size` bytes, as batches of about 64 KiB."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.size": 65536, "linger.ms": 50,
                         "queue.buffering.max.messages": 1_000_000})
    for number in range(size // 4096):
        producer.produce("data", value=b"x" * 4096, partition=number % 2)
    assert producer.flush(60) == 0


def test_an_empty_directory_is_served_within_a_second(tmp_path: Path) -> None:
    """K10: of CPU, from the start of the process to the line that says that it serves; how long
    that is by the clock depends on what else the machine does.
    """
    seconds = []
    for attempt in range(ATTEMPTS):
        with RunningNode(tmp_path / f"data-{attempt}") as node:
            seconds.append(usage_of(node.pid).cpu_seconds)
            print(f"ready after {node.start_seconds * 1e3:.0f} ms, {seconds[-1] * 1e3:.0f} of CPU")
    assert 0 < min(seconds) < READY_SECONDS_MAX


def test_a_start_after_a_clean_stop_reads_no_records(tmp_path: Path) -> None:
    """T12, K10: with twenty times the data there is no more to read than a few names and sizes."""
    read, seconds = {}, {}
    for size in (2 * MIB, 40 * MIB):
        with RunningNode(tmp_path / f"data-{size}", settings=SETTINGS) as node:
            create_topic(node.bootstrap, "data", {})
            fill(node, size)
            node.restart()
            assert metric(node, "quipu_recovery_clean") == 1
            read[size], seconds[size] = bytes_read(node), node.start_seconds
    small, large = sorted(read)
    print(f"ready after {seconds[small] * 1e3:.0f} ms with {small / MIB:.0f} MiB and "
          f"{seconds[large] * 1e3:.0f} ms with {large / MIB:.0f} MiB")
    assert read[large] - read[small] < 256 * 1024


def test_a_start_after_a_kill_reads_only_what_may_be_torn(tmp_path: Path) -> None:
    """T12: the segments that were being written are checked; the ones before them are not."""
    with RunningNode(tmp_path / "data", settings=SETTINGS) as node:
        create_topic(node.bootstrap, "data", {})
        node.restart()
        unscanned = bytes_read(node)
        fill(node, 40 * MIB)
        node.kill()
        node.start()
        assert metric(node, "quipu_recovery_clean") == 0
        scanned = bytes_read(node) - unscanned
    print(f"checked {scanned / MIB:.1f} MiB of 40, ready after {node.start_seconds * 1e3:.0f} ms")
    assert 0 < scanned < 2 * 2 * 4 * MIB  # two partitions, at most two segments of 4 MiB each


def test_an_idle_node_is_small(tmp_path: Path) -> None:
    """K9: resident memory of a node that nobody uses, as it tells itself."""
    with RunningNode(tmp_path / "data") as node:
        size = metric(node, "process_resident_memory_bytes")
    print(f"an idle node has {size / MIB:.0f} MiB")
    assert size < IDLE_RSS_MAX
