"""`kill -9` at random moments under load: what was acknowledged is there, in order, once.

The moments are drawn from a seed, so a failure can be looked at again; KILL_ROUNDS and KILL_SEED
let `make soak` run longer and elsewhere.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.harness.node import RunningNode, environment
from tests.kill.load import Load, create_topic, read_all

ROUNDS = int(os.environ.get("KILL_ROUNDS", "20"))
SEED = int(os.environ.get("KILL_SEED", "20"))
LOAD_SECONDS = (0.02, 0.3)  # between a start and the kill
SMALL_SEGMENTS = {"segment.bytes": "65536"}  # so that some kills fall on the start of a segment
FLUSH_EACH = {"flush.messages": "1", **SMALL_SEGMENTS}
FLUSH_NEVER = {"flush.messages": str(2**63 - 1), "flush.ms": str(2**63 - 1), **SMALL_SEGMENTS}


def log_tool_findings(directory: Path) -> str:
    """What `quipu log show` finds wrong; nothing if all is well."""
    command = [sys.executable, "-m", "quipu", "log", "show", str(directory)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout[-4000:] + done.stderr


@pytest.mark.timeout(60 + 6 * ROUNDS)
@pytest.mark.parametrize("configs", [FLUSH_EACH, FLUSH_NEVER], ids=["fsync on", "fsync off"])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, configs: dict[str, str]) -> None:
    """K10, T12, V17: every acknowledged record is there, in order, once; with fsync off this is
    promised for the death of the process, though not of the machine.
    """
    rng = random.Random(SEED)
    with RunningNode(tmp_path / "data") as node:
        create_topic(node.bootstrap, "load", configs)
        load = Load(node.bootstrap, "load", rng)
        for _ in range(ROUNDS):
            load.run(rng.uniform(*LOAD_SECONDS))
            node.kill()
            load.run(rng.uniform(0.0, 0.02))  # it goes on while the node is down
            node.start()
        load.run(0.2)
        load.finish()
        anomalies = load.anomalies(read_all(node.bootstrap, "load"))
        assert node.stop() == 0

    print(f"{load.acknowledged} values acknowledged over {ROUNDS} kills, seed {SEED}")
    assert anomalies == [], f"seed {SEED}: {len(anomalies)}, such as {anomalies[:5]}"
    assert load.acknowledged > 10 * ROUNDS
    assert log_tool_findings(node.directory) == ""


def test_a_dead_nodes_log_is_sound_before_it_is_repaired(tmp_path: Path) -> None:
    """T9, T12: the log tool reads the directory that a killed node left, with no node running."""
    rng = random.Random(SEED)
    with RunningNode(tmp_path / "data") as node:
        create_topic(node.bootstrap, "load", FLUSH_EACH)
        load = Load(node.bootstrap, "load", rng)
        load.run(0.5)
        node.kill()
        assert log_tool_findings(node.directory) == ""
        node.start()
        load.finish()


def test_topics_configs_and_offsets_survive_kill_9(tmp_path: Path) -> None:
    """K3, K5, T7: what the node said was done is done, though it died at that very moment."""
    with RunningNode(tmp_path / "data") as node:
        for number in range(5):
            topic, group = f"topic-{number}", f"group-{number}"
            create_topic(node.bootstrap, topic, {"retention.ms": "1000000"})
            set_config(node.bootstrap, topic, "max.message.bytes", str(500_000 + number))
            commit(node.bootstrap, group, topic, 40 + number)
            node.kill()
            node.start()
            for earlier in range(number + 1):
                topic, group = f"topic-{earlier}", f"group-{earlier}"
                configs = described(node.bootstrap, topic)
                assert configs["retention.ms"] == "1000000"
                assert configs["max.message.bytes"] == str(500_000 + earlier)
                assert committed(node.bootstrap, group, topic) == 40 + earlier


def test_deleted_topics_stay_deleted(tmp_path: Path) -> None:
    """K5, T7: a topic whose deletion was acknowledged does not come back after `kill -9`."""
    with RunningNode(tmp_path / "data") as node:
        create_topic(node.bootstrap, "gone", {})
        create_topic(node.bootstrap, "kept", {})
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.delete_topics(["gone"])["gone"].result(30)
        node.kill()
        node.start()

        names = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=10).topics
        assert set(names) == {"kept"}


def test_a_clean_restart_costs_clients_only_retries(tmp_path: Path) -> None:
    """K10: a node that is stopped and started under load loses nothing and repeats nothing."""
    rng = random.Random(SEED)
    with RunningNode(tmp_path / "data") as node:
        create_topic(node.bootstrap, "load", {})
        load = Load(node.bootstrap, "load", rng)
        for _ in range(3):
            load.run(0.3)
            node.restart()
        load.run(0.2)
        load.finish()

        assert load.anomalies(read_all(node.bootstrap, "load")) == []


def set_config(bootstrap: str, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def described(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items()}


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    done = consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    assert [each.error for each in done] == [None]
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    return int(found.offset)
