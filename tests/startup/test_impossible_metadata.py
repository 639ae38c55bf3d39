"""Metadata that no request could have made: a node starts with it, and serves all that can be."""

import contextlib
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from quipu.broker.cluster import ClusterDriver
from quipu.controller.conversions import chain_record
from quipu.controller.decision import Decision
from quipu.controller.records import (
    ConfigChanged,
    ConfigRecord,
    PartitionDetached,
    PartitionRecord,
    PartitionRun,
    PartitionsAdded,
    PartitionsMoved,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.model.errors import Code
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.clock import SystemClock
from quipu.runtime.disks.disk import RealDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.directory_names import directory_name
from quipu.wire.messages.k00_produce import ProduceResponse
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import PRODUCE_VERSION, produce_request
from tests.looped import looped

GOOD = "good"
CHAIN = "quipu"


def topic(number: int, name: str, *, chain: str = CHAIN, count: int = 1,
          configs: dict[str, str] | None = None) -> TopicCreated:
    return TopicCreated(
        name=name, topic_id=UUID(int=number),
        configs=[ConfigRecord(name=key, value=value) for key, value in (configs or {}).items()],
        runs=[PartitionRun(count=count, chain=chain)])


IMPOSSIBLE_NAMES = [".x", "..", ".", "a/b", "../../outside", "a\0b", "n" * 249, "n" * 30_000,
                    "\U0001f9f6", "a b", "__node", "__cluster", ".lock", "-", "a-0", "x\n"]
CASES: dict[str, Callable[[], list[Record]]] = {
    "impossible names": lambda: [
        topic(1000 + number, name) for number, name in enumerate(IMPOSSIBLE_NAMES)],
    "an empty name": lambda: [topic(1, "")],
    "names that clash": lambda: [topic(1, "a.b"), topic(2, "a_b"), TopicDeleted(
        topic_id=UUID(int=1)), TopicDeleted(topic_id=UUID(int=2)), topic(3, "a.b")],
    "a name twice": lambda: [topic(1, "t"), topic(2, "t"), TopicDeleted(topic_id=UUID(int=2))],
    "an id twice": lambda: [topic(1, "t"), topic(1, "u")],
    "no id": lambda: [topic(0, "t")],
    "no partitions": lambda: [TopicCreated(name="t", topic_id=UUID(int=1))],
    "fewer than none": lambda: [topic(1, "t", count=-5)],
    "a chain that is not": lambda: [topic(1, "t", chain="nowhere")],
    "partitions of nobody": lambda: [TopicCreated(
        name="t", topic_id=UUID(int=1), partitions=[PartitionRecord(leader=9)])],
    "partitions of an older version": lambda: [TopicCreated(
        name="of no chain", topic_id=UUID(int=1), partitions=[PartitionRecord(
            replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0)])],
    "odd settings": lambda: [topic(1, "t", configs={
        "segment.bytes": "14", "retention.ms": "x", "flush.messages": "-7", "no.such": "1",
        "cleanup.policy": "perhaps", "min.insync.replicas": "-3", "max.message.bytes": "1e9"})],
    "settings of nothing": lambda: [
        ConfigChanged(resource_type=2, resource_name="none", name="segment.bytes", value="1"),
        ConfigChanged(resource_type=99, resource_name="", name="a", value="b"),
        ConfigChanged(resource_type=4, resource_name="77", name="num.partitions", value="-3")],
    "about topics that are not": lambda: [
        TopicDeleted(topic_id=UUID(int=9)),
        PartitionsAdded(topic_id=UUID(int=9), runs=[PartitionRun(count=1, chain=CHAIN)]),
        PartitionsMoved(topic_id=UUID(int=9), partitions=[0], chain=CHAIN),
        PartitionDetached(topic_id=UUID(int=9), partition=0)],
    "about partitions that are not": lambda: [
        topic(1, "t"),
        PartitionsMoved(topic_id=UUID(int=1), partitions=[7, -1], chain=CHAIN, version=99),
        PartitionDetached(topic_id=UUID(int=1), partition=4)],
}


async def write_metadata(directory: Path, records: list[Record]) -> None:
    """A good topic, then `records`, as a node that is alone keeps them."""
    settings = broker_settings(from_assignments([f"log.dirs={directory}"]))
    data = DataDirectory.open(RealDisk(), str(directory), SystemClock(), node_id=settings.own_id)
    cluster = await ClusterDriver.open(data, settings, SystemClock(), SeededRng(1),
                                 host="127.0.0.1", port=9092)
    assert chain_record(cluster.state.chains[CHAIN])
    for record in [topic(500, GOOD), *records]:
        await cluster.controller._run(lambda record=record: Decision([record], []))
    await cluster.stop()
    data.close()


def served(node: RunningNode, name: str) -> int:
    """Produce one record; the error that it is answered with."""
    with contextlib.closing(RawConnection(node.host, node.port)) as connection:
        answer = connection.ask(produce_request(name, b"x"), PRODUCE_VERSION)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES)
@looped
async def test_a_node_starts_with_any_metadata(tmp_path: Path, case: str) -> None:
    """K8, V13, broker.cluster.A4: again and again; what can be served is."""
    directory = tmp_path / "data"
    await write_metadata(directory, CASES[case]())
    with RunningNode(directory) as node:
        for _ in range(2):
            assert served(node, GOOD) == Code.NONE
            with contextlib.closing(RawConnection(node.host, node.port)) as connection:
                answer = connection.ask(MetadataRequest(topics=None), 12)
            names = {each.name for each in answer.topics}
            assert GOOD in names
            for name in names & {"t", ".x", "n" * 249, "a/b", "a.b"}:
                assert served(node, name) == Code.NONE, name
            node.kill()
            node.start()
        assert node.stop() == 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "data.stderr"]


@pytest.mark.timeout(120)
@looped
async def test_logs_that_cannot_be_opened_fail_alone(tmp_path: Path) -> None:
    """V13, K8: named in the log, in health and in a metric; clients are told, and all other topics
    are served.  When what is wrong is put right, the partition is back without a restart.
    """
    directory = tmp_path / "data"
    await write_metadata(directory, [topic(1, "t"), topic(2, "u"), topic(3, "w")])
    blocked = directory / directory_name("t-0", UUID(int=1))
    blocked.write_bytes(b"a file in its place")
    groups = [directory / directory_name(f"u-{number}", UUID(int=2)) for number in range(1)]
    groups[0].mkdir()
    (groups[0] / f"{0:020d}.log").mkdir()
    with RunningNode(directory) as node:
        for _ in range(2):
            assert served(node, GOOD) == served(node, "w") == Code.NONE
            assert served(node, "t") == served(node, "u") == Code.KAFKA_STORAGE_ERROR
            assert "t-0" in http(node, "/health/ready")
            metrics = http(node, "/metrics")
            assert 'quipu_partition_failed{topic="t",partition="0"} 1' in metrics
            assert 'quipu_partition_failed{topic="u",partition="0"} 1' in metrics
            assert "quipu_partitions_failed 2" in metrics
            assert "quipu_ready 1" in metrics
            assert "t-0" in node.log_text()
            with contextlib.closing(RawConnection(node.host, node.port)) as connection:
                answer = connection.ask(MetadataRequest(
                    topics=[MetadataRequestTopic(name="t")]), 12)
                assert answer.topics[0].partitions[0].error_code == Code.LEADER_NOT_AVAILABLE
            node.restart()
        blocked.unlink()
        for _ in range(200):
            if served(node, "t") == Code.NONE:
                break
            time.sleep(0.1)
        assert served(node, "t") == Code.NONE
        assert served(node, "u") == Code.KAFKA_STORAGE_ERROR
        assert node.stop() == 0


def http(node: RunningNode, path: str) -> str:
    with urllib.request.urlopen(node.http + path, timeout=10) as answer:
        assert answer.status == 200
        return str(answer.read().decode())
