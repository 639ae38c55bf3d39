"""A real Apache Kafka on loopback: KRaft nodes, each a JVM of its own, from the jars of a folder.

    with KafkaCluster(jars, scratch) as kafka:          # one node; nodes=3 for three
        client = Producer({"bootstrap.servers": kafka.bootstrap})

Every node is broker and controller.  Factors of internal topics follow from the number of nodes,
all other settings are Kafka's own defaults unless `settings` has others.  The nodes are killed, by
their process ids, when the `with` block is left, and end with the thread that started them.
"""

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.harness.node import environment
from tests.harness.ports import hold_port
from tests.harness.processes import LineProcess
from tests.harness.progress import wait_for

FORMAT_SECONDS_MAX = 120.0
FORMATTER = "kafka.tools.StorageTool"
SERVER = "kafka.Kafka"
JVM_OPTIONS = ("-XX:+UseG1GC", "-Xshare:auto")
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel"


class KafkaCluster:
    """Kafka, while it is entered."""

    def __init__(
        self, jars: Path, scratch: Path, *, nodes: int = 1, heap: str = "512m",
        settings: Mapping[str, str] | None = None, racks: Sequence[str] = (),
    ) -> None:
        self._jars = jars
        self._scratch = scratch
        self._heap = heap
        self._settings = dict(settings or {})
        self._racks = racks
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.ports = {number: hold_port(self) for number in range(1, nodes + 1)}
        self._controller_ports = {number: hold_port(self) for number in self.ports}
        self._processes: dict[int, LineProcess] = {}

    @property
    def bootstrap(self) -> str:
        """All nodes, for a client's `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def log_dir(self, number: int = 1) -> Path:
        """Where a node keeps its partitions."""
        return self._scratch / f"kafka-{number}"

    def properties(self, number: int) -> dict[str, str]:
        """The settings of a node."""
        factor = str(min(3, len(self.ports)))
        least = str(max(1, min(3, len(self.ports)) - 1))
        own = {
            "process.roles": "broker,controller", "node.id": str(number),
            "controller.quorum.voters": ",".join(
                f"{each}@127.0.0.1:{port}" for each, port in self._controller_ports.items()),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]},"
                         f"CONTROLLER://127.0.0.1:{self._controller_ports[number]}",
            "controller.listener.names": "CONTROLLER", "log.dirs": str(self.log_dir(number)),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": least,
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": least,
        }
        if self._racks:
            own["broker.rack"] = self._racks[(number - 1) % len(self._racks)]
        return own | self._settings

    def start(self, number: int) -> None:
        """Start a node; its storage is formatted the first time.  Returns when it serves."""
        self.begin(number)
        self.wait_until_started(number)

    def begin(self, number: int) -> None:
        """Start a node, and do not wait for it."""
        path = self._scratch / f"kafka-{number}.properties"
        path.write_text("".join(f"{name}={value}\n"
                                for name, value in self.properties(number).items()))
        if not (self.log_dir(number) / "meta.properties").exists():
            done = subprocess.run(
                [*self._java(), FORMATTER, "format", f"--cluster-id={self.cluster_id}",
                 "-c", str(path)],
                capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                timeout=FORMAT_SECONDS_MAX)
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        self._processes[number] = LineProcess(
            [*self._java(), SERVER, str(path)], environment(), ends_with_parent=True)

    def wait_until_started(self, number: int) -> None:
        """Wait until a node serves; AssertionError if it ends instead."""
        process = self._processes[number]
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports[number]}",
                             "log_level": 0})

        def has_started() -> bool:
            assert process.runs, process.tail()
            with contextlib.suppress(KafkaException):
                return number in admin.list_topics(timeout=1).brokers
            return False

        wait_for(has_started, what=process.tail)

    def pid(self, number: int = 1) -> int:
        """The process id of a node."""
        return self._processes[number].pid

    def kill(self, number: int) -> None:
        """SIGKILL a node."""
        self._processes.pop(number).kill()

    def _java(self, level: str = "warn") -> list[str]:
        return ["java", *JVM_OPTIONS, f"-Xmx{self._heap}", f"{LOG_LEVEL}={level}",
                "-cp", f"{self._jars}/*"]

    def __enter__(self) -> Self:
        self._scratch.mkdir(parents=True, exist_ok=True)
        try:
            for number in self.ports:
                self.begin(number)
            for number in self.ports:
                self.wait_until_started(number)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for number in list(self._processes):
            self.kill(number)
