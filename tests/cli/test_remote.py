"""`quipu remote` and the tiers in `quipu topic describe`, against a real node."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from quipu.cli.remote import human_age, human_size
from quipu.client.admin.remote import describe_remote
from quipu.client.cluster import Cluster
from quipu.client.settings import client_settings
from quipu.model.ids import TopicPartition
from tests.harness.command import Result, run_quipu
from tests.harness.node import RunningNode

RECORDS = 60
SECONDS_MAX = 60.0
SETTINGS = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "100"}
pytestmark = pytest.mark.xdist_group("cli-remote")  # one node serves them all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a remote tier, and a topic `tiered` most of which is only there."""
    directory = tmp_path_factory.mktemp("cli-remote") / "data"
    with RunningNode(directory, settings=SETTINGS) as running:
        quipu(running, "topic", "create", "plain")
        fill(running, "tiered", partitions=2)
        yield running


def quipu(node: RunningNode, *words: str) -> Result:
    return run_quipu(*words, "--bootstrap", node.bootstrap)


def fill(node: RunningNode, topic: str, partitions: int = 1) -> None:
    """Create a topic whose partition 0 has more records than may stay on the disk."""
    made = quipu(node, "topic", "create", topic, "--partitions", str(partitions),
                 "-c", "remote.storage.enable=true", "-c", "segment.bytes=16384",
                 "-c", "local.retention.bytes=16384")
    assert made.code == 0, made
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 1})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(3000), partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    deadline = time.monotonic() + SECONDS_MAX
    while described(node, topic)["local_start"] <= RECORDS // 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def described(node: RunningNode, topic: str) -> dict[str, Any]:
    """Partition 0 as `quipu topic describe` shows it."""
    found: dict[str, Any] = json.loads(
        quipu(node, "topic", "describe", topic, "--json").out)["partitions"][0]
    return found


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def objects(node: RunningNode, topic: str) -> list[Path]:
    """The files of a topic's segments, by start offset."""
    keys = {row["object"] for row in rows(quipu(node, "remote", "list", topic, "--json"))}
    return [node.directory / "remote" / key.replace("/", "~/") for key in sorted(keys)]


def test_segments_are_listed(node: RunningNode) -> None:
    """R13: a table for people, JSON with everything for programs."""
    listed = quipu(node, "remote", "list", "tiered", "-p", "0")
    assert listed.code == 0, listed
    head, first, *_ = listed.out.splitlines()
    assert head.split() == [
        "TOPIC", "PARTITION", "START", "END", "STATE", "SIZE", "EPOCHS", "AGE", "OBJECT"]
    assert re.match(r"tiered +0 +0 +\d+ +copied +\d+\.\d KiB +1 +\d+s +[0-9a-f-]{36}/0/0", first)
    whole = rows(quipu(node, "remote", "list", "--json"))
    assert len(whole) == len(listed.out.splitlines()) - 1
    assert whole[0].items() >= {
        "topic": "tiered", "partition": 0, "start": 0, "state": "copied", "epochs": [1],
        "storage": f"file://{node.directory}/remote"}.items()
    with Cluster(client_settings({"bootstrap.servers": node.bootstrap})) as cluster:
        paged = describe_remote(cluster, TopicPartition("tiered", 0), page_segments=2)
    assert [str(each.segment_id.id) for each in paged.segments] == [row["id"] for row in whole]
    assert quipu(node, "remote", "list", "tiered", "-p", "1").err == (
        "nothing is in the remote tier yet\n")


def test_a_topic_is_described_with_both_tiers(node: RunningNode) -> None:
    """R13: what is local, what is copied, and the bytes of both; nothing of it without a tier."""
    tiers = described(node, "tiered")
    assert 0 == tiers["start"] < tiers["local_start"] <= tiers["tiered"] <= tiers["end"] == RECORDS
    assert 0 < tiers["local_bytes"] < RECORDS * 3000 / 2 < tiers["remote_bytes"]
    shown = quipu(node, "topic", "describe", "tiered").out.splitlines()[1]
    assert shown.endswith("LOCAL START  TIERED  LOCAL BYTES  REMOTE BYTES")
    assert "local_start" not in described(node, "plain")
    assert "REMOTE" not in quipu(node, "topic", "describe", "plain").out


def test_what_is_intact_is_verified(node: RunningNode) -> None:
    """R15: every byte of every segment; exit code 0."""
    result = quipu(node, "remote", "verify", "tiered")
    assert (result.code, result.out) == (0, "")
    assert re.fullmatch(
        r"\d+ segments of \d+\.\d KiB are intact; nothing is wrong\n", result.err)
    (told,) = rows(quipu(node, "remote", "verify", "tiered", "--json"))
    assert told["verified"] == len(objects(node, "tiered"))
    assert told["bytes"] == sum(path.stat().st_size for path in objects(node, "tiered"))


def test_damage_and_loss_are_found(node: RunningNode) -> None:
    """R15: a changed byte, a lost object and an orphan are told apart; exit code 1."""
    fill(node, "hurt")
    damaged, lost, copied, *_ = objects(node, "hurt")
    damaged.write_bytes(bytes(byte ^ (at == 500) for at, byte in enumerate(damaged.read_bytes())))
    lost.unlink()
    name = copied.name[:21]
    shutil.copy(copied, copied.with_name(f"{name}{uuid4()}.log"))
    gone = node.directory / "remote" / f"{uuid4()}~" / "0~" / copied.name
    gone.parent.mkdir(parents=True)
    shutil.copy(copied, gone)

    result = quipu(node, "remote", "verify", "--json")
    *findings, told = rows(result)
    assert result.code == 1
    assert [(each["finding"], each["topic"], each["start"]) for each in findings] == [
        ("damaged", "hurt", int(damaged.name[:20])), ("missing", "hurt", int(lost.name[:20])),
        ("orphan", "hurt", int(name[:20])), ("orphan", "", int(name[:20]))]
    assert {key: told[key] for key in ("damaged", "missing", "gap", "orphan")} == {
        "damaged": 1, "missing": 1, "gap": 0, "orphan": 2}
    shown = quipu(node, "remote", "verify", "hurt")
    assert shown.code == 1
    assert "a chunk with a bad checksum" in shown.out
    assert shown.err.endswith("1 damaged, 1 missing, 1 orphan\n")


def test_mistakes_are_told(node: RunningNode, tmp_path: Path) -> None:
    """R15: a topic without a tier, a partition without a topic, a store that is elsewhere."""
    plain = quipu(node, "remote", "list", "plain")
    assert (plain.code, "has no remote tier; `quipu topic alter plain" in plain.err) == (1, True)
    assert quipu(node, "remote", "list", "-p", "1").code == 2
    assert "did you mean tiered?" in quipu(node, "remote", "verify", "tierd").err
    elsewhere = quipu(node, "remote", "verify", "tiered", "--storage", f"file://{tmp_path}/none")
    assert (elsewhere.code, "is not on this machine" in elsewhere.err) == (1, True)
    assert not (tmp_path / "none").exists()
    empty = quipu(node, "remote", "verify", "tiered", "--storage", f"file://{tmp_path}", "--json")
    assert {row.get("finding") for row in rows(empty)} == {"missing", None}


def test_sizes_and_ages() -> None:
    assert [human_size(size) for size in (0, 1023, 1024, 1 << 20, 5 << 40, 5 << 50)] == [
        "0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.0 TiB", "5120.0 TiB"]
    assert [human_age(age) for age in (0, 119, 120, 7200, 172_800)] == [
        "0s", "119s", "2m", "2h", "2d"]
