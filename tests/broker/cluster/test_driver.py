"""The driver: order, durability, and what happens when someone goes away in between."""

import asyncio
import base64
import dataclasses
import struct
from pathlib import Path

import pytest

from quipu.broker.cluster import LOG_NAME, ClusterDriver
from quipu.broker.quorum import QuorumConfig
from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigOperation, ConfigResource
from quipu.controller.records import UnknownRecord
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.model.errors import Code, CorruptLog, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.runtime.clock import ManualClock
from quipu.runtime.rng import SeededRng
from quipu.storage.directory.data_directory import DataDirectory
from tests.broker.clusters import (
    DISK,
    FollowedPartitions,
    MemoryLog,
    a_broker,
    a_cluster,
)
from tests.killed import killed
from tests.looped import looped


def set_to(kind: int, resource: str, name: str, value: str) -> list[ConfigAlteration]:
    return [ConfigAlteration(ConfigResource(kind, resource),
                             [ConfigChange(name, ConfigOperation.SET, value)])]


async def on_disk(path: Path) -> ClusterDriver:
    """A cluster of one on a real log, by way of a real quorum."""
    return await opened(DataDirectory.open(DISK, str(path), ManualClock()))


def left_behind(path: Path) -> Path:
    """A directory with what a kill of the node in `path`/a leaves of its metadata."""
    (path / "b").mkdir()
    killed(path / "a" / LOG_NAME, path / "b" / LOG_NAME)
    return path / "b"


def lasting(cluster: ClusterDriver) -> object:
    """What a restart does not change."""
    state = cluster.state
    topics = [(topic.name, topic.topic_id, dict(topic.configs),
               [partition.placement for partition in topic.partitions])
              for topic in state.topics.values()]
    return state.cluster_id, topics, state.broker_configs, state.next_producer_id


@looped
async def test_a_cluster_gets_its_id_once(tmp_path: Path) -> None:
    """K5: 22 characters like Kafka's, kept for good."""
    first = await on_disk(tmp_path / "a")
    again = await on_disk(left_behind(tmp_path))

    cluster_id = first.state.cluster_id
    assert len(cluster_id) == 22
    assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
    assert again.state.cluster_id == cluster_id


@looped
async def test_a_broker_that_moved_is_registered_anew() -> None:
    """K10: after a restart on another port clients are sent to the new one."""
    log = MemoryLog()
    first = await a_cluster(log=log)
    again = await a_cluster(log=log, seed=2, port=9093)

    assert again.state.brokers[again.node_id].port == 9093
    assert again.broker_epoch > first.broker_epoch
    assert again.state.is_part(again.node_id, again.incarnation)
    assert not again.state.is_part(again.node_id, first.incarnation)


@looped
async def test_a_node_that_is_alone_has_a_chain_and_an_endless_lease() -> None:
    """V2, broker.cluster.B6: one node, no replication: the same code with a chain of one."""
    log = MemoryLog()
    cluster = await a_cluster(log=log)
    await cluster.controller.create_topics([NewTopic("a", 2)])
    written = len(log.commands)

    again = await a_cluster(log=log, seed=2)

    assert cluster.lease_until == again.lease_until == float("inf")
    assert [chain.nodes for chain in again.state.chains.values()] == [(1,)]
    before, after = (each.state.topics["a"].partitions[0] for each in (cluster, again))
    assert (before.leader, after.leader) == (1, 1)
    assert after.leader_epoch > before.leader_epoch
    assert len(log.commands) == written + 2  # the process, and the chain's epoch, in one write


@looped
async def test_metadata_survives_a_kill(tmp_path: Path) -> None:
    """T7, K5, broker.cluster.A1: every change with a response is there again after a crash."""
    cluster = await on_disk(tmp_path / "a")
    await cluster.controller.create_topics(
        [NewTopic("a", 3, configs=[("retention.ms", "5")]), NewTopic("b")])
    await cluster.controller.create_partitions([NewPartitions("a", 4)])
    await cluster.controller.alter_configs(set_to(2, "a", "flush.ms", "7"))
    await cluster.controller.alter_configs(set_to(4, "", "log.retention.ms", "8"))
    await cluster.controller.delete_topics([("b", ZERO_UUID)])
    await cluster.next_producer_id()

    again = await on_disk(left_behind(tmp_path))

    assert lasting(again) == lasting(cluster)
    assert again.settings.log_retention_ms == 8
    assert await again.next_producer_id() == 1000  # the rest of the first block is lost


@looped
async def test_a_snapshot_takes_the_place_of_a_long_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7, broker.cluster.A2: the metadata log is bounded by the metadata, not by its history."""
    of = QuorumConfig.of
    monkeypatch.setattr(QuorumConfig, "of", lambda settings: dataclasses.replace(
        of(settings), snapshot_due_size=2000))
    cluster = await on_disk(tmp_path / "a")
    await cluster.controller.create_topics([NewTopic("a", 2)])
    for number in range(200):
        await cluster.controller.alter_configs(set_to(2, "a", "retention.ms", str(number + 1)))

    assert sum(file.stat().st_size for file in (tmp_path / "a" / LOG_NAME).glob("*.log")) < 10_000
    again = await on_disk(left_behind(tmp_path))
    assert lasting(again) == lasting(cluster)


@looped
async def test_nothing_is_visible_before_it_is_durable() -> None:
    """T7, K5, broker.cluster.M2: neither state nor listeners nor results run ahead of the log."""
    log, partitions, durable = MemoryLog(), FollowedPartitions(), asyncio.Event()
    cluster = await a_cluster(log=log)
    cluster.follow(partitions)

    async def wait() -> None:
        await durable.wait()

    log.before_append = wait
    creating = asyncio.ensure_future(cluster.controller.create_topics([NewTopic("a")]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not creating.done()
    assert cluster.state.topics == {}
    assert partitions.notifications == []

    durable.set()
    await creating

    assert partitions.notifications == [("created", "a", 1)]


@looped
async def test_a_decision_is_carried_out_though_its_client_has_gone() -> None:
    """T7, broker.cluster.M3: what is in the log is in the state, even if nobody waits for the
    answer.
    """
    log, durable = MemoryLog(), asyncio.Event()
    cluster = await a_cluster(log=log)

    async def wait() -> None:
        await durable.wait()

    log.before_append = wait
    creating = asyncio.ensure_future(cluster.controller.create_topics([NewTopic("a")]))
    await asyncio.sleep(0)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    durable.set()
    log.before_append = None

    await cluster.controller.create_topics([NewTopic("b")])

    assert list(cluster.state.topics) == ["a", "b"]


@looped
async def test_decisions_are_made_one_after_the_other() -> None:
    """K5, broker.cluster.M1: clients that create one topic at once get one topic and one error."""
    cluster = await a_cluster()

    responses = await asyncio.gather(
        *(cluster.controller.create_topics([NewTopic("a")]) for _ in range(5)))

    codes = sorted(response.code for (response,) in responses)
    assert codes == [Code.NONE, *[Code.TOPIC_ALREADY_EXISTS] * 4]


@looped
async def test_a_failed_write_changes_nothing() -> None:
    """T7: the client gets an error, the state stays, and the next decision may succeed."""
    log = MemoryLog()
    cluster = await a_cluster(log=log)

    async def fail() -> None:
        raise QuipuError("disk full", code=Code.KAFKA_STORAGE_ERROR)

    log.before_append = fail
    with pytest.raises(QuipuError, match="disk full"):
        await cluster.controller.create_topics([NewTopic("a")])
    assert cluster.state.topics == {}
    log.before_append = None

    (response,) = await cluster.controller.create_topics([NewTopic("a")])

    assert response.code is Code.NONE


@looped
async def test_validate_only_writes_nothing() -> None:
    log = MemoryLog()
    cluster = await a_cluster(log=log)
    written = list(log.commands)

    responses = [
        *await cluster.controller.create_topics([NewTopic("a")], validate_only=True),
        *await cluster.controller.alter_configs(
            set_to(4, "1", "num.partitions", "3"), validate_only=True),
    ]

    assert [response.code for response in responses] == [Code.NONE] * 2
    assert log.commands == written
    assert cluster.settings.num_partitions == 1


@looped
async def test_listeners_hear_of_every_change_in_order() -> None:
    """broker.cluster.N1: all of them, each after the state has it."""
    broker = await a_broker(NewTopic("a", 1), NewTopic("b", 2))
    cluster, notifications = broker.cluster, broker.partitions.notifications
    await cluster.controller.create_partitions([NewPartitions("a", 3)])
    await cluster.controller.alter_configs(set_to(2, "a", "flush.ms", "7"))
    await cluster.controller.delete_topics([("b", ZERO_UUID)])
    late = FollowedPartitions()
    cluster.follow(late)

    assert notifications == [("created", "a", 1), ("created", "b", 2), ("added", "a", 1, 3),
                    ("changed", "a", {"flush.ms": "7"}), ("deleted", "b")]
    assert late.notifications == [("created", "a", 3)]


@looped
async def test_a_broker_s_setting_reaches_every_topic() -> None:
    """K5: a dynamic default applies to topics that do not override it, at once."""
    broker = await a_broker(NewTopic("a"), NewTopic("b", configs=[("retention.ms", "5")]))
    cluster = broker.cluster
    await cluster.controller.alter_configs(set_to(4, "1", "log.retention.ms", "8"))

    assert [cluster.topic_settings(topic).retention_ms
            for topic in cluster.state.topics.values()] == [8, 5]
    assert [event[:2] for event in broker.partitions.notifications[-2:]] == [
        ("changed", "a"), ("changed", "b")]


@looped
async def test_a_listener_that_fails_stops_no_one_else(caplog: pytest.LogCaptureFixture) -> None:
    cluster, good = await a_cluster(), FollowedPartitions()

    class Failing(FollowedPartitions):
        def on_topic_created(self, topic: object) -> None:
            raise OSError("no space")

    cluster.follow(Failing())
    cluster.follow(good)

    (response,) = await cluster.controller.create_topics([NewTopic("a")])

    assert response.code is Code.NONE
    assert good.notifications == [("created", "a", 1)]
    assert "a metadata listener failed: on_topic_created" in caplog.text


@looped
async def test_producer_ids_are_unique_and_seldom_need_a_write() -> None:
    """K2, broker.cluster.C1: a thousand ids cost one record."""
    log = MemoryLog()
    cluster = await a_cluster(log=log)
    written = len(log.commands)

    ids = await asyncio.gather(*(cluster.next_producer_id() for _ in range(1500)))

    assert len(set(ids)) == 1500
    assert len(log.commands) - written <= 4


@looped
async def test_an_internal_topic_is_made_once() -> None:
    """K3: the topic of groups comes with the first group, however many ask at once."""
    cluster = await a_cluster()

    made = await asyncio.gather(*(
        cluster.ensure_internal_topic(CONSUMER_OFFSETS, 4, [("cleanup.policy", "compact")])
        for _ in range(3)))

    assert {topic.topic_id for topic in made} == {cluster.state.topics[CONSUMER_OFFSETS].topic_id}
    assert made[0].is_internal
    assert len(made[0].partitions) == 4
    assert cluster.topic_settings(made[0]).cleanup_policy == ("compact",)


async def opened(directory: DataDirectory) -> ClusterDriver:
    return await ClusterDriver.open(
        directory, BrokerSettings(), ManualClock(), SeededRng(1), host="h", port=1)


@looped
async def test_metadata_lies_in_the_node_s_directory(tmp_path: Path) -> None:
    """T7: as controller batches in a log like any other, after a clean stop too."""
    path = str(tmp_path / "data")
    for expected in ([], ["a"]):
        directory = DataDirectory.open(DISK, path, ManualClock())
        cluster = await opened(directory)
        assert list(cluster.state.topics) == expected
        await cluster.controller.create_topics([NewTopic("a")])
        directory.close()

    assert "__cluster-0" in {entry.name for entry in Path(path).iterdir()}


@looped
async def test_damaged_metadata_stops_the_node_with_words(tmp_path: Path) -> None:
    """T12: what was durable and is not whole any more is never cut in silence."""
    path = tmp_path / "data"
    directory = DataDirectory.open(DISK, str(path), ManualClock())
    await (await opened(directory)).controller.create_topics([NewTopic("a")])
    directory.close()
    (segment,) = (path / "__cluster-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)

    directory = DataDirectory.open(DISK, str(path), ManualClock())
    with pytest.raises(CorruptLog, match="__cluster-0"):
        await opened(directory)
    directory.abandon()

    assert segment.read_bytes() == data


@looped
async def test_metadata_of_a_newer_version_is_refused() -> None:
    """T11: the node does not start with half of its metadata, and says why."""
    log = MemoryLog()
    log.commands.append(struct.pack(">HH", 99, 0))

    with pytest.raises(UnknownRecord, match="newer"):
        await a_cluster(log=log)
