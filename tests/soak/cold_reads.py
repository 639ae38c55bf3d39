"""Measures the latency of a producer and a consumer at the end of one topic, while others read old
records of another topic from the tier.

    python -m tests.soak.cold_reads [--megabytes 200] [--seconds 10] [--readers 4]

Prints a line without readers of old records, one while they read from the tier (no cache holds it
all), and one while they read the same bytes from the node's disk.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.node import RunningNode, environment

RECORD_SIZE = 10_000
PAUSE_SECONDS = 0.005
SETTINGS = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "500", "remote.log.chunk.cache.bytes": str(16 << 20)}
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(8 << 20),
          "local.retention.bytes": str(8 << 20)}
READER = """
import sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, start = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "log_level": 0,
                     "enable.auto.commit": False, "auto.offset.reset": "earliest"})
place = TopicPartition(topic, 0, int(start))
consumer.assign([place])
_, end = consumer.get_watermark_offsets(place, timeout=30)
while True:
    for message in consumer.consume(500, timeout=1.0):
        if message.error() is None:
            print(len(message.value()), flush=False)
            if message.offset() >= end * 9 // 10:
                consumer.seek(TopicPartition(topic, 0, 0))
                break
"""


def fill(node: RunningNode, topic: str, megabytes: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5, "log_level": 0})
    for number in range(megabytes * 1_000_000 // RECORD_SIZE):
        while len(producer) > 500:
            producer.poll(0.01)
        producer.produce(topic, value=number.to_bytes(4, "big") * (RECORD_SIZE // 4))
    assert producer.flush(60) == 0


def latencies(node: RunningNode, seconds: float) -> tuple[list[float], list[float]]:
    """Of acknowledgements, and from sending to reading, in milliseconds."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "log_level": 0})
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "tail", "log_level": 0,
                         "enable.auto.commit": False, "fetch.wait.max.ms": 500})
    place = TopicPartition("tail", 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30)
    consumer.assign([TopicPartition("tail", 0, end)])
    acknowledged: list[float] = []
    read: list[float] = []
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                read.append((time.perf_counter() - float(message.value())) * 1000)

    follower = threading.Thread(target=follow)
    follower.start()
    time.sleep(1)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.perf_counter()
        producer.produce("tail", value=str(began), on_delivery=lambda *_, began=began:
                         acknowledged.append((time.perf_counter() - began) * 1000))
        producer.flush(30)
        time.sleep(PAUSE_SECONDS)
    time.sleep(0.5)
    is_over.set()
    follower.join()
    consumer.close()
    return acknowledged, read


def described(values: list[float]) -> str:
    ordered = sorted(values)
    return (f"p50 {ordered[len(ordered) // 2]:.1f}  p99 {ordered[-1 - len(ordered) // 100]:.1f}  "
            f"max {ordered[-1]:.1f}  ({len(ordered)})")


def measured(node: RunningNode, name: str, seconds: float, topic: str, readers: int) -> None:
    command = [sys.executable, "-c", READER, node.bootstrap, topic, "0"]
    processes = [subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE)
                 for _ in range(readers)]
    sizes = [0] * readers

    def count(place: int) -> None:
        stdout = processes[place].stdout
        assert stdout is not None
        for line in stdout:
            sizes[place] += int(line)

    threads = [threading.Thread(target=count, args=(place,)) for place in range(readers)]
    for thread in threads:
        thread.start()
    try:
        if readers:
            time.sleep(2)
        before, began = sum(sizes), time.monotonic()
        acknowledged, read = latencies(node, seconds)
        rate = (sum(sizes) - before) / (time.monotonic() - began) / 1e6
    finally:
        for process in processes:
            process.kill()
        for thread in threads:
            thread.join()
    print(f"{name:22} acknowledged ms: {described(acknowledged)}   read ms: {described(read)}   "
          f"old records: {rate:.0f} MB/s", flush=True)


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--readers", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RunningNode(
            Path(folder) / "data", settings=SETTINGS) as node:
        fill(node, "tail", 0, {})
        fill(node, "old", arguments.megabytes, TIERED)
        fill(node, "local", arguments.megabytes, {"segment.bytes": str(8 << 20)})
        (log,) = node.directory.glob("old-0.*")
        _wait(lambda: len(list(log.glob("*.log"))) <= 3)
        seconds, readers = arguments.seconds, arguments.readers
        measured(node, "no old records", seconds, "old", 0)
        measured(node, "from the tier", seconds, "old", readers)
        measured(node, "from the local disk", seconds, "local", readers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
