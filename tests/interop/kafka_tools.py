"""Runs Kafka's own command line tools, as their scripts do: a class of the jars, in a JVM."""

import subprocess
from pathlib import Path

SECONDS_MAX = 60.0
CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-reassign-partitions":
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m",
               "-Dlog4j2.level=ERROR")


class KafkaTools:
    """The tools, on one cluster."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self._jars = jars
        self._bootstrap = bootstrap

    def run(self, tool: str, *words: str) -> str:
        """What a tool prints on its standard output; AssertionError unless it succeeds."""
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
