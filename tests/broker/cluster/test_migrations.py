"""Reports of heads about sealed partitions, and what the controller makes of them."""

from uuid import UUID

from quipu.broker.cluster.migrations import (
    REPORTED_MAX,
    MigrationProgress,
    MigrationReports,
    MigrationTally,
)
from quipu.broker.cluster.requests import MigratingPartition
from quipu.controller import migration
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topics import create_topics
from quipu.model.ids import NodeId
from quipu.model.migration import MigrationStep
from quipu.model.settings import BrokerSettings
from tests.controller.states import carry_out, ids, state_with, stop

BROKER = BrokerSettings(
    diskless_storage_system_enable=True, remote_log_storage_system_enable=True)
HEAD, OTHER = NodeId(1), NodeId(2)


def sealed() -> ClusterState:
    """Topic t with two partitions on chain a (1 2), sealed."""
    state = state_with(a=2)
    carry_out(state, create_topics(state, [
        NewTopic("t", 2, configs=[("remote.storage.enable", "true")])], BROKER, ids()))
    carry_out(state, migration.begin(state, "t", BROKER))
    return state


def report(
    state: ClusterState, partition: int, step: int = MigrationStep.SWITCHING, *, late: int = 0
) -> MigratingPartition:
    topic = state.topics["t"]
    return MigratingPartition(
        topic_id=topic.topic_id, partition=partition, step=step, bytes_left=5, trouble="x" * 9000,
        version=topic.partitions[partition % 2].partition_epoch - late)


def progress(state: ClusterState, tally: MigrationTally) -> list[MigrationStep]:
    return [each.step for each in tally.progress(state.topics["t"])]


def test_only_what_the_head_says_of_this_version_counts() -> None:
    """D32: not what others say, of other versions, or of partitions that there are not."""
    state, tally = sealed(), MigrationTally()
    for reports, sender in (
            ([report(state, 0)], OTHER), ([report(state, 0, late=1)], HEAD),
            ([report(state, 7)], HEAD), ([report(state, -1)], HEAD),
            ([report(state, 0, step=-128), report(state, 0, step=MigrationStep.DONE)], HEAD)):
        assert not tally.add(state, reports, sender), reports
    assert progress(state, tally) == [MigrationStep.SEALING] * 2

    assert tally.add(state, [report(state, 0), report(state, 1, MigrationStep.COPYING)], HEAD)

    assert progress(state, tally) == [MigrationStep.SWITCHING, MigrationStep.COPYING]
    assert len(tally.progress(state.topics["t"])[0].trouble) <= 300
    assert list(tally.ready()) == [(state.topics["t"].topic_id, 0)]


def test_a_change_of_heads_begins_anew_and_the_switch_ends_it() -> None:
    """D32: what an earlier head has reported counts for nothing (broker.cluster.V1), and is
    forgotten (broker.cluster.V2).
    """
    state, tally = sealed(), MigrationTally()
    tally.add(state, [report(state, 0), report(state, 1)], HEAD)
    stop(state, HEAD)
    assert progress(state, tally) == [MigrationStep.SEALING] * 2
    tally.add(state, [], OTHER)
    assert tally.ready() == {}

    tally.add(state, [report(state, 0), report(state, 1)], OTHER)
    carry_out(state, migration.switch(state, tally.ready()))

    assert progress(state, tally) == [MigrationStep.DONE] * 2
    tally.add(state, [], OTHER)
    assert tally.ready() == {}


def test_a_topic_that_is_not_migrated_has_not_begun() -> None:
    """D32: as after a migration that was called off."""
    state, tally = sealed(), MigrationTally()
    tally.add(state, [report(state, 0)], HEAD)
    carry_out(state, migration.cancel(state, "t"))
    assert progress(state, tally) == [MigrationStep.NOT_BEGUN] * 2


def test_many_partitions_are_reported_in_turns() -> None:
    """D30: a heartbeat stays small; each partition is reported again and again."""
    reports, topic_id = MigrationReports(), UUID(int=1)
    count = 2 * REPORTED_MAX + 1
    state = MigrationProgress(0, MigrationStep.COPYING, 1)
    for number in range(count):
        assert reports.see((topic_id, number), 1, state)
        assert not reports.see((topic_id, number), 1, state)
    assert reports.see((topic_id, 0), 1, state._replace(bytes_left=0))

    rounds = [[each.partition for each in reports.reports()] for _ in range(4)]

    assert [len(each) for each in rounds] == [REPORTED_MAX, REPORTED_MAX, 1, REPORTED_MAX]
    assert sorted(number for each in rounds[:3] for number in each) == list(range(count))
    reports.keep([(topic_id, 5)])
    assert [each.partition for each in reports.reports()] == [5]
