"""How long Kafka's own Java clients wait when a node is killed, with default settings."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cluster.test_failover import (
    BUSY_SECONDS,
    PAUSE_SECONDS_MAX,
    SETTLE_SECONDS,
    TOPIC,
    kill_each_node,
    longest_gap,
)
from tests.harness.cluster import RunningCluster
from tests.interop.kafka_tools import QUICK_START

pytestmark = pytest.mark.interop

RECORDS_PER_SECOND = 200
START_SECONDS_MAX = 60.0


class JavaClient:
    """A tool of Kafka that reports each thing that it does as a line of JSON."""

    def __init__(self, jars: Path, tool: str, *words: str) -> None:
        self._process = subprocess.Popen(
            ["java", *QUICK_START, "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.events: list[tuple[float, dict[str, Any]]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append((time.monotonic(), json.loads(line)))

    def times(self, name: str) -> list[float]:
        """When events of this name came."""
        return [at for at, event in list(self.events) if event.get("name") == name]

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._reader.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class JavaClients:
    """A producer with the default settings of Java's, and a consumer of a group."""

    def __init__(self, jars: Path, cluster: RunningCluster, directory: Path) -> None:
        config = directory / "producer.properties"
        config.write_text("retries=2147483647\n")  # Java's default; the tool has none otherwise
        self._clients: list[JavaClient] = []
        self._start: list[Callable[[], JavaClient]] = [
            lambda: JavaClient(jars, "VerifiableProducer", "--bootstrap-server", cluster.bootstrap,
                               "--topic", TOPIC, "--throughput", str(RECORDS_PER_SECOND),
                               "--command-config", str(config)),
            lambda: JavaClient(jars, "VerifiableConsumer", "--bootstrap-server", cluster.bootstrap,
                               "--topic", TOPIC, "--group-id", "java", "--max-messages", "-1")]

    def __enter__(self) -> Self:
        for start in self._start:
            self._clients.append(start())
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (self.written and self.read):
            assert time.monotonic() < deadline, [each.events for each in self._clients]
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.end()

    @property
    def written(self) -> list[float]:
        return self._clients[0].times("producer_send_success")

    @property
    def read(self) -> list[float]:
        return self._clients[1].times("records_consumed")

    @property
    def failed(self) -> list[float]:
        return self._clients[0].times("producer_send_error")

    def settle(self, killed: float) -> tuple[float, float]:
        """Wait until both have gone on for a second, and give their pauses."""
        deadline = killed + SETTLE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.2)
            now = time.monotonic()
            lively = [sum(at > now - 1 for at in times) for times in (self.written, self.read)]
            if min(lively) > 2 and now - killed > PAUSE_SECONDS_MAX:
                break
        return longest_gap(self.written, killed), longest_gap(self.read, killed)


@pytest.mark.timeout(300)
def test_java_clients_go_on_when_any_node_is_killed(kafka_jars: Path, tmp_path: Path) -> None:
    """K1, V5, V21: three nodes, each killed once and started again before the next; nothing that
    the producer sent fails.
    """
    with RunningCluster(tmp_path, patient=True) as cluster:
        cluster.create_topic(TOPIC, partitions=6)
        with JavaClients(kafka_jars, cluster, tmp_path) as clients:
            pauses = kill_each_node(cluster, clients)
            assert clients.failed == []
        print(f"longest pause {max(pauses):.2f} s", flush=True)
        assert max(pauses) < PAUSE_SECONDS_MAX + BUSY_SECONDS, f"{pauses}{cluster.logs()}"
