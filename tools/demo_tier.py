"""The tier's part of the demo: a topic outgrows its disk, and is read back to its first record."""

import json
import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.node import RunningNode
from tools.demo_output import (
    COMMAND_SECONDS_MAX,
    check,
    http,
    quipu,
    say,
    show,
    step,
    typed,
)

TOPIC = "readings"
RECORD_COUNT = 12_000
RECORD_SIZE = 1000
SEGMENT_SIZE = 1 << 20
BUDGET_SIZE = 2 << 20  # bytes of the topic that may stay on the disk
SETTINGS = {  # a node looks after its tier often enough for a demo
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}


def run_demo(node: RunningNode) -> None:
    """The steps, in order."""
    step("Outgrow the disk", "Old segments go to an object store: here a directory, S3 as well.")
    quipu(node, "topic", "create", TOPIC, "--config", "remote.storage.enable=true",
          "--config", f"segment.bytes={SEGMENT_SIZE}",
          "--config", f"local.retention.bytes={BUDGET_SIZE}")
    written = produce(node)
    say(f"{written >> 20} MiB acknowledged; the topic may keep {BUDGET_SIZE >> 20} MiB here.")
    local_start = await_copies(node)
    quipu(node, "topic", "describe", TOPIC, lines_max=3)
    quipu(node, "remote", "list", TOPIC, lines_max=4)

    step("Read it all back", "A consumer sees one log; the node fetches what it has no more.")
    consume(node)
    say(f"All {RECORD_COUNT:,} records in order; offsets 0 to {local_start - 1:,} from the tier.")
    typed(f"curl {node.http}/metrics | grep quipu_remote_fetch")
    lines = [line for line in http(f"{node.http}/metrics").splitlines()
             if line.startswith("quipu_remote_fetch")]
    check(any(int(line.split()[-1]) > 0 for line in lines), "nothing was read from the tier")
    show(lines)
    quipu(node, "remote", "verify")


def produce(node: RunningNode) -> int:
    """Write all records; returns their size.  Random bytes: nothing is won by compression."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
    filling = os.urandom(RECORD_SIZE)
    for number in range(RECORD_COUNT):
        producer.produce(TOPIC, b"%08d" % number + filling[8:])
        producer.poll(0)
    check(producer.flush(COMMAND_SECONDS_MAX) == 0, "not all readings were acknowledged")
    return RECORD_COUNT * RECORD_SIZE


def await_copies(node: RunningNode) -> int:
    """Wait until the topic fits into its budget; returns its first local offset."""
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while time.monotonic() < deadline:
        printed = quipu(node, "topic", "describe", TOPIC, "--json", shown=False)
        (partition,) = json.loads(printed)["partitions"]
        if partition["local_bytes"] <= BUDGET_SIZE + SEGMENT_SIZE:
            check(partition["start"] == 0, "records were lost")
            return int(partition["local_start"])
    check(holds=False, otherwise="the topic did not shrink to its budget")
    return 0


def consume(node: RunningNode) -> None:
    """Read every record from the first one on."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "readers",
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen = 0
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while seen < RECORD_COUNT and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            check(message.error() is None, str(message.error()))
            check((message.value() or b"")[:8] == b"%08d" % seen, f"not reading {seen}")
            seen += 1
    consumer.close()
    check(seen == RECORD_COUNT, f"{seen} of {RECORD_COUNT} readings were read")
