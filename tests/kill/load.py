"""A load on a node that may die at any moment, and its history.

An idempotent producer that retries for ever stays up across restarts of the node; what it was told
is kept for the history checker.
"""

import itertools
import random
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.history import Anomaly, Outcome, Read, Sent, check

PARTITIONS = 2
IN_FLIGHT_MAX = 500  # messages; bounds the work that a dead node leaves behind
READ_SECONDS_MAX = 30.0
FLUSH_SECONDS_MAX = 60.0


class Load:
    """Writes numbered values to all partitions of one topic for as long as it is told to."""

    def __init__(self, bootstrap: str, topic: str, rng: random.Random) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rng = rng
        self._numbers = itertools.count()
        self._order: list[tuple[int, str]] = []
        self._answers: dict[str, tuple[Outcome, int | None]] = {}
        self._heard: list[tuple[float, int]] = []  # when, and of which partition: see `_answers`
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1,
            "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 50, "message.timeout.ms": 0, "log_level": 0,
            "topic.metadata.refresh.interval.ms": 200, "socket.keepalive.enable": True,
        })

    @property
    def acknowledged(self) -> int:
        """How many values the node has promised to keep."""
        return sum(outcome is Outcome.OK for outcome, _ in list(self._answers.values()))

    def longest_pause(self, *, since: float) -> float:
        """The longest time without an acknowledgement in any partition, after `since`."""
        pauses = []
        for partition in range(PARTITIONS):
            times = [at for at, of in self._heard if of == partition]
            pauses += [later - max(earlier, since)
                       for earlier, later in itertools.pairwise(times) if later > since]
        return max(pauses, default=0.0)

    def run(self, seconds: float) -> None:
        """Send for a while; never more than a bounded number is on its way."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.step()

    def step(self) -> None:
        """Send one value if there is room, and hear what became of others."""
        if len(self._producer) < IN_FLIGHT_MAX:
            self._send()
        self._producer.poll(0.0005)

    def finish(self) -> None:
        """Wait until every value has an answer."""
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        assert left == 0, f"{left} values without an answer"

    def anomalies(self, *readers: list[Read]) -> list[Anomaly]:
        """What the history of this load, and of those who read it, breaks."""
        sent = [Sent("load", partition, value, *self._answers.get(value, (Outcome.UNKNOWN, None)))
                for partition, value in self._order]
        return check(sent, readers)

    def _send(self) -> None:
        partition = self._rng.randrange(PARTITIONS)
        value = f"{next(self._numbers):08d}-" + "x" * self._rng.randrange(200)
        self._order.append((partition, value))
        self._producer.produce(self._topic, value=value, partition=partition,
                               on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value().decode()
        if error is None:
            self._answers[value] = (Outcome.OK, message.offset())
            self._heard.append((time.monotonic(), message.partition()))
        elif error.code() == KafkaError._MSG_TIMED_OUT:
            self._answers[value] = (Outcome.UNKNOWN, None)
        else:
            raise KafkaException(error)


def create_topic(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    """One topic of the load; returns when the node has acknowledged it."""
    new = NewTopic(topic, num_partitions=PARTITIONS, config=configs)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(30)


def read_all(bootstrap: str, topic: str) -> list[Read]:
    """Everything that a new consumer is given, up to the ends that the node states."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused",
                         "enable.auto.commit": False})
    ends = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        assert low == 0
        ends[partition] = high
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    reads: list[Read] = []
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(reads) < sum(ends.values()):
        assert time.monotonic() < deadline, f"{len(reads)} of {ends}"
        for message in consumer.consume(1000, timeout=1.0):
            assert message.error() is None, message.error()
            reads.append(Read(message.partition(), message.offset(), message.value().decode()))
    consumer.close()
    return reads
