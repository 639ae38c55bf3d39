"""Stock producers and consumers that go on whatever happens, and the history of what they saw.

    writers = [Writer("w1", bootstrap, "t", [0], chance), ...]
    with running([*writers, Follower(bootstrap, "t", 1)], cluster.logs):
        ...                                             terrible things
    anomalies("t", writers, [read_topic(bootstrap, "t", 1)])

Each has a thread of its own.  What fails in it is raised where the block is left.
"""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.harness.history import Anomaly, Outcome, Read, Sent, check
from tests.harness.progress import wait_for

VALUES_PER_SECOND = 150.0  # of one writer
IN_FLIGHT_MAX = 300  # values of one writer
LOSSES = frozenset({  # what also a producer without sequences must never see
    "lost-write", "unseen", "inconsistent-offsets", "phantom-read", "poll-skip",
    "nonmonotonic-poll"})
PATIENT: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0,
    "topic.metadata.refresh.interval.ms": 300, "socket.timeout.ms": 10_000}


class Worker(Protocol):
    """Something that is done over and over until it is told to stop."""

    name: str

    def step(self) -> None: ...

    def finish(self) -> None: ...


class Writer:
    """A producer that writes numbered values to some partitions, and retries for ever."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: Sequence[int],
        chance: random.Random, *, is_idempotent: bool = True,
    ) -> None:
        self.name, self.topic = name, topic
        self.is_idempotent = is_idempotent
        self.acknowledged = 0
        self.failures: list[KafkaError] = []  # that it got instead of an acknowledgement
        self._partitions = partitions
        self._chance = chance
        self._numbers = itertools.count()
        self._order: list[tuple[int, str]] = []
        self._answers: dict[str, tuple[Outcome, int | None]] = {}
        self._next = time.monotonic()
        self._producer = Producer({
            **PATIENT, "bootstrap.servers": bootstrap, "enable.idempotence": is_idempotent,
            "acks": "all", "linger.ms": 2, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100,
            "message.timeout.ms": 0, "request.timeout.ms": 8_000})

    def step(self) -> None:
        """Send a value if there is room, and hear what became of others."""
        if len(self._producer) < IN_FLIGHT_MAX:
            partition = self._chance.choice(self._partitions)
            size = self._chance.randrange(300)
            value = f"{self.name}-{next(self._numbers):07d}-" + "x" * size
            self._order.append((partition, value))
            self._producer.produce(self.topic, value=value, partition=partition,
                                   on_delivery=self._delivered)
        self._next = max(self._next + 1 / VALUES_PER_SECOND, time.monotonic() - 0.1)
        self._producer.poll(max(0.0, self._next - time.monotonic()))

    def finish(self) -> None:
        """Wait until every value has its outcome."""
        wait_for(lambda: self._producer.flush(0.5) == 0, progress=lambda: len(self._producer),
                 what=lambda: f"{self.name}: {len(self._producer)} values without an answer")

    def sent(self) -> list[Sent]:
        """What was sent, in order."""
        return [Sent(self.name, partition, value, *self._answers.get(
            value, (Outcome.UNKNOWN, None))) for partition, value in self._order]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is None:
            self._answers[value] = (Outcome.OK, message.offset())
            self.acknowledged += 1
            return
        self.failures.append(error)
        if self.is_idempotent:  # none may fail that can be repeated
            raise KafkaException(error)


class Follower:
    """A consumer that reads all partitions of a topic from their beginning, for ever."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.name, self.topic = f"follower of {topic}", topic
        self.reads: list[Read] = []
        self._consumer = Consumer({
            **PATIENT, "bootstrap.servers": bootstrap, "group.id": "unused",
            "enable.auto.commit": False, "auto.offset.reset": "error",
            "fetch.error.backoff.ms": 50, "allow.auto.create.topics": False})
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])

    def step(self) -> None:
        for message in self._consumer.consume(500, timeout=0.2):
            error = message.error()
            if error is None:
                self.reads.append(_read(message))
            elif not error.retriable():
                raise KafkaException(error)

    def finish(self) -> None:
        self._consumer.close()


@contextlib.contextmanager
def running(workers: Sequence[Worker], logs: Callable[[], str]) -> Iterator[None]:
    """Let workers work for the length of the block; then each finishes."""
    stopping, failures = threading.Event(), list[BaseException]()

    def work(worker: Worker) -> None:
        try:
            while not stopping.is_set():
                worker.step()
            worker.finish()
        except BaseException as error:  # noqa: BLE001 raised again where the test hears it
            error.add_note(f"in {worker.name}")
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,), name=worker.name, daemon=True)
               for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
    wait_for(lambda: bool(failures) or not any(thread.is_alive() for thread in threads),
             what=lambda: f"{[each.name for each in threads if each.is_alive()]} hang{logs()}")
    for error in failures:
        error.add_note(logs())
        raise error


def await_progress(writers: Sequence[Writer], logs: Callable[[], str], count: int = 20) -> None:
    """Wait until each writer has `count` more values acknowledged."""
    wanted = {writer.name: writer.acknowledged + count for writer in writers}

    def late() -> dict[str, int]:
        return {writer.name: wanted[writer.name] - writer.acknowledged for writer in writers
                if writer.acknowledged < wanted[writer.name]}

    def is_reached() -> bool:
        failed = {writer.name: writer.failures for writer in writers
                  if writer.is_idempotent and writer.failures}
        assert not failed, f"{failed}{logs()}"
        return not late()

    wait_for(is_reached, progress=lambda: sum(each.acknowledged for each in writers),
             what=lambda: f"values that are not acknowledged: {late()}{logs()}")


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[Read]:
    """Everything that a new consumer is given, up to the ends that nodes state."""
    consumer = Consumer({**PATIENT, "bootstrap.servers": bootstrap, "group.id": "unused",
                         "enable.auto.commit": False, "auto.offset.reset": "error"})
    places = [TopicPartition(topic, each) for each in range(partitions)]
    bounds = [consumer.get_watermark_offsets(place, timeout=60) for place in places]
    assert None not in bounds
    count = sum(high - low for low, high in bounds)
    for place, (low, _) in zip(places, bounds, strict=True):
        place.offset = low
    consumer.assign(places)
    reads: list[Read] = []

    def more() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None, message.error()
            reads.append(_read(message))
        return len(reads) >= count

    wait_for(more, progress=lambda: len(reads), what=lambda: f"{len(reads)} of {bounds}")
    consumer.close()
    return reads


def anomalies(
    topic: str, writers: Sequence[Writer], readers: Sequence[list[Read]]
) -> list[Anomaly]:
    """What the history of a topic breaks: if no writer has sequences, only losses count."""
    own = [writer for writer in writers if writer.topic == topic]
    found = check([sent for writer in own for sent in writer.sent()], readers)
    if all(writer.is_idempotent for writer in own):
        return found
    return [anomaly for anomaly in found if anomaly.name in LOSSES]


def _read(message: Message) -> Read:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return Read(partition, offset, value.decode())
