"""Kafka's own command line tools, as its scripts start them, on one cluster."""

import subprocess
from pathlib import Path

from tests.interop.java_driver import QUICK_START, SECONDS_MAX, JavaDriver, ProgramResult
from tests.interop.software import folder_of

TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "kafka-acls": f"{TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{TOOLS}.ClientMetricsCommand",
    "kafka-cluster": f"{TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": f"{TOOLS}.EndToEndLatency",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-groups": f"{TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": f"{TOOLS}.ReplicaVerificationTool",
    "kafka-streams-application-reset": f"{TOOLS}.StreamsResetter",
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
}
_shared: list[JavaDriver] = []


def shared_driver() -> JavaDriver:
    """The JVM that all tests of this process share; the test is skipped if there is none."""
    if not _shared:
        _shared.append(JavaDriver(folder_of("java") / "classes"))
    return _shared[0]


def end_shared_driver() -> None:
    """Kill the JVM, if one was started."""
    while _shared:
        _shared.pop().end()


class KafkaTools:
    """The tools, on one cluster."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self._jars = jars
        self._bootstrap = bootstrap

    def run(self, tool: str, *words: str, stdin: str = "") -> str:
        """What a tool prints on its standard output; AssertionError unless it succeeds."""
        done = self.attempt(tool, *words, stdin=stdin)
        assert done.code == 0, f"{tool} {words}: {done.out}\n{done.err}"
        return done.out

    def attempt(self, tool: str, *words: str, stdin: str = "") -> ProgramResult:
        """What becomes of a tool."""
        return self.program(tool, "--bootstrap-server", self._bootstrap, *words, stdin=stdin)

    def program(
        self, tool: str, *words: str, stdin: str = "", seconds_max: float = SECONDS_MAX
    ) -> ProgramResult:
        """What becomes of a tool that is not given the cluster's address."""
        return shared_driver().run([self._jars], CLASSES[tool], *words, stdin=stdin,
                                   seconds_max=seconds_max)

    def apart(self, tool: str, *words: str) -> str:
        """As `run`, in a JVM of its own: for tools that do their last work when that ends."""
        done = subprocess.run(
            ["java", *QUICK_START, "-cp", f"{self._jars}/*", CLASSES[tool],
             "--bootstrap-server", self._bootstrap, *words],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS_MAX,
            check=False)
        assert done.returncode == 0, f"{tool} {words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def offset(self, topic: str, time: str) -> tuple[int, int] | None:
        """The partition and offset that `kafka-get-offsets --time` prints; None if it has none."""
        shown = self.run("kafka-get-offsets", "--topic", topic, "--time", time).split()
        if not shown:
            return None
        (line,) = shown
        name, partition, offset = line.split(":")
        assert name == topic
        return (int(partition), int(offset)) if offset else None
