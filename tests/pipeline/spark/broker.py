"""A real node's topics, as the tests fill them.

    topic = broker.topic(partitions=2)                # a fresh name
    broker.send(topic, "a:1", "b:", ":c", partition=1)   # `key:value`, an empty part is null
    broker.record(topic, key=b"a", value=b"x", headers=[("h", b"1")], timestamp=1000)
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

DELIVERY_SECONDS_MAX = 30.0


class Record(NamedTuple):
    """All there is to a message."""

    key: bytes | None
    value: bytes | None
    partition: int = 0
    timestamp: int = 0  # milliseconds; 0 means now
    headers: Sequence[tuple[str, bytes | None]] = ()


class Broker:
    """One node: topics with fresh names, and a producer that waits."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._numbers = itertools.count(1)

    def topic(self, *, partitions: int = 1, name: str | None = None) -> str:
        """Create a topic; without a name it gets one that nobody has."""
        name = name or f"topic-{next(self._numbers)}"
        for done in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            done.result(DELIVERY_SECONDS_MAX)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        for done in self._admin.create_partitions([NewPartitions(topic, partitions)]).values():
            done.result(DELIVERY_SECONDS_MAX)
        self._producer.list_topics(topic, DELIVERY_SECONDS_MAX)  # it would hear of them later

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        for done in self._admin.delete_topics([topic]).values():
            done.result(DELIVERY_SECONDS_MAX)

    def send(self, topic: str, *messages: str | bytes, partition: int = 0) -> None:
        """Produce `key:value` messages, and wait until they are stored."""
        for message in messages:
            raw = message.encode() if isinstance(message, str) else message
            key, colon, value = raw.partition(b":")
            assert colon, f"{message!r} has no colon"
            self._producer.produce(topic, value or None, key or None, partition)
        self._wait()

    def record(
        self, topic: str, *, key: bytes | None = None, value: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (), timestamp: int = 0, partition: int = 0,
    ) -> None:
        """Produce one message with all there is to a message; timestamp 0 means now."""
        self.records(topic, [Record(key, value, partition, timestamp, headers)])

    def records(self, topic: str, records: Iterable[Record]) -> None:
        """Produce messages, and wait until they are stored."""
        for each in records:
            self._producer.produce(topic, each.value, each.key, each.partition,
                                   headers=list(each.headers), timestamp=each.timestamp)
        self._wait()

    def _wait(self) -> None:
        left = self._producer.flush(DELIVERY_SECONDS_MAX)
        assert left == 0, f"{left} messages were not stored"
