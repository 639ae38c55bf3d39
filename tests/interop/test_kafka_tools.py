"""Kafka's own command line tools on a topic with a remote tier.

They are started a few times only: each start of a JVM takes a second or two.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.harness.command import run_quipu
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.interop.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop

RECORDS = 300
VALUE_SIZE = 20_000
SEGMENT_BYTES = 1 << 20  # the least that kafka-topics lets pass
SETTINGS = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "100"}


@pytest.fixture(scope="module")
def node(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("tools") / "data", settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def tools(kafka_jars: Path, node: RunningNode) -> KafkaTools:
    return KafkaTools(kafka_jars, node.bootstrap)


def described(node: RunningNode) -> dict[str, Any]:
    """Partition 0 as `quipu topic describe` shows it."""
    shown = run_quipu("topic", "describe", "tiered", "--json", "--bootstrap", node.bootstrap)
    found: dict[str, Any] = json.loads(shown.out)["partitions"][0]
    return found


def produce(node: RunningNode) -> list[str]:
    """Fill the topic with more than may stay on the disk; wait until most of it is in the tier."""
    values = [f"{number:05d}-" + "x" * VALUE_SIZE for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 5})
    for value in values:
        producer.produce("tiered", value, partition=0)
    assert producer.flush(60) == 0
    wait_for(lambda: described(node)["local_start"] > RECORDS // 2, pause=0.2)
    return values


@pytest.mark.timeout(240)
def test_the_tools_on_a_topic_with_a_tier(
    node: RunningNode, tools: KafkaTools, tmp_path: Path
) -> None:
    """K1, R13: the topic is created, filled, configured, asked for its offsets in both tiers, read
    from its beginning, and cut within the tier; the tools say what `quipu` says.
    """
    tools.run("kafka-topics", "--create", "--topic", "tiered", "--partitions", "1",
              "--config", "remote.storage.enable=true",
              "--config", f"segment.bytes={SEGMENT_BYTES}",
              "--config", f"local.retention.bytes={SEGMENT_BYTES}")
    values = produce(node)

    common = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES)}
    assert altered(tools, {"local.retention.ms": "3600000"}) == {
        **common, "local.retention.bytes": str(SEGMENT_BYTES), "local.retention.ms": "3600000"}
    disabled = {"remote.log.copy.disable": "true", "local.retention.ms": "-2",
                "local.retention.bytes": "-2"}
    assert altered(tools, disabled) == {**common, **disabled}

    tier = described(node)  # nothing moves any more: copying is disabled
    assert 0 == tier["start"] < tier["local_start"] <= tier["tiered"] < tier["end"] == RECORDS
    assert {time: tools.offset("tiered", time) for time in (
        "earliest", "latest", "earliest-local", "latest-tiered", "earliest-pending-upload")} == {
        "earliest": (0, 0), "latest": (0, RECORDS),
        "earliest-local": (0, tier["local_start"]), "latest-tiered": (0, tier["tiered"] - 1),
        "earliest-pending-upload": (0, tier["tiered"])}

    read = tools.run("kafka-console-consumer", "--topic", "tiered", "--from-beginning",
                     "--max-messages", str(RECORDS), "--timeout-ms", "30000")
    assert read.splitlines() == values

    assert cut(tools, tmp_path / "delete.json", 37) == 37
    assert tools.offset("tiered", "earliest") == (0, described(node)["start"]) == (0, 37)
    read = tools.run("kafka-console-consumer", "--topic", "tiered", "--from-beginning",
                     "--max-messages", "1", "--timeout-ms", "30000")
    assert read.splitlines() == values[37:38]


def altered(tools: KafkaTools, changes: dict[str, str]) -> dict[str, str]:
    """Change the topic's settings by kafka-configs; those that are set, as it describes them."""
    which = ("--entity-type", "topics", "--entity-name", "tiered")
    tools.run("kafka-configs", "--alter", *which, "--add-config",
              ",".join(f"{name}={value}" for name, value in changes.items()))
    shown = tools.run("kafka-configs", "--describe", *which)
    return dict(re.findall(r"^  (\S+)=(\S*) sensitive=false", shown, re.MULTILINE))


def cut(tools: KafkaTools, path: Path, offset: int) -> int:
    """Delete the records before an offset by kafka-delete-records; the start that it reports."""
    path.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "tiered", "partition": 0, "offset": offset}]}))
    shown = tools.run("kafka-delete-records", "--offset-json-file", str(path))
    found = re.search(r"partition: tiered-0\s+low_watermark: (\d+)", shown)
    assert found is not None, shown
    return int(found[1])
