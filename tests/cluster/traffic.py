"""Traffic on a cluster while a test does terrible things to it, and the history of all of it.

One idempotent producer with acks=all that never gives up, and one reader that follows the ends of
all partitions, each in a thread of its own.  At the end a new consumer reads everything, and the
history checker judges what was sent, what was followed, and what is there.
"""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.harness.cluster import RunningCluster
from tests.harness.history import Anomaly, Read
from tests.kill.load import PARTITIONS, Load, read_all

VALUES_PER_SECOND = 400.0


class Traffic:
    """A producer, a follower and their history; tests make one with `traffic`."""

    def __init__(self, cluster: RunningCluster, topic: str, seed: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self.load = Load(cluster.bootstrap, topic, random.Random(seed))
        self.followed: list[Read] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work, name=work.__name__)
                         for work in (self._send, self._follow)]
        self._failures: list[BaseException] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more values; return when every sent one has its outcome."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), f"{thread.name} hangs{self._cluster.logs()}"
        if self._failures:
            raise self._failures[0]
        self.load.finish()

    def anomalies(self) -> list[Anomaly]:
        """What the whole history breaks; call after `stop`."""
        return self.load.anomalies(read_all(self._cluster.bootstrap, self._topic), self.followed)

    def await_progress(self, seconds: float = 30.0, count: int = 50) -> float:
        """Wait until `count` more values are acknowledged; gives how long that took."""
        started, wanted = time.monotonic(), self.load.acknowledged + count
        while self.load.acknowledged < wanted:
            late = time.monotonic() - started > seconds
            assert not late, f"no progress within {seconds} s{self._cluster.logs()}"
            time.sleep(0.02)
        return time.monotonic() - started

    def _send(self) -> None:
        started = time.monotonic()
        sent = 0
        while not self._stopping.is_set():
            self.load.step()
            sent += 1
            early = sent / VALUES_PER_SECOND - (time.monotonic() - started)
            if early > 0:
                time.sleep(early)

    def _follow(self) -> None:
        consumer = Consumer({
            "bootstrap.servers": self._cluster.bootstrap, "group.id": "unused", "log_level": 0,
            "enable.auto.commit": False, "auto.offset.reset": "error",
            "topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.max.ms": 200,
            "fetch.error.backoff.ms": 50, "allow.auto.create.topics": False,
        })
        consumer.assign([TopicPartition(self._topic, index, 0) for index in range(PARTITIONS)])
        try:
            while not self._stopping.is_set():
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is None:
                        self.followed.append(Read(
                            message.partition(), message.offset(), message.value().decode()))
                    elif not error.retriable():
                        raise KafkaException(error)
        except BaseException as error:  # noqa: BLE001 raised again where the test hears it
            self._failures.append(error)
        finally:
            threading.current_thread().name += ", closing its consumer,"  # told if it hangs
            consumer.close()


@contextlib.contextmanager
def traffic(cluster: RunningCluster, topic: str, seed: int = 1) -> Iterator[Traffic]:
    """Traffic on `topic` for the length of the block."""
    made = Traffic(cluster, topic, seed)
    made.start()
    try:
        yield made
    except BaseException:
        made._stopping.set()
        raise
    made.stop()
