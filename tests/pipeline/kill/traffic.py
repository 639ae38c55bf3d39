"""People who change and go, and what they buy: messages for as long as a test wants them.

The producer stays up across restarts of the node and writes every message once.  A person's
messages are all in one partition, so what is the latest is beyond doubt.
"""

import itertools
import random
import threading
import time
import zlib

from confluent_kafka import Producer

PARTITIONS = 2
PEOPLE_MAX = 150
PAUSE_SECONDS = 0.02
BURST = 2  # messages after each pause
IN_FLIGHT_MAX = 2_000  # so that a node that is down does not fill the memory
FLUSH_SECONDS_MAX = 600.0  # returns as soon as all is stored


class Traffic:
    """Messages to `people` (name by person, or null) and `orders` (number by person)."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self._rng = rng
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
            "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100, "message.timeout.ms": 0, "log_level": 0,
        })
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> int:
        """Stop, and wait until the node has everything; how many messages there were."""
        self._stopping.set()
        self._thread.join(FLUSH_SECONDS_MAX)
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        assert left == 0, f"{left} messages were not stored"
        return next(self._numbers)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for _ in range(BURST if len(self._producer) < IN_FLIGHT_MAX else 0):
                self._send()
            self._producer.poll(0)
            time.sleep(PAUSE_SECONDS)

    def _send(self) -> None:
        number = next(self._numbers)
        person = f"p{self._rng.randrange(PEOPLE_MAX)}"
        if self._rng.random() < 0.6:
            name = None if self._rng.random() < 0.2 else f"{person} the {number}th"
            self._produce("people", person, name)
        else:
            self._produce("orders", person, str(number))

    def _produce(self, topic: str, person: str, value: str | None) -> None:
        partition = zlib.crc32(person.encode()) % PARTITIONS
        self._producer.produce(topic, value, person, partition)
