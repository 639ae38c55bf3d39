"""How long stock clients wait when a node fails, with the default settings.

    python -m tests.cluster.test_failover     every part of the chain, twice, with what it took
"""

import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Protocol, Self

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.harness.cluster import RunningCluster

TOPIC = "t"
PARTITIONS = 6
PARTS = ("head", "middle", "tail")
PAUSE_SECONDS_MAX = 3.0
BUSY_SECONDS = 2.0  # that a loaded machine may take longer: each test runs beside two others
SESSION_SECONDS = 6.0
SETTLE_SECONDS = 12.0


class StockClients:
    """A producer and a consumer as librdkafka makes them, and when each got something done."""

    def __init__(
        self, cluster: RunningCluster, topic: str = TOPIC, *, partitions: int = 1,
        group: str | None = None,
    ) -> None:
        """The consumer reads partition 0, or what it is assigned as a member of `group`."""
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": group or "unused",
            "auto.offset.reset": "earliest", "enable.auto.commit": group is not None,
            "log_level": 0})
        self._topic, self._partitions, self._group = topic, partitions, group
        self._sending = threading.Event()
        self._sending.set()
        self.acknowledged: list[bytes] = []
        self.values: list[bytes] = []
        self.written: list[float] = []
        self.read: list[float] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        self._consumer.close()

    def _write(self) -> None:
        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            self.written.append(time.monotonic())
            self.acknowledged.append(message.value() or b"")

        sent = 0
        while not self._stopping.is_set() and self._sending.is_set():
            if len(self._producer) < 100:
                self._producer.produce(self._topic, b"%d" % sent, on_delivery=delivered,
                                       partition=sent % self._partitions)
                sent += 1
            self._producer.poll(0.01)
        self._producer.flush(30)

    def _read(self) -> None:
        if self._group is None:
            self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        else:
            self._consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            for message in self._consumer.consume(100, timeout=0.05):
                if message.error() is None:
                    self.read.append(time.monotonic())
                    self.values.append(message.value() or b"")

    def finish(self) -> None:
        """Send no more, and wait until everything acknowledged was read."""
        self._sending.clear()
        self._threads[0].join(60)
        deadline = time.monotonic() + SETTLE_SECONDS
        while not set(self.acknowledged) <= set(self.values) and time.monotonic() < deadline:
            time.sleep(0.1)

    def pauses(self, since: float) -> tuple[float, float]:
        """The longest time after `since` without an acknowledgement, and without a record."""
        return longest_gap(self.written, since), longest_gap(self.read, since)

    def settle(self, killed: float) -> tuple[float, float]:
        """Wait until both have gone on for a second, and give their pauses."""
        deadline = killed + SETTLE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = time.monotonic()
            lively = [sum(at > now - 1 for at in list(times))
                      for times in (self.written, self.read)]
            if min(lively) > 20 and now - killed > 2 * PAUSE_SECONDS_MAX / 3 + 1:
                break
        return self.pauses(killed)


def longest_gap(times: list[float], since: float) -> float:
    times = [since, *(at for at in list(times) if at > since), time.monotonic()]
    return max(later - earlier for earlier, later in pairwise(times))


def kill_each_part(cluster: RunningCluster, clients: StockClients, rounds: int = 1) -> list[float]:
    """Kill head, middle and tail in turn; every pause, of writes and of reads."""
    pauses = []
    for _ in range(rounds):
        for place, part in enumerate(PARTS):
            cluster.await_serving("a")
            time.sleep(1)
            victim = list(cluster.states("a"))[place]
            role = "controller" if cluster.controller() == victim else "no controller"
            killed = time.monotonic()
            cluster[victim].kill()
            write, read = clients.settle(killed)
            print(f"{part:6} {role:13} writes {write:.2f} s  reads {read:.2f} s", flush=True)
            pauses += [write, read]
            cluster[victim].start()
    cluster.await_serving("a")
    return pauses


class Clients(Protocol):
    """A writer and a reader that note when they got something done."""

    def settle(self, killed: float) -> tuple[float, float]:
        """Wait until both go on, and give how long writes and reads stood still."""
        ...


def kill_each_node(cluster: RunningCluster, clients: Clients) -> list[float]:
    """Kill a-0, a-1 and a-2, each after the one before is back; every pause."""
    pauses = []
    for victim in cluster.chains["a"]:
        cluster.await_serving("a")
        time.sleep(1)
        part = PARTS[list(cluster.states("a")).index(victim)]
        role = "controller" if cluster.controller() == victim else "no controller"
        killed = time.monotonic()
        cluster[victim].kill()
        write, read = clients.settle(killed)
        print(f"{victim} {part:6} {role:13} writes {write:.2f} s  reads {read:.2f} s", flush=True)
        pauses += [write, read]
        cluster[victim].start()
    cluster.await_serving("a")
    return pauses


@pytest.mark.timeout(240)
def test_any_node_may_be_killed_and_clients_go_on(tmp_path: Path) -> None:
    """V5, V21, K1: what the README says.  Default settings, a stock producer on all partitions and
    a stock consumer of a group; each node is killed once, and started again before the next.
    Every acknowledged record is read, once.
    """
    with RunningCluster(tmp_path, patient=True) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        with StockClients(cluster, partitions=PARTITIONS, group="readers") as clients:
            pauses = kill_each_node(cluster, clients)
            clients.finish()
        print(f"longest pause {max(pauses):.2f} s; {len(clients.written)} records", flush=True)
        assert max(pauses) < PAUSE_SECONDS_MAX + BUSY_SECONDS, f"{pauses}{cluster.logs()}"
        assert sorted(clients.acknowledged) == sorted(set(clients.acknowledged))
        assert set(clients.acknowledged) <= set(clients.values)


@pytest.mark.timeout(180)
def test_a_killed_node_is_replaced_within_three_seconds(tmp_path: Path) -> None:
    """V5, V21: its connections close at once, so nobody waits for its session, only its lease."""
    with RunningCluster(tmp_path, patient=True) as cluster:
        cluster.create_topic(TOPIC)
        with StockClients(cluster) as clients:
            pauses = kill_each_part(cluster, clients)
        assert max(pauses) < PAUSE_SECONDS_MAX + BUSY_SECONDS, f"{pauses}{cluster.logs()}"


@pytest.mark.timeout(120)
def test_writes_that_need_every_node_go_on_soon_after_it_is_back(tmp_path: Path) -> None:
    """V5, V16: with the strict rule writes wait for the node; it is started again at once."""
    with RunningCluster(tmp_path, patient=True) as cluster:
        cluster.create_topic(TOPIC, min_insync_replicas="0")
        with StockClients(cluster) as clients:
            pauses = []
            for place, part in enumerate(PARTS):
                time.sleep(1)
                victim = list(cluster.states("a"))[place]
                killed = time.monotonic()
                cluster[victim].kill()
                cluster[victim].start()
                write, _ = clients.settle(killed)
                print(f"{part:6} writes {write:.2f} s", flush=True)
                pauses.append(write)
                cluster.await_serving("a")
        assert max(pauses) < PAUSE_SECONDS_MAX + BUSY_SECONDS, f"{pauses}{cluster.logs()}"


@pytest.mark.timeout(120)
def test_an_isolated_node_is_replaced_within_its_session_and_a_second(tmp_path: Path) -> None:
    """V5, V15: no connection closes, so only missing heartbeats show it."""
    with RunningCluster(tmp_path, patient=True, proxied=True) as cluster:
        cluster.create_topic(TOPIC)
        assert cluster.proxy is not None
        with StockClients(cluster) as clients:
            time.sleep(2)
            victim = list(cluster.states("a"))[1]
            cut = time.monotonic()
            cluster.proxy.part([cluster.node_id(victim)])
            write, _ = clients.settle(cut)
            print(f"writes {write:.2f} s")
            cluster.proxy.heal()
        assert write < SESSION_SECONDS + 1 + BUSY_SECONDS, f"{write}{cluster.logs()}"


def main(rounds: int) -> None:
    with (tempfile.TemporaryDirectory() as directory,
          RunningCluster(Path(directory), patient=True) as cluster):
        cluster.create_topic(TOPIC)
        with StockClients(cluster) as clients:
            pauses = kill_each_part(cluster, clients, rounds)
    print(f"longest {max(pauses):.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
