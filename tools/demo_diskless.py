"""The diskless part of the demo: a topic without a disk outlives its node and its control plane."""

import json

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.node import RunningNode
from tools.demo_output import COMMAND_SECONDS_MAX, check, quipu, say, step, typed

TOPIC = "clicks"
RECORD_COUNT = 5_000
CONTROL_PLANE = "diskless.sqlite"
SETTINGS = {"diskless.storage.system.enable": "true"}


def run_demo(node: RunningNode) -> None:
    """The steps, in order."""
    step("A topic without a disk", "Its records are in objects; a database orders them.")
    quipu(node, "topic", "create", TOPIC, "--config", "diskless.enable=true")
    produce(node)
    say(f"{RECORD_COUNT:,} clicks acknowledged: each is in an object, and has its offset.")
    node.kill()
    check(not list(node.directory.glob(f"{TOPIC}-*")), "there is a log of the topic")
    node.start()
    consume(node)
    say("kill -9, and all of them are read back in order; the node has no log of them.")

    step("Lose the database", "Objects describe themselves: the control plane is made anew.")
    plane, storage = node.directory / CONTROL_PLANE, node.directory / "diskless"
    places = ("--control-plane", f"sqlite://{plane}", "--storage", storage.as_uri())
    quipu(node, "diskless", "objects", *places, offline=True, lines_max=3)
    check(node.stop() == 0, "the node did not stop well")
    typed(f"rm {CONTROL_PLANE}*")
    for file in node.directory.glob(f"{CONTROL_PLANE}*"):
        file.unlink()
    check(not plane.exists(), "the control plane is still there")
    quipu(node, "diskless", "rebuild", *places, offline=True)
    node.start()
    consume(node)
    say(f"The same {RECORD_COUNT:,} clicks, at the same offsets.")


def produce(node: RunningNode) -> None:
    """Write all clicks, and wait until they are acknowledged."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
    for number in range(RECORD_COUNT):
        producer.produce(TOPIC, json.dumps({"click": number}).encode())
        producer.poll(0)
    check(producer.flush(COMMAND_SECONDS_MAX) == 0, "not all clicks were acknowledged")


def consume(node: RunningNode) -> None:
    """Read every click; its offset is its number."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "clicks",
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen = 0
    while seen < RECORD_COUNT:
        messages = consumer.consume(RECORD_COUNT - seen, COMMAND_SECONDS_MAX)
        check(bool(messages), f"{seen} of {RECORD_COUNT} clicks were read")
        for message in messages:
            check(message.error() is None, str(message.error()))
            click = json.loads(message.value() or b"{}")["click"]
            check(click == message.offset() == seen, f"click {click} is at {message.offset()}")
            seen += 1
    consumer.close()
