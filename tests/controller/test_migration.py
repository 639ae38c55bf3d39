"""Topics on chains that become diskless: what the controller decides, and what the state keeps."""

from collections.abc import Callable

import pytest

from quipu.controller import failed_replicas, migration, reassignment
from quipu.controller.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    alter,
)
from quipu.controller.placement import DisklessPlacement
from quipu.controller.reassignment import Reassignment
from quipu.controller.record_preconditions import UnfitRecord
from quipu.controller.records import (
    PartitionsMoved,
    PlacementKind,
    decode_record,
    encode_record,
)
from quipu.controller.resources import ResourceType
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState, Key
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import create_partitions, create_topics, delete_topics
from quipu.model.errors import Code, RequestError
from quipu.model.ids import ZERO_UUID, NodeId
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, start, state_with, stop

A, B = (1, 2), (3, 4)
BROKER = BrokerSettings(
    diskless_storage_system_enable=True, remote_log_storage_system_enable=True)
TIERED = [("remote.storage.enable", "true")]


def a_state(*configs: tuple[str, str]) -> ClusterState:
    """Topic t with partition 0 and 2 on chain a (1 2), 1 on b (3 4); it has a tier."""
    state = state_with(a=2, b=2)
    wanted = NewTopic("t", assignments=[(0, A), (1, B), (2, A)], configs=[*TIERED, *configs])
    (result,) = carry_out(state, create_topics(state, [wanted], BROKER, ids()))
    assert result.code is Code.NONE, result
    return state


def begin(state: ClusterState, settings: BrokerSettings = BROKER) -> None:
    carry_out(state, migration.begin(state, "t", settings))


def reports(state: ClusterState) -> dict[Key, int]:
    """What the heads report when all partitions are ready."""
    topic = state.topics["t"]
    return {(topic.topic_id, index): partition.partition_epoch
            for index, partition in enumerate(topic.partitions)}


def switch(state: ClusterState) -> None:
    carry_out(state, migration.switch(state, reports(state)))


def restored(state: ClusterState) -> ClusterState:
    """The state that a snapshot gives (controller.S5)."""
    again = ClusterState()
    for record in records_of(state):
        again.apply(decode_record(encode_record(record)))
    return again


def test_a_topic_is_sealed_then_switched() -> None:
    """D30: all partitions together (controller.G1); each keeps the epoch of its seal, and its
    head leads.
    """
    state = a_state()
    before = state.topics["t"].partitions

    begin(state)
    sealed = state.topics["t"].partitions
    assert all(partition.replica_set.is_sealed for partition in sealed)
    assert all(new.leader_epoch > old.leader_epoch
               for old, new in zip(before, sealed, strict=True))
    assert [partition.leader for partition in sealed] == [1, 3, 1]

    switch(state)
    topic = state.topics["t"]
    assert topic.is_diskless
    assert topic.configs["diskless.enable"] == "true"
    assert [partition.replicas for partition in topic.partitions] == [A, B, A]
    assert [partition.leader for partition in topic.partitions] == [1, 3, 1]
    assert [partition.leader_epoch for partition in topic.partitions] == [
        partition.leader_epoch for partition in sealed]  # controller.G3
    assert state.topics_on("a") == []
    assert state.diskless_topics() == [topic]


@pytest.mark.parametrize("steps", [1, 2], ids=["sealed", "switched"])
def test_a_snapshot_has_every_step(steps: int) -> None:
    """D32: a new controller, and a node that starts, go on from where it was."""
    state = a_state()
    begin(state)
    if steps > 1:
        switch(state)

    again = restored(state)

    assert again == state
    assert again.topics["t"].partitions == state.topics["t"].partitions
    switch(again)
    assert again.topics["t"].is_diskless


def test_only_reports_of_all_heads_about_these_very_versions_count() -> None:
    """D32: a head of an earlier epoch may have missed something (controller.G2)."""
    state = a_state()
    begin(state)
    early = reports(state)
    some = dict(list(early.items())[:2])
    assert migration.switch(state, some).records == []

    stop(state, 1)  # node 2 is the head of a then, under a new epoch
    assert state.topics["t"].partitions[0].is_sealed
    assert state.topics["t"].partitions[0].leader == 2
    assert migration.switch(state, early).records == []
    switch(state)

    assert state.topics["t"].is_diskless
    assert [partition.leader for partition in state.topics["t"].partitions] == [2, 3, 2]
    start(state, 1, "a-0", life=2)
    assert state.topics["t"].partitions[0].leader == 2  # controller.D3


def test_a_partition_without_a_leader_is_not_switched() -> None:
    """D32: its head is down, so nobody can have reported."""
    state = a_state()
    begin(state)
    for node_id in A:
        stop(state, node_id)
    assert migration.switch(state, reports(state)).records == []


def test_beginning_again_changes_nothing() -> None:
    """D32: who calls again, because a response was lost, resumes."""
    state = a_state()
    begin(state)
    assert migration.begin(state, "t", BROKER).records == []
    switch(state)
    assert migration.begin(state, "t", BROKER).records == []


def test_cancel_unseals_under_a_new_epoch() -> None:
    """D32: reversible until the switch, and not after it; then it can begin again."""
    state = a_state()
    with pytest.raises(RequestError, match="is not being migrated"):
        migration.cancel(state, "t")
    begin(state)
    sealed = state.topics["t"].partitions[0].leader_epoch
    late = reports(state)

    carry_out(state, migration.cancel(state, "t"))

    open_again = state.topics["t"].partitions[0]
    assert not open_again.replica_set.is_sealed
    assert open_again.leader_epoch > sealed
    assert migration.switch(state, late).records == []
    begin(state)
    assert migration.switch(state, late).records == []
    switch(state)
    with pytest.raises(RequestError, match="is diskless, and stays it"):
        migration.cancel(state, "t")


def moving(state: ClusterState) -> None:
    carry_out(state, reassignment.alter(state, [Reassignment("t", 0, B)]))


def failing(state: ClusterState) -> None:
    key = state.topics["t"].topic_id, 0
    carry_out(state, failed_replicas.report(state, NodeId(2), {key}))


@pytest.mark.parametrize(("change", "why"), [
    (moving, "partition 0 moves to chain b"),
    (failing, "a replica of partition 0 has failed"),
    (lambda state: stop(state, 4), "b-1 of chain b does not serve"),
], ids=["moving", "failed", "down"])
def test_what_cannot_begin_is_told(change: Callable[[ClusterState], None], why: str) -> None:
    """D30: all replicas must be in sync, and where they belong."""
    state = a_state()
    change(state)
    with pytest.raises(RequestError, match=why):
        begin(state)


@pytest.mark.parametrize(("configs", "settings", "why"), [
    ([("remote.storage.enable", "false")], BROKER, "set remote.storage.enable=true"),
    ([("remote.log.copy.disable", "true")], BROKER, "set remote.log.copy.disable=false"),
    ([], BrokerSettings(remote_log_storage_system_enable=True), "diskless.storage.system.enable"),
    ([], BrokerSettings(diskless_storage_system_enable=True), "remote.log.storage.system.enable"),
], ids=["no tier", "no copies", "no object store", "no remote storage"])
def test_settings_that_it_needs(
    configs: list[tuple[str, str]], settings: BrokerSettings, why: str
) -> None:
    """D30: the tier serves old records, and the control plane new ones."""
    state = state_with(a=2)
    wanted = {**dict(TIERED), **dict(configs)}
    carry_out(state, create_topics(state, [NewTopic("t", 1, configs=list(wanted.items()))],
                                   BROKER, ids()))
    with pytest.raises(RequestError, match=why):
        begin(state, settings)


def test_a_compacted_topic_and_unknown_ones_are_refused() -> None:
    """D30: and so are the cluster's own topics, which are no client's."""
    state = state_with(a=2)
    carry_out(state, create_topics(
        state, [NewTopic("t", 1, configs=[("cleanup.policy", "compact")])], BROKER, ids()))
    with pytest.raises(RequestError, match=r"set remote\.storage\.enable=true"):
        begin(state)
    with pytest.raises(RequestError, match="there is no topic"):
        migration.begin(state, "other", BROKER)


def test_a_sealed_topic_keeps_what_its_migration_needs() -> None:
    """D30: its tier, its partitions and its chains (controller.G4); others may change."""
    state = a_state()
    begin(state)

    (grown,) = carry_out(state, create_partitions(state, [NewPartitions("t", 4)], BROKER))
    (moved,) = carry_out(state, reassignment.alter(state, [Reassignment("t", 0, B)]))
    assert (grown.code, moved.code) == (Code.INVALID_REQUEST, Code.INVALID_REQUEST)
    assert "quipu topic migrate t --cancel" in str(grown.message)
    for name, value, code in (
            ("remote.log.copy.disable", "true", Code.INVALID_CONFIG),
            ("cleanup.policy", "compact", Code.INVALID_CONFIG),
            ("retention.ms", "1000000", Code.NONE)):
        (result,) = carry_out(state, alter(state, [ConfigAlteration(
            ConfigResource(ResourceType.TOPIC, "t"), [
                ConfigChange(name, ConfigOperation.SET, value)])], BROKER))
        assert result.code is code, result
    carry_out(state, delete_topics(state, [("t", ZERO_UUID)], BROKER))
    assert "t" not in state.topics


def test_a_failure_while_sealed_waits_for_its_repair() -> None:
    """D32: a detached partition stays sealed, and is not switched before it is attached."""
    state = a_state()
    begin(state)
    failing(state)
    assert state.topics["t"].partitions[0].replica_set.is_sealed
    assert migration.switch(state, reports(state)).records == []
    assert restored(state) == state

    carry_out(state, migration.cancel(state, "t"))
    assert not state.topics["t"].partitions[0].replica_set.is_sealed
    assert state.is_detached((state.topics["t"].topic_id, 0))


def test_partitions_that_are_not_sealed_never_become_diskless() -> None:
    """D21: whatever a record says (controller.G2)."""
    state = a_state()
    with pytest.raises(UnfitRecord, match="only sealed ones"):
        state.apply(PartitionsMoved(
            topic_id=state.topics["t"].topic_id, partitions=[0], kind=PlacementKind.DISKLESS,
            replicas=[1], leader=1, epoch=9, version=99))
    begin(state)
    for leader in (-1, 4):
        with pytest.raises(UnfitRecord, match=r"that .* leads"):
            state.apply(PartitionsMoved(
                topic_id=state.topics["t"].topic_id, partitions=[0], kind=PlacementKind.DISKLESS,
                replicas=[1, 2], leader=leader, epoch=9, version=99))


def test_a_switched_partition_is_an_ordinary_diskless_one() -> None:
    """D31: its replicas change as those of others do, and its epoch never does."""
    state = a_state()
    begin(state)
    switch(state)
    epoch = state.topics["t"].partitions[0].leader_epoch

    (moved,) = carry_out(state, reassignment.alter(state, [Reassignment("t", 0, (4, 2))]))

    assert moved.code is Code.NONE, moved
    partition = state.topics["t"].partitions[0]
    assert isinstance(partition.placement, DisklessPlacement)
    assert set(partition.replicas) >= {4, 2}
    assert partition.leader_epoch == epoch > 0
    (grown,) = carry_out(state, create_partitions(state, [NewPartitions("t", 4)], BROKER))
    assert grown.code is Code.NONE, grown
    assert state.topics["t"].partitions[3].leader_epoch == 0
    assert restored(state) == state
