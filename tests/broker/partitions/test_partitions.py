"""Which partitions a node opens, configures and lets go of, as the metadata says."""

from pathlib import Path
from uuid import UUID

from quipu.broker.partitions.partitions import Partitions
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication import LeadershipListener
from quipu.controller.placement import ChainPlacement
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.model.settings import BrokerSettings, TopicSettings, topic_settings
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.directory.data_directory import DataDirectory
from tests.looped import looped

ME = NodeId(1)


class RecordedCalls:
    """Records the calls to the driver of chains."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []

    def configure(self, partition: ReplicatedPartition, replica_set: ReplicaSet) -> None:
        self.calls.append(("configure", str(partition.topic_partition), replica_set.version))

    def forget(self, partition: ReplicatedPartition) -> None:
        self.calls.append(("forget", str(partition.topic_partition), -1))

    def limit(self, topic_id: bytes, settings: TopicSettings | None) -> None:
        del topic_id, settings

    def watch(self, listener: LeadershipListener) -> None:
        del listener


class World:
    """Partitions over a real directory."""

    def __init__(self, path: Path) -> None:
        self.directory = DataDirectory.open(RealDisk(), str(path), ManualClock(), node_id=ME)
        self.chains = RecordedCalls()
        self.is_part = True
        broker = BrokerSettings()
        self.partitions = Partitions(
            self.directory, lambda topic: topic_settings(topic.configs, broker), self.chains,
            node_id=ME, producer_expiration_ms=lambda: 1000, is_part=lambda _: self.is_part)

    def take(self) -> list[tuple[str, str, int]]:
        calls, self.chains.calls = self.chains.calls, []
        return calls


def a_topic(*sets: ReplicaSet, name: str = "t", **configs: str) -> Topic:
    return Topic(name=name, topic_id=UUID(int=9), configs=configs, partitions=tuple(
        PartitionState(
            leader=each.head, replicas=each.replicas, isr=each.serving, leader_epoch=each.epoch,
            partition_epoch=each.version, placement=ChainPlacement("a"), replica_set=each)
        for each in sets))


def on(*nodes: int, version: int = 1, state: MemberState = MemberState.SERVING) -> ReplicaSet:
    """The first serves, the others are in `state`."""
    return ReplicaSet(epoch=Epoch(version), version=version, members=(
        ReplicaMember(NodeId(nodes[0]), MemberState.SERVING),
        *(ReplicaMember(NodeId(node), state) for node in nodes[1:])))


@looped
async def test_only_what_this_node_is_a_replica_of_is_opened(tmp_path: Path) -> None:
    """V4: other chains' partitions leave no trace here, but their topics are known."""
    world = World(tmp_path)
    topic = a_topic(on(1, 2), on(3, 4), on(2, 1))
    await world.partitions.recover([topic])
    world.partitions.on_topic_created(topic)
    assert [partition.topic_partition.partition for partition in world.partitions.all()] == [0, 2]
    assert world.partitions.find("t", 1) is None
    assert world.partitions.find_for_wire(topic.topic_id.bytes, 2) is not None
    assert world.partitions.knows_id(topic.topic_id.bytes)
    assert not any(name.startswith("t-1") for name in world.directory.names())
    assert world.take() == [("configure", "t-0", 1), ("configure", "t-2", 1)]


@looped
async def test_a_partition_comes_and_goes_with_its_replicas(tmp_path: Path) -> None:
    """K6: it is opened when it moves here, follows every change, and goes when it moves away."""
    world = World(tmp_path)
    world.partitions.on_topic_created(a_topic(on(3)))
    assert world.take() == []
    world.partitions.on_replicas_changed(
        a_topic(on(3, 1, version=2, state=MemberState.SYNCING)))
    partition = world.partitions.find("t", 0)
    assert partition is not None
    world.partitions.on_replicas_changed(a_topic(on(3, 1, version=3)))
    assert world.partitions.find("t", 0) is partition
    world.partitions.on_replicas_changed(a_topic(on(3, version=4)))
    assert world.partitions.find("t", 0) is None
    assert world.take() == [("configure", "t-0", 2), ("configure", "t-0", 3), ("forget", "t-0", -1)]
    assert world.directory.names() == []


@looped
async def test_a_process_acts_only_on_what_speaks_of_it(tmp_path: Path) -> None:
    """V14, V16: after a restart the old replica sets mean the process before; to be offline is
    no action.
    """
    world = World(tmp_path)
    world.is_part = False
    world.partitions.on_topic_created(a_topic(on(1, 2)))
    assert world.partitions.find("t", 0) is not None
    assert world.take() == []
    world.partitions.on_replicas_changed(
        a_topic(on(2, 1, version=2, state=MemberState.OFFLINE)))
    assert world.take() == [("configure", "t-0", 2)]
    world.is_part = True
    world.partitions.on_replicas_changed(
        a_topic(on(2, 1, version=3, state=MemberState.SYNCING)))
    assert world.take() == [("configure", "t-0", 3)]


@looped
async def test_settings_reach_partitions_that_are_here(tmp_path: Path) -> None:
    """K5: and those that are elsewhere are no trouble."""
    world = World(tmp_path)
    world.partitions.on_topic_created(a_topic(on(1), on(3)))
    changed = a_topic(on(1), on(3), **{"min.insync.replicas": "2", "flush.messages": "1"})
    world.partitions.on_config_changed(changed)
    partition = world.partitions.find("t", 0)
    assert partition is not None
    assert partition.rules.min_insync_replicas == 2
    assert partition.log.config.is_durable
    world.partitions.on_topic_deleted(changed)
    assert list(world.partitions.all()) == []
    assert not world.partitions.knows_id(changed.topic_id.bytes)
