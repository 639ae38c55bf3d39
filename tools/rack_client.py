"""A stock client in one rack: writes ten records a second, reads them again, and says how it goes.

    python tools/rack_client.py RACK [BOOTSTRAP] [TOPIC]

A line each second: the records written and read so far, those that were not acknowledged, and the
brokers that this client is shown as leaders.  docs/tutorials/rack-failure.md uses it.
"""

import contextlib
import sys
import time
from collections.abc import Iterator

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

RATE = 10  # records a second
METADATA_SECONDS_MAX = 10.0  # at the start
LOOK_SECONDS_MAX = 0.5  # later: a broker that is asked may be down


class RackClient:
    """A producer and a consumer in one rack."""

    def __init__(self, rack: str, bootstrap: str, topic: str) -> None:
        common = {"bootstrap.servers": bootstrap, "client.id": f"diskless_az={rack}",
                  "topic.metadata.refresh.interval.ms": 1000,
                  "log_level": 0}  # connections that break are part of the experiment
        self._mark = f"{rack} ".encode()
        self._topic = topic
        self._producer = Producer({**common, "enable.idempotence": True})
        self._consumer = Consumer({**common, "group.id": rack})
        found = self._consumer.list_topics(topic, METADATA_SECONDS_MAX).topics[topic]
        self._consumer.assign(
            [TopicPartition(topic, each, OFFSET_END) for each in found.partitions])
        self.written = self.read = self.failed = 0
        self._leaders: list[int] = []

    def write(self, number: int) -> None:
        """Send a record; its acknowledgement comes later."""
        self._producer.produce(self._topic, self._mark + str(number).encode(),
                               on_delivery=self._acknowledged)
        self._producer.poll(0)

    def _acknowledged(self, error: KafkaError | None, _: Message) -> None:
        self.written += error is None
        self.failed += error is not None

    def read_all(self) -> None:
        """Count what came of this client's own records."""
        while message := self._consumer.poll(0):
            self.read += not message.error() and (message.value() or b"").startswith(self._mark)

    def leaders(self) -> list[int]:
        """The brokers that this client is shown as leaders, or was shown last."""
        with contextlib.suppress(KafkaException):
            found = self._consumer.list_topics(self._topic, LOOK_SECONDS_MAX).topics[self._topic]
            self._leaders = sorted({each.leader for each in found.partitions.values()})
        return self._leaders


def _ticks() -> Iterator[tuple[int, float]]:
    """Yield a number and the seconds since the start, ten times a second."""
    started = time.monotonic()
    for number in range(sys.maxsize):
        time.sleep(max(0.0, started + number / RATE - time.monotonic()))
        yield number, time.monotonic() - started


def main() -> None:
    """Run until Ctrl-C."""
    words = dict(enumerate(sys.argv))
    client = RackClient(
        words.get(1, "r1"), words.get(2, "localhost:9092"), words.get(3, "events"))
    for number, seconds in _ticks():
        client.write(number)
        client.read_all()
        if number % RATE == 0:
            print(f"{seconds:4.0f} s: written {client.written}, read {client.read}, "
                  f"failed {client.failed}; leaders {client.leaders()}", flush=True)


if __name__ == "__main__":
    main()
