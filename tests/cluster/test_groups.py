"""Consumer groups of a stock client while their coordinator is killed, or restarted in order."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.harness.cluster import QUICK, RunningCluster

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC, GROUP, PARTITIONS = "t", "g", 2
SESSION_MS = 6_000  # four times the detection of a dead node, as the defaults have it
GROUPS = {"group.initial.rebalance.delay.ms": "100"}
DETECTION_SECONDS = int(QUICK["broker.session.timeout.ms"]) / 1000
GOES_ON_SECONDS_MAX = DETECTION_SECONDS + 8.0  # an election, and a client that asks every second
KILLS = 3


class Member(threading.Thread):
    """A consumer that commits each record before it reads the next one."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.assigned: frozenset[int] = frozenset()
        self.assignments = 0
        self.read: list[tuple[int, str]] = []
        self.committed: dict[int, int] = {}  # what it was told is kept
        self.errors: list[KafkaError] = []
        self._stopping = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500, "log_level": 0,
            "enable.auto.commit": False, "fetch.error.backoff.ms": 100,
            "reconnect.backoff.max.ms": 500,
        })

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                self.errors.append(error)
                continue
            self.read.append((message.partition(), message.value().decode()))
            self._commit(message)
        self._consumer.close()

    def _commit(self, message: Message) -> None:
        """Commit it, again and again while it may be tried again."""
        while True:
            try:
                kept = self._consumer.commit(message, asynchronous=False)
            except KafkaException as failure:
                self.errors.append(failure.args[0])
                if not self.errors[-1].retriable():
                    return
                time.sleep(0.1)
            else:
                self.committed |= {each.partition: each.offset for each in kept}
                return

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)

    def _on_assign(self, _: Consumer, given: list[TopicPartition]) -> None:
        self.assigned = frozenset(each.partition for each in given)
        self.assignments += 1

    def _on_revoke(self, _: Consumer, _taken: list[TopicPartition]) -> None:
        self.assigned = frozenset()


class Pair:
    """Two members with a partition each, and a producer for both."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self.members = [Member(cluster.bootstrap) for _ in range(2)]
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0,
                                   "enable.idempotence": True, "reconnect.backoff.max.ms": 500})

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        for _ in self._cluster.until("both have a partition"):
            if all(len(member.assigned) == 1 for member in self.members):
                return self
        raise AssertionError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.stop()

    def goes_on(self, label: str) -> float:
        """Write to each partition, and see it read; gives how long that took."""
        started = time.monotonic()
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, value=label, partition=partition)
        assert self._producer.flush(30) == 0
        wanted = {(partition, label) for partition in range(PARTITIONS)}
        for _ in self._cluster.until(f"the group reads {label!r}"):
            if wanted <= {each for member in self.members for each in member.read}:
                return time.monotonic() - started
        raise AssertionError

    @property
    def committed(self) -> dict[int, int]:
        """The highest acknowledged offset of each partition."""
        return {partition: max(member.committed.get(partition, 0) for member in self.members)
                for partition in range(PARTITIONS)}


def stored(cluster: RunningCluster) -> dict[int, int]:
    """The group's committed offset, as any client gets it."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP,
                         "log_level": 0})
    asked = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(asked, timeout=20)}
    consumer.close()
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, settings=GROUPS) as running:
        running.create_topic(TOPIC, partitions=PARTITIONS)
        yield running


@pytest.mark.timeout(180)
def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: RunningCluster) -> None:
    """K3, V21: within a bounded time, without a rebalance; no offset that was committed is lost,
    and nothing but retriable errors is seen.
    """
    with Pair(cluster) as pair:
        pair.goes_on("start")
        joined = [member.assignments for member in pair.members]  # one may have come late
        for number in range(KILLS):
            victim = next(iter(cluster.states("a")))  # it leads the partition of the group too
            cluster[victim].kill()
            taken = pair.goes_on(f"kill {number}")
            print(f"went on after {taken:.1f} s")
            assert taken < GOES_ON_SECONDS_MAX
            told = pair.committed
            kept = stored(cluster)
            assert all(kept[each] >= told[each] for each in told), (kept, told)
            cluster[victim].start()
            cluster.await_serving("a")
        assert [member.assignments for member in pair.members] == joined
        errors = [error for member in pair.members for error in member.errors]
        assert all(error.retriable() for error in errors), errors


@pytest.mark.timeout(180)
def test_a_group_sees_only_retriable_errors_while_nodes_are_restarted_in_order(
    cluster: RunningCluster,
) -> None:
    """K3, K10: the coordinator moves three times; the members stay members, and what they
    committed stays.
    """
    with Pair(cluster) as pair:
        pair.goes_on("start")
        joined = [member.assignments for member in pair.members]  # one may have come late
        for name in cluster.chains["a"]:
            cluster[name].restart()
            cluster.await_serving("a")
            taken = pair.goes_on(f"after {name}")
            assert taken < GOES_ON_SECONDS_MAX
        assert [member.assignments for member in pair.members] == joined
        errors = [error for member in pair.members for error in member.errors]
        assert all(error.retriable() for error in errors), errors
    all_of_it = dict.fromkeys(range(PARTITIONS), 1 + len(cluster.chains["a"]))
    assert (pair.committed, stored(cluster)) == (all_of_it, all_of_it)
