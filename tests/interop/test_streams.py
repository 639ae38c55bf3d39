"""A Kafka Streams application, on Kafka and on Quipu."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.brokers import Broker
from tests.interop.kafka_tools import shared_driver

pytestmark = pytest.mark.interop

FIRST = ["the quick knot", "the slow knot", "the knot"] * 10
SECOND = ["a quick cord", "the cord"] * 10


def produce(broker: Broker, topic: str, lines: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, line in enumerate(lines):
        producer.produce(topic, line, key=f"{number % 4}")
    assert producer.flush(30) == 0


def counted(lines: Sequence[str]) -> dict[str, int]:
    words = " ".join(lines).split()
    return {word: words.count(word) for word in sorted(set(words))}


def run(
    broker: Broker, jars: Path, topic: str, state: Path, lines: Sequence[str]
) -> tuple[int, dict[str, int]]:
    """Run the application until it has counted these lines: how much of its state was restored,
    and what it has counted.
    """
    done = shared_driver().run(
        [jars], "Counting", broker.bootstrap, f"app-of-{topic}", topic, f"{topic}-counts",
        str(state), str(len(" ".join(lines).split())))
    assert done.code == 0, f"{done.out}\n{done.err}"
    (_, restored), *counts = (line.split(": ") for line in done.out.splitlines())
    return int(restored), {word: int(count) for word, count in counts}


def test_streams_count_at_least_once_and_restore_their_state(
    broker: Broker, topic: str, kafka_jars: Path, tmp_path: Path
) -> None:
    """K1, K2, K3: an application counts words by way of a topic of its own in between; ended, and
    started again without its state, it has the state restored from its changelog and goes on where
    it was; kafka-streams-application-reset takes it back to the beginning.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics(
            [NewTopic(name, num_partitions=2) for name in (topic, f"{topic}-counts")]).values():
        future.result(30)
    produce(broker, topic, FIRST)
    assert run(broker, kafka_jars, topic, tmp_path / "state", FIRST) == (0, counted(FIRST))

    shutil.rmtree(tmp_path / "state")
    produce(broker, topic, SECOND)
    restored, counts = run(broker, kafka_jars, topic, tmp_path / "state", FIRST + SECOND)
    assert counts == counted(FIRST + SECOND)
    assert restored == len(" ".join(FIRST).split())  # no cache: one record for each word

    topics = admin.list_topics(timeout=30).topics
    own = sorted(name for name in topics if name.startswith(f"app-of-{topic}"))
    assert own == [f"app-of-{topic}-counts-changelog", f"app-of-{topic}-counts-repartition"]
    shown = broker.tools.run("kafka-streams-application-reset", "--application-id",
                             f"app-of-{topic}", "--input-topics", topic, "--force")
    assert all(name in shown for name in own), shown
    shutil.rmtree(tmp_path / "state")
    restored, counts = run(broker, kafka_jars, topic, tmp_path / "state", FIRST + SECOND)
    assert (restored, counts) == (0, counted(FIRST + SECOND))
