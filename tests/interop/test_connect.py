"""Kafka Connect's file connectors, on Kafka and on Quipu."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.processes import LineProcess
from tests.harness.progress import wait_for
from tests.interop.brokers import Broker
from tests.interop.connect import STANDALONE, start, write_properties

pytestmark = pytest.mark.interop


@contextmanager
def connect(broker: Broker, jars: Path, topic: str, scratch: Path) -> Iterator[LineProcess]:
    """A worker that copies lines of a file to a topic, and from there to another file."""
    worker = write_properties(scratch / "worker.properties", {
        "bootstrap.servers": broker.bootstrap, "offset.flush.interval.ms": "200",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": str(scratch / "offsets"),
        "plugin.discovery": "service_load", "listeners": "http://127.0.0.1:0",
        "consumer.session.timeout.ms": "2000", "consumer.heartbeat.interval.ms": "300"})
    source = write_properties(scratch / "source.properties", {
        "name": f"source-{topic}", "connector.class": "FileStreamSource",
        "file": str(scratch / "in.txt"), "topic": topic})
    sink = write_properties(scratch / "sink.properties", {
        "name": f"sink-{topic}", "connector.class": "FileStreamSink",
        "file": str(scratch / "out.txt"), "topics": topic})
    process = start(jars, STANDALONE, worker, source, sink)
    try:
        yield process
    finally:
        process.terminate(60)


def test_connect_copies_a_file_by_way_of_a_topic(
    broker: Broker, topic: str, kafka_jars: Path, tmp_path: Path
) -> None:
    """K1, K2, K3: lines of a file come to another file by way of a topic, which Connect creates; a
    worker that is started again goes on where the one before was, at both ends.
    """
    lines = [f"line {number}" for number in range(100)]
    given, made = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("".join(f"{line}\n" for line in lines[:60]))

    def written() -> list[str]:
        return made.read_text().splitlines() if made.exists() else []

    with connect(broker, kafka_jars, topic, tmp_path) as worker:
        wait_for(lambda: len(written()) >= 60, progress=lambda: len(written()), what=worker.tail)
    with given.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[60:]))
    with connect(broker, kafka_jars, topic, tmp_path) as worker:
        wait_for(lambda: len(written()) >= 100, progress=lambda: len(written()), what=worker.tail)

    assert written() == lines
    shown = broker.tools.run("kafka-consumer-groups", "--describe", "--group",
                             f"connect-sink-{topic}", "--offsets")
    assert topic in shown, shown
