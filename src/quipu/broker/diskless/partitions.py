"""All diskless partitions of this node: every partition of every diskless topic of the cluster.

Follows the cluster's metadata: it makes a partition for each that is created, and says which logs
the control plane must know (registration.py).
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from quipu.broker.diskless.partition import DisklessPartition
from quipu.broker.diskless.registration import LogRegistration
from quipu.broker.diskless.services import DisklessServices
from quipu.controller.topic_state import Topic
from quipu.diskless.values import LEADER_EPOCH, Lineage, LogKey
from quipu.model.errors import QuipuError
from quipu.model.ids import TopicPartition
from quipu.model.settings import TopicSettings

STEP_PARTITIONS: Final = 256  # of a deleted topic, removed in one step


class SettingsOf(Protocol):
    """Returns the settings that apply to a topic."""

    def __call__(self, topic: Topic) -> TopicSettings: ...


class DisklessPartitions:
    """The diskless partitions of one node, by name and by id."""

    def __init__(
        self, services: DisklessServices, registration: LogRegistration, settings_of: SettingsOf
    ) -> None:
        self._services = services
        self._registration = registration
        self._settings_of = settings_of
        self._by_name: dict[tuple[str, int], DisklessPartition] = {}
        self._by_id: dict[tuple[bytes, int], DisklessPartition] = {}
        registration.on_known = self._known
        registration.on_lineages = self._learn_lineages
        registration.on_failed = self._failed

    def __len__(self) -> int:
        return len(self._by_name)

    def find_for_wire(self, topic: str | bytes, partition: int) -> DisklessPartition | None:
        """The partition of a topic that is given by name, or by id as 16 bytes."""
        if isinstance(topic, str):
            return self._by_name.get((topic, partition))
        return self._by_id.get((topic, partition))

    def all(self) -> list[DisklessPartition]:
        return list(self._by_name.values())

    def advanced(self, log: LogKey) -> None:
        """The high watermark of a log has grown."""
        partition = self._by_id.get((log.topic_id.bytes, log.partition))
        if partition is not None:
            partition.advanced()

    # -- changes of the metadata

    def on_topic_created(self, topic: Topic) -> None:
        self.on_partitions_added(topic, 0)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        if not topic.is_diskless:
            return
        settings = self._settings_of(topic)
        for index in range(first_new, len(topic.partitions)):
            if (topic.topic_id.bytes, index) not in self._by_id:
                partition = DisklessPartition(
                    TopicPartition(topic.name, index), topic.topic_id, settings, self._services,
                    epoch=topic.partitions[index].leader_epoch)
                self._by_name[topic.name, index] = partition
                self._by_id[topic.topic_id.bytes, index] = partition
        self._registration.want(
            topic.topic_id, topic.name, len(topic.partitions),
            is_adopted=any(each.leader_epoch != LEADER_EPOCH for each in topic.partitions))

    def on_replicas_changed(self, topic: Topic) -> None:
        """Serve a topic that has become diskless; else nothing: every node serves all of them."""
        if topic.is_diskless and (topic.topic_id.bytes, 0) not in self._by_id:
            self.on_partitions_added(topic, 0)

    def on_brokers_changed(self) -> None:
        """Do nothing: the state of brokers is read when it is needed."""

    def on_config_changed(self, topic: Topic) -> None:
        if topic.is_diskless:
            settings = self._settings_of(topic)
            for index in range(len(topic.partitions)):
                partition = self._by_name.get((topic.name, index))
                if partition is not None:
                    partition.configure(settings)

    def on_topic_deleted(self, topic: Topic) -> Iterator[None] | None:
        """Forget its partitions; the caller takes the steps."""
        if not topic.is_diskless:
            return None
        self._registration.deleted(topic.topic_id)
        return self._remove(topic)

    def _remove(self, topic: Topic) -> Iterator[None]:
        for index in range(len(topic.partitions)):
            partition = self._by_id.pop((topic.topic_id.bytes, index), None)
            if partition is None:
                continue
            if self._by_name.get((topic.name, index)) is partition:
                del self._by_name[topic.name, index]
            partition.removed()
            if index % STEP_PARTITIONS == STEP_PARTITIONS - 1:
                yield

    # -- what the control plane knows

    def _learn_lineages(self, topic_id: bytes, lineages: Sequence[Lineage | None]) -> None:
        for index, lineage in enumerate(lineages):
            partition = self._by_id.get((topic_id, index))
            if partition is not None:
                partition.learn_lineage(lineage)

    def _known(self, topic_id: bytes, count: int) -> None:
        for index in range(count):
            partition = self._by_id.get((topic_id, index))
            if partition is not None:
                partition.became_known()

    def some_known(self) -> list[LogKey]:
        """A log that the control plane knows, if there is one."""
        return next(([each.key] for each in self._by_name.values() if each.is_known), [])

    def fail_early(self, error: QuipuError) -> None:
        """Refuse all batches that wait for the control plane."""
        for partition in self._by_name.values():
            partition.fail_early(error)

    def _failed(self, topic_id: bytes, count: int, error: QuipuError) -> None:
        for index in range(count):
            partition = self._by_id.get((topic_id, index))
            if partition is not None:
                partition.fail_early(error)
