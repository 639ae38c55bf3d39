"""How far migrations to diskless topics are: reported by the heads, collected by the controller.

A head reports every sealed partition that it leads with each heartbeat, so a controller that has
just become it knows after a heartbeat of each node what the one before it knew.

Invariants
    broker.cluster.V1  a report counts only for the version of the replica set that it is about, and
                       only if the head of that set has sent it (controller.G2)
    broker.cluster.V2  what is kept is bounded by the number of sealed partitions

Not here: the work that is reported (broker/diskless/migration.py), the decisions
(controller/migration.py).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.cluster.requests import MigratingPartition
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.ids import NodeId
from quipu.model.migration import MigrationStep

REPORTED_MAX: Final = 1000  # partitions in one heartbeat; the next one has more
UNKNOWN_SIZE: Final = -1

Key = tuple[UUID, int]


class MigrationProgress(NamedTuple):
    """How far one partition is."""

    partition: int
    step: MigrationStep
    bytes_left: int = UNKNOWN_SIZE  # to be copied
    trouble: str = ""  # why the last attempt to go on has failed


class _Report(NamedTuple):
    version: int
    progress: MigrationProgress


class MigrationReports:
    """The sealed partitions that this node leads, which its heartbeats report."""

    def __init__(self) -> None:
        self._reports: dict[Key, _Report] = {}
        self._next = 0  # where the next heartbeat goes on, if they are many

    def see(self, key: Key, version: int, progress: MigrationProgress) -> bool:
        """Note how far a partition is; returns whether that is news."""
        report = _Report(version, progress)
        is_news = self._reports.get(key) != report
        self._reports[key] = report
        return is_news

    def keep(self, keys: Iterable[Key]) -> None:
        """Forget all others."""
        wanted = set(keys)
        for key in self._reports.keys() - wanted:
            del self._reports[key]

    def reports(self) -> list[MigratingPartition]:
        """What the next heartbeat reports."""
        keys = list(self._reports)
        if self._next >= len(keys):
            self._next = 0
        some = keys[self._next:self._next + REPORTED_MAX]
        self._next += REPORTED_MAX
        return [MigratingPartition(
            topic_id=key[0], partition=key[1], version=self._reports[key].version,
            step=self._reports[key].progress.step,
            bytes_left=self._reports[key].progress.bytes_left,
            trouble=self._reports[key].progress.trouble) for key in some]


class MigrationTally:
    """The reports of all heads, on the controller."""

    def __init__(self) -> None:
        self._reports: dict[Key, _Report] = {}

    def add(
        self, state: ClusterState, reports: Sequence[MigratingPartition], sender: NodeId
    ) -> bool:
        """Add the reports of `sender`; returns whether there are any that count."""
        counted = False
        for each in reports:
            key = each.topic_id, each.partition
            partition = state.find_partition(key)
            if partition is None or not _is_about(partition, each.version) or (
                    partition.leader != sender):
                continue  # broker.cluster.V1
            if each.step not in _REPORTED:
                continue
            self._reports[key] = _Report(each.version, MigrationProgress(
                each.partition, MigrationStep(each.step), each.bytes_left,
                each.trouble[:TROUBLE_SIZE_MAX]))
            counted = True
        for key, report in list(self._reports.items()):
            partition = state.find_partition(key)
            if partition is None or not _is_about(partition, report.version):
                del self._reports[key]  # broker.cluster.V2
        return counted

    def ready(self) -> dict[Key, int]:
        """The partitions that wait for the switch, and the versions in which they do."""
        return {key: report.version for key, report in self._reports.items()
                if report.progress.step is MigrationStep.SWITCHING}

    def progress(self, topic: Topic) -> list[MigrationProgress]:
        """How far the partitions of a topic are, in their order."""
        found = []
        for index, partition in enumerate(topic.partitions):
            if topic.is_diskless:
                found.append(MigrationProgress(index, MigrationStep.DONE, 0))
            elif not partition.is_sealed:
                found.append(MigrationProgress(index, MigrationStep.NOT_BEGUN))
            else:
                report = self._reports.get((topic.topic_id, index))
                found.append(
                    report.progress if report is not None and _is_about(partition, report.version)
                    else MigrationProgress(index, MigrationStep.SEALING))
        return found


TROUBLE_SIZE_MAX: Final = 300  # characters
_REPORTED: Final = frozenset({
    MigrationStep.SEALING, MigrationStep.COPYING, MigrationStep.SWITCHING})


def _is_about(partition: PartitionState, version: int) -> bool:
    return partition.is_sealed and partition.partition_epoch == version
