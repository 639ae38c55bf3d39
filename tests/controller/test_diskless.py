"""Diskless topics in the metadata: created, placed, led by any live broker, moved, deleted."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.controller import brokers, elections, failed_replicas, reassignment
from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigOperation, ConfigResource
from quipu.controller.configs import alter as alter_configs
from quipu.controller.elections import ElectionType
from quipu.controller.placement import DisklessPlacement, acting_leader
from quipu.controller.reassignment import Reassignment
from quipu.controller.record_preconditions import UnfitRecord
from quipu.controller.records import (
    PartitionRecord,
    PartitionRun,
    PartitionsMoved,
    PlacementKind,
    TopicCreated,
    UnknownRecord,
    decode_record,
    encode_record,
)
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import TopicResult, create_partitions, create_topics, delete_topics
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, nodes_with, start, state_with, stop

SETTINGS = BrokerSettings(diskless_storage_system_enable=True)
ENABLED = (("diskless.enable", "true"),)


def create(
    state: ClusterState, count: int = 1, factor: int = -1, *, name: str = "t",
    settings: BrokerSettings = SETTINGS, assignments: tuple[tuple[int, list[int]], ...] = (),
    configs: tuple[tuple[str, str], ...] = ENABLED,
) -> TopicResult:
    wanted = NewTopic(name, count, factor, assignments, configs)
    topic_id = UUID(int=100 + state.next_version * 10 + len(state.topics))
    (result,) = carry_out(state, create_topics(state, [wanted], settings, lambda: topic_id))
    return result


def leaders(state: ClusterState, name: str = "t") -> list[int]:
    return [partition.leader for partition in state.topics[name].partitions]


def replicas(state: ClusterState, name: str = "t") -> list[tuple[int, ...]]:
    return [partition.replicas for partition in state.topics[name].partitions]


def three() -> ClusterState:
    """Nodes 1 to 3, and a chain of them."""
    return state_with(a=3)


def again(state: ClusterState) -> ClusterState:
    """The state that is made from its own snapshot."""
    copy = ClusterState()
    for record in records_of(state):
        copy.apply(decode_record(encode_record(record)))
    return copy


def test_each_partition_has_one_replica_and_they_are_spread() -> None:
    """D1, controller.D2: leader, replicas and ISR are one broker, the epoch is 0."""
    state = three()
    assert create(state, 6).code is Code.NONE
    topic = state.topics["t"]
    assert topic.is_diskless
    assert replicas(state) == [(1,), (2,), (3,)] * 2
    assert leaders(state) == [1, 2, 3] * 2
    assert all(partition.isr == partition.replicas for partition in topic.partitions)
    assert {partition.leader_epoch for partition in topic.partitions} == {0}
    assert topic.replication_factor == 1
    assert not topic.chains
    assert state.topic_count("a") == 0
    assert create(state, 1, 1, name="u").code is Code.NONE


def test_a_diskless_topic_needs_no_chain() -> None:
    """D1: brokers hold none of it."""
    state = nodes_with(["a-0", "a-1"])
    assert create(state, 2).code is Code.NONE
    assert leaders(state) == [1, 2]
    assert create(ClusterState(), 2).code is Code.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("factor", [0, 2, 3, -2, 32767])
def test_other_replication_factors_are_refused(factor: int) -> None:
    """D11: the controller manages it."""
    result = create(three(), 1, factor)
    assert (result.code, result.message) == (
        Code.INVALID_REQUEST, ("replication factor is system-managed for diskless topics; use "
        "replicationFactor=-1 or replicationFactor=1"))


def test_manual_assignments_are_refused() -> None:
    """D11: for new topics and for new partitions."""
    state = three()
    create(state, 2)
    refused = [
        create(state, -1, name="u", assignments=((0, [3]), (1, [3]))),
        *carry_out(state, create_partitions(
            state, [NewPartitions("t", 4, [[2], [2]])], SETTINGS))]
    for result in refused:
        assert (result.code, result.message) == (
            Code.INVALID_REQUEST, ("replica assignments cannot be specified for diskless topics; "
            "placement is system-managed"))
    assert len(state.topics["t"].partitions) == 2


def test_partitions_are_added_on_the_least_loaded_brokers() -> None:
    """D10: as those of a new topic."""
    state = three()
    create(state, 2)
    carry_out(state, create_partitions(state, [NewPartitions("t", 4)], SETTINGS))
    assert leaders(state) == [1, 2, 3, 1]


def test_it_is_created_only_where_it_can_be_served() -> None:
    """D1, D2: refused with INVALID_CONFIG and what to do."""
    state = three()
    result = create(state, settings=BrokerSettings())
    assert (result.code, "diskless.storage.system.enable=true" in str(result.message)) == (
        Code.INVALID_CONFIG, True)
    compacted = (*ENABLED, ("cleanup.policy", "compact"))
    assert create(state, configs=compacted).code is Code.INVALID_CONFIG
    assert create(state, settings=replace(SETTINGS, log_cleanup_policy=("compact",))).code is (
        Code.INVALID_CONFIG)
    assert create(state, configs=(("diskless.enable", "false"),), factor=3).code is Code.NONE
    assert not state.topics["t"].is_diskless


def test_its_setting_never_changes() -> None:
    """D1: whichever way a client tries; other settings change as usual."""
    state = three()
    create(state, 1)
    create(state, 1, 3, name="classic", configs=())

    def alter(topic: str, change: ConfigChange, *, whole: bool = False) -> Code:
        alteration = ConfigAlteration(ConfigResource(2, topic), [change], whole=whole)
        return carry_out(state, alter_configs(state, [alteration], SETTINGS))[0].code

    for change in (ConfigChange("diskless.enable", ConfigOperation.SET, "false"),
                   ConfigChange("diskless.enable", ConfigOperation.DELETE, None),
                   ConfigChange("cleanup.policy", ConfigOperation.SET, "compact")):
        assert alter("t", change) is Code.INVALID_CONFIG, change
    assert alter("classic", ConfigChange(
        "diskless.enable", ConfigOperation.SET, "true")) is Code.INVALID_CONFIG
    assert alter("t", ConfigChange("retention.ms", ConfigOperation.SET, "1")) is Code.NONE
    assert alter("t", ConfigChange("retention.bytes", ConfigOperation.SET, "1"),
                 whole=True) is Code.NONE
    assert state.topics["t"].configs == {"diskless.enable": "true", "retention.bytes": "1"}


def test_the_leader_is_a_live_broker_as_long_as_there_is_one() -> None:
    """D33, controller.D1: the replica if it is up, else another; the epoch stays."""
    state = three()
    create(state, 12)
    before = replicas(state)
    stop(state, 2)
    assert replicas(state) == before
    assert set(leaders(state)) == {1, 3}
    assert [leader for leader, (node,) in zip(leaders(state), before, strict=True)
            if node != 2] == [1, 3] * 4
    stop(state, 1)
    assert set(leaders(state)) == {3}
    stop(state, 3)
    assert set(leaders(state)) == {NO_NODE}
    assert again(state) == state
    start(state, 2, "a-1", life=2)
    assert set(leaders(state)) == {2}
    start(state, 1, "a-0", life=2)
    start(state, 3, "a-2", life=2)
    assert leaders(state) == [node for (node,) in before]
    assert {partition.leader_epoch for partition in state.topics["t"].partitions} == {0}


def test_the_partitions_of_a_dead_broker_are_spread_over_the_others() -> None:
    """controller.D1: by topic id and partition, so that one broker does not get all of them."""
    placement = DisklessPlacement((NodeId(9),), NodeId(9))
    up = [NodeId(node_id) for node_id in (1, 2, 3)]
    found = [acting_leader(placement, UUID(int=7), index, up) for index in range(300)]
    assert all(70 <= found.count(node_id) <= 130 for node_id in up)
    assert found == [acting_leader(placement, UUID(int=7), index, up[::-1])
                     for index in range(300)]


def test_a_snapshot_has_diskless_topics_too() -> None:
    """controller.S5: with moves, added partitions and brokers that are down."""
    state = three()
    create(state, 4)
    create(state, 2, name="u")
    create(state, 2, 3, name="classic", configs=())
    carry_out(state, create_partitions(state, [NewPartitions("t", 5)], SETTINGS))
    carry_out(state, reassignment.alter(state, [Reassignment("t", 1, [3])]))
    stop(state, 3)
    assert again(state) == state
    assert again(state).topics == state.topics


def test_a_reassignment_takes_effect_at_once() -> None:
    """D18: nothing has to be copied."""
    state = three()
    create(state, 3)
    versions = [partition.partition_epoch for partition in state.topics["t"].partitions]
    results = carry_out(state, reassignment.alter(state, [
        Reassignment("t", 0, [3]), Reassignment("t", 1, [3]), Reassignment("t", 2, [3])]))
    assert [result.code for result in results] == [Code.NONE] * 3
    assert leaders(state) == [3, 3, 3]
    now = [partition.partition_epoch for partition in state.topics["t"].partitions]
    assert [new > old for old, new in zip(versions, now, strict=True)] == [True, True, False]
    assert reassignment.ongoing(state) == []
    stop(state, 2)
    for wanted, code in (([1, 1], Code.INVALID_REPLICA_ASSIGNMENT),
                         ([], Code.INVALID_REPLICA_ASSIGNMENT),
                         ([7], Code.INVALID_REPLICA_ASSIGNMENT),
                         ([2], Code.INVALID_REPLICA_ASSIGNMENT),
                         (None, Code.NO_REASSIGNMENT_IN_PROGRESS)):
        (result,) = carry_out(state, reassignment.alter(state, [Reassignment("t", 0, wanted)]))
        assert result.code is code, wanted
    (result,) = carry_out(state, reassignment.alter(
        state, [Reassignment("t", 0, [1, 3])], factor_may_change=False))
    assert result.code is Code.INVALID_REPLICATION_FACTOR
    (result,) = carry_out(state, reassignment.alter(state, [Reassignment("t", 0, [1, 3])]))
    assert (result.code, replicas(state)[0], leaders(state)[0]) == (Code.NONE, (1, 3), 3)


def test_the_preferred_replica_is_elected_on_request() -> None:
    """D18, controller.D3: it is the first one; until then the leader stays."""
    state = three()
    create(state, 1)
    carry_out(state, reassignment.alter(state, [Reassignment("t", 0, [2, 1, 3])]))
    assert leaders(state) == [1]

    def elect(kind: ElectionType = ElectionType.PREFERRED) -> Code:
        (result,) = carry_out(state, elections.elect(state, kind, [TopicPartition("t", 0)]))
        return result.code

    assert elect(ElectionType.UNCLEAN) is Code.ELECTION_NOT_NEEDED
    assert (elect(), leaders(state), replicas(state)) == (Code.NONE, [2], [(2, 1, 3)])
    assert elect() is Code.ELECTION_NOT_NEEDED
    stop(state, 2)
    assert leaders(state) == [1]
    assert elect() is Code.PREFERRED_LEADER_NOT_AVAILABLE
    start(state, 2, "a-1", life=2)
    assert leaders(state) == [1]
    assert again(state) == state
    assert [result.code for result in carry_out(
        state, elections.elect(state, ElectionType.PREFERRED, None))] == [Code.NONE]
    assert leaders(state) == [2]


@pytest.mark.parametrize("kind", ElectionType)
def test_an_election_is_not_needed_while_the_preferred_replica_leads(kind: ElectionType) -> None:
    """D18: for a partition that is named; not among the results for all."""
    state = three()
    create(state, 2)
    (result,) = carry_out(state, elections.elect(state, kind, [TopicPartition("t", 0)]))
    assert result.code is Code.ELECTION_NOT_NEEDED
    assert carry_out(state, elections.elect(state, kind, None)) == []


def test_a_failed_log_elsewhere_does_not_concern_it() -> None:
    """D1: no node is taken off a diskless partition."""
    state = three()
    create(state, 1)
    key = state.topics["t"].topic_id, 0
    assert failed_replicas.report(state, NodeId(1), {key}).records == []


def test_a_broker_that_is_unregistered_leaves_its_partitions_to_others() -> None:
    """D10: replicas are brokers that exist; the least loaded of the rack take over."""
    state = nodes_with(["a-0", "a-1", "a-2"])
    create(state, 6)
    stop(state, 2)
    carry_out(state, brokers.unregister(state, NodeId(2)))
    assert replicas(state) == [(1,), (1,), (3,), (1,), (3,), (3,)]
    assert leaders(state) == [node for (node,) in replicas(state)]
    assert again(state) == state


def test_a_deleted_topic_is_gone() -> None:
    """D7: with its place among the diskless ones."""
    state = three()
    create(state, 2)
    carry_out(state, delete_topics(state, [("t", ZERO_UUID)], SETTINGS))
    assert state.diskless_topics() == []
    assert create(state, 2).code is Code.NONE


def test_records_that_do_not_fit_are_left_out() -> None:
    """controller.P4: partitions never change between chains and diskless ones."""
    state = three()
    create(state, 1)
    create(state, 1, 3, name="classic", configs=())
    for topic, record in (
            ("t", PartitionsMoved(partitions=[0], chain="a", version=99, kind=PlacementKind.CHAIN)),
            ("classic", PartitionsMoved(
                partitions=[0], replicas=[1], version=99, kind=PlacementKind.DISKLESS)),
            ("t", PartitionsMoved(
                partitions=[0], replicas=[], version=99, kind=PlacementKind.DISKLESS)),
            ("t", PartitionsMoved(
                partitions=[0], replicas=[1, 1], version=99, kind=PlacementKind.DISKLESS))):
        record.topic_id = state.topics[topic].topic_id
        with pytest.raises(UnfitRecord, match=r"diskless"):
            state.apply(record)
    created = TopicCreated(
        name="u", topic_id=UUID(int=77), runs=[PartitionRun(count=2, kind=PlacementKind.DISKLESS)],
        partitions=[PartitionRecord(replicas=[1], isr=[1], leader=1)])
    with pytest.raises(UnfitRecord, match=r"not said to be anywhere"):
        state.apply(created)


def test_a_kind_of_a_later_version_is_refused() -> None:
    """controller.P4: never taken for a diskless partition."""
    record = PartitionsMoved(topic_id=UUID(int=1), partitions=[0], kind=4)
    with pytest.raises(UnknownRecord, match=r"kind 4"):
        decode_record(encode_record(record))


STEPS = st.lists(st.tuples(
    st.sampled_from(["start", "stop", "create", "grow", "move", "delete"]), st.integers(1, 4),
    st.integers(0, 5)), max_size=30)


@given(STEPS)
def test_whatever_happens_a_live_broker_is_shown(steps: list[tuple[str, int, int]]) -> None:
    """D33, controller.D1, controller.S5: and the snapshot of every state gives the same state."""
    state = nodes_with([f"a-{number}" for number in range(4)])
    life = 1
    for what, node_id, number in steps:
        name = f"t{number % 2}"
        there = state.topics.get(name)
        if what == "start" and state.brokers[NodeId(node_id)].fenced:
            life += 1
            start(state, node_id, f"a-{node_id - 1}", life)
        elif what == "stop":
            stop(state, node_id)
        elif what == "create" and there is None:
            create(state, number + 1, name=name)
        elif what == "grow" and there is not None:
            wanted = NewPartitions(name, len(there.partitions) + 1)
            carry_out(state, create_partitions(state, [wanted], SETTINGS))
        elif what == "move" and there is not None:
            carry_out(state, reassignment.alter(state, [Reassignment(name, 0, [node_id])]))
        elif what == "delete" and there is not None:
            carry_out(state, delete_topics(state, [(name, ZERO_UUID)], SETTINGS))
        up = state.up()
        for topic in state.topics.values():
            for partition in topic.partitions:
                assert partition.leader in up or not up
                assert partition.leader == partition.replicas[0] or partition.replicas[0] not in up
                assert partition.isr == partition.replicas
        assert again(state) == state
