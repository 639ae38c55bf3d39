"""`make demo`: the life of a node in half a minute, told step by step.

Everything is real: a node in a process of its own on a free port, a stock Kafka client, the
commands as anyone would type them, and a `kill -9` in the middle.  Every claim is checked; the exit
code is 0 only if all of them held.  Nothing is left behind.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.harness.node import RunningNode, environment  # noqa: E402 found by the line above

TOPIC = "orders"
GROUP = "billing"
PARTITION_COUNT = 3
ORDER_COUNT = 30_000
FIRST_READ_COUNT = 12_000
COMMAND_SECONDS_MAX = 30
CUSTOMER_COUNT = 50

console = Console(highlight=False)


class BrokenPromise(Exception):
    """Something that the demo claims did not hold."""


def main() -> int:
    """Run the demo; 0 if everything that it says was true."""
    begun = time.monotonic()
    console.print(Panel(Text("quipu: a Kafka-compatible log of typed batches", justify="center")))
    with tempfile.TemporaryDirectory(prefix="quipu-demo-") as folder:
        node = RunningNode(Path(folder) / "data")
        try:
            tell_story(node)
        except (BrokenPromise, AssertionError, subprocess.SubprocessError, OSError) as error:
            console.print(f"\n[bold red]The demo failed:[/] {Text(str(error))}")
            return 1
        finally:
            node.kill()
    seconds = time.monotonic() - begun
    console.print(f"\n[bold green]All of it held.[/]  {seconds:.0f} s, and nothing is left behind.")
    console.print("Your turn:  [bold].venv/bin/quipu start[/]   then see docs/quickstart.md")
    return 0


def tell_story(node: RunningNode) -> None:
    """The steps, in order."""
    step("Start a node", "One process, one directory, nothing else to install.")
    node.start()
    shown = f"quipu start --dir {node.directory.name} --listen 127.0.0.1:0"
    console.print(f"[bold cyan]$ {shown}[/]\nquipu ready {node.bootstrap}")
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

    step("Stop", "SIGTERM: answers leave, logs are flushed, the directory is left in order.")
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
    """What the group has not read yet, as the command tells it."""
    answer = quipu(node, "group", "describe", GROUP, "--json", shown=False)
    value = json.loads(answer)["lag"]
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
    console.print(f"[bold cyan]$ curl {node.http}/metrics[/]")
    lines = [line for line in text.splitlines() if line.startswith(wanted)]
    check(len(lines) >= len(wanted), "metrics are missing")
    show(lines)
    console.print(f"[bold cyan]$ curl {node.http}/health/ready[/]")
    show(http(f"{node.http}/health/ready").splitlines())


def node_stop(node: RunningNode) -> None:
    code = node.stop()
    check(code == 0, f"the node stopped with exit code {code}")


def quipu(
    node: RunningNode,
    *words: str,
    shown: bool = True,
    offline: bool = False,
    lines_max: int = 40,
) -> str:
    """Run a command against the node, show it, and return what it printed."""
    arguments = [*words] if offline else [*words, "--bootstrap", node.bootstrap]
    done = subprocess.run(
        [sys.executable, "-m", "quipu", *arguments],
        capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False,
        env=environment(), cwd=node.directory.parent,
    )  # fmt: skip
    if shown:
        console.print(f"[bold cyan]$ quipu {' '.join(words)}[/]")
        lines = (done.stdout + done.stderr).splitlines()
        show(lines[:lines_max])
        if len(lines) > lines_max:
            say(f"... and {len(lines) - lines_max} more lines")
    check(done.returncode == 0, f"quipu {' '.join(words)}: {done.stderr}")
    return done.stdout


def http(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 our own node
        text: str = answer.read().decode()
        return text


def step(title: str, about: str) -> None:
    console.print()
    console.rule(f"[bold]{title}", align="left", style="green")
    say(about)


def say(text: str) -> None:
    console.print(Text(text, style="italic dim"))


def show(lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)  # every character, however narrow the window


def check(holds: bool, otherwise: str) -> None:  # noqa: FBT001 reads as a sentence
    if not holds:
        raise BrokenPromise(otherwise)


if __name__ == "__main__":
    sys.exit(main())
