"""The node's part of the demo: records, a group, `kill -9`, a look into the log, metrics."""

import json
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.node import RunningNode
from tools.demo_output import (
    COMMAND_SECONDS_MAX,
    check,
    console,
    http,
    quipu,
    say,
    show,
    step,
    typed,
)

TOPIC = "orders"
GROUP = "billing"
PARTITION_COUNT = 3
ORDER_COUNT = 30_000
FIRST_READ_COUNT = 12_000
CUSTOMER_COUNT = 50


def run_demo(node: RunningNode) -> None:
    """The steps, in order."""
    step("Start a node", "One process, one directory, nothing else to install.")
    node.start()
    shown = (f"quipu start --dir {node.directory.name} --listen 127.0.0.1:0 "
             "--set remote.log.storage.system.enable=true "
             "--set diskless.storage.system.enable=true")
    typed(shown)
    console.print(f"quipu ready {node.bootstrap}")
    say(f"It served after {node.start_seconds * 1000:.0f} ms.")

    step("Create a topic", "The commands work with any Kafka broker.")
    quipu(node, "topic", "create", TOPIC, "--partitions", str(PARTITION_COUNT))

    step("Produce with a stock client", "librdkafka, idempotent, zstd; orders keyed by customer.")
    produce(node)
    quipu(node, "topic", "describe", TOPIC)

    step("Consume as a group", f"{GROUP} reads some of it, commits, and goes to lunch.")
    progress = dict.fromkeys(range(PARTITION_COUNT), 0)
    seen = consume(node, FIRST_READ_COUNT, progress)
    quipu(node, "group", "describe", GROUP)

    step("kill -9", "No warning, no clean-up. Then the same command again.")
    node.kill()
    node.start()
    say(f"Serving again after {node.start_seconds * 1000:.0f} ms, its logs checked.")
    seen |= consume(node, ORDER_COUNT - len(seen), progress)
    check(len(seen) == ORDER_COUNT, f"{len(seen)} of {ORDER_COUNT} orders were read")
    say(f"{GROUP} went on where it had left off: all {ORDER_COUNT:,} orders, each of them once.")
    check(lag(node) == 0, "the group is not at the end")

    step("Look inside", "Every batch has a type, and a node's own state lives in the same log.")
    node_stop(node)
    look_inside(node)
    node.start()

    step("Watch it", "Prometheus metrics and health over HTTP.")
    show_metrics(node)


def end_demo(node: RunningNode) -> None:
    """The last step."""
    step("Stop", "SIGTERM: responses leave, logs are flushed, the directory is left in order.")
    node_stop(node)
    say("Exit code 0.")


def produce(node: RunningNode) -> None:
    """Send all orders and wait until each is acknowledged."""
    config = {
        "bootstrap.servers": node.bootstrap, "enable.idempotence": True,
        "compression.type": "zstd", "linger.ms": 5,
    }  # fmt: skip
    producer = Producer(config)
    failures: list[object] = []
    begun = time.monotonic()
    for number in range(ORDER_COUNT):
        order = {"order": number, "knots": number * 7 % 100}
        producer.produce(
            TOPIC, json.dumps(order).encode(), f"customer-{number % CUSTOMER_COUNT}".encode(),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
    left = producer.flush(COMMAND_SECONDS_MAX)
    check(left == 0 and not failures, f"{left} orders left, failures: {failures[:1]}")
    seconds = time.monotonic() - begun
    say(f"{ORDER_COUNT:,} orders acknowledged in {seconds:.2f} s.")


def consume(node: RunningNode, count: int, progress: dict[int, int]) -> set[int]:
    """Read `count` orders as a member of the group, and commit; `progress` is by partition."""
    config = {
        "bootstrap.servers": node.bootstrap, "group.id": GROUP, "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = Consumer(config)
    consumer.subscribe([TOPIC])
    seen: set[int] = set()
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while len(seen) < count and time.monotonic() < deadline:
        for message in consumer.consume(min(1000, count - len(seen)), 0.2):
            check(message.error() is None, str(message.error()))
            order = json.loads(message.value() or b"{}")["order"]
            check(order not in seen, f"order {order} came twice")
            seen.add(order)
            progress[int(message.partition() or 0)] = int(message.offset() or 0) + 1
    check(len(seen) == count, f"read {len(seen)} orders of {count}")
    consumer.commit(
        offsets=[TopicPartition(TOPIC, partition, end) for partition, end in progress.items()],
        asynchronous=False,
    )
    consumer.close()
    say(f"{len(seen):,} orders read and committed.")
    return seen


def lag(node: RunningNode) -> int:
    """What the group has not read yet, as the command shows it."""
    printed = quipu(node, "group", "describe", GROUP, "--json", shown=False)
    value = json.loads(printed)["lag"]
    assert isinstance(value, int)
    return value


def look_inside(node: RunningNode) -> None:
    """What is stored, read from the files without a node."""
    quipu(node, "log", "show", f"{node.directory.name}/{TOPIC}-0", lines_max=12, offline=True)
    say("The node's own decisions about topics, in the same format:")
    own = f"{node.directory.name}/__cluster-0"
    quipu(node, "log", "show", own, lines_max=12, offline=True)


def show_metrics(node: RunningNode) -> None:
    """A few of the metrics, and health."""
    wanted = ("quipu_ready ", 'quipu_partition_end_offset{topic="orders"', "quipu_build_info",
              "process_resident_memory_bytes ")  # fmt: skip
    text = http(f"{node.http}/metrics")
    typed(f"curl {node.http}/metrics")
    lines = [line for line in text.splitlines() if line.startswith(wanted)]
    check(len(lines) >= len(wanted), "metrics are missing")
    show(lines)
    typed(f"curl {node.http}/health/ready")
    show(http(f"{node.http}/health/ready").splitlines())


def node_stop(node: RunningNode) -> None:
    code = node.stop()
    check(code == 0, f"the node stopped with exit code {code}")
