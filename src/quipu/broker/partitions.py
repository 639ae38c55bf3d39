"""All partitions that this node serves, found by topic name or by topic id.

Follows the cluster's metadata: it opens a log for every partition that comes to be, and lets go of
those that are deleted.  A log that cannot be opened makes its partition fail; the node serves
all others.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from quipu.broker.partition import Partition, Rules, Waiter
from quipu.controller.state import Topic
from quipu.model.ids import TopicPartition
from quipu.model.settings import TopicSettings
from quipu.storage.data_directory import DataDirectory
from quipu.storage.log import LogConfig

_log = logging.getLogger(__name__)

RECOVERY_TURN_SECONDS: Final = 0.01  # of opening logs before others get their turn


class SettingsOf(Protocol):
    """Tells what applies to a topic."""

    def __call__(self, topic: Topic) -> TopicSettings: ...


class Partitions:
    """The partitions of one node."""

    def __init__(
        self, directory: DataDirectory, settings_of: SettingsOf, *, producer_expiration_ms: int
    ) -> None:
        self._directory = directory
        self._settings_of = settings_of
        self._producer_expiration_ms = producer_expiration_ms
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._ids: set[bytes] = set()
        self.waiting: set[Waiter] = set()  # fetches, so that a stop can end their waits
        self._ready: list[Waiter] = []  # of them, whose wait ends with this turn of the loop

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get((topic, partition))

    def find_for_wire(self, topic: str | bytes, partition: int) -> Partition | None:
        """By name, or by id as 16 bytes."""
        if isinstance(topic, str):
            return self._by_name.get((topic, partition))
        return self._by_id.get((topic, partition))

    def knows_id(self, topic_id: bytes) -> bool:
        return topic_id in self._ids

    def all(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def finish_soon(self, waiter: Waiter) -> None:
        """End the wait of `waiter` at the end of this turn, with all others that end by then."""
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._finish_ready)
        self._ready.append(waiter)

    def _finish_ready(self) -> None:
        ready, self._ready = self._ready, []
        for waiter in ready:
            waiter.finish()

    async def recover(self, topics: Iterable[Topic]) -> None:
        """Open the logs of `topics`, and let the loop turn meanwhile: probes want an answer."""
        loop = asyncio.get_running_loop()
        turned = loop.time()
        for topic in topics:
            config = self._log_config(self._settings_of(topic))
            for index in range(len(topic.partitions)):
                name = str(TopicPartition(topic.name, index))
                self._directory.open_log(name, config, topic_id=topic.topic_id)
                if loop.time() - turned > RECOVERY_TURN_SECONDS:
                    await asyncio.sleep(0)
                    turned = loop.time()

    # -- what the cluster tells

    def on_topic_created(self, topic: Topic) -> None:
        self.on_partitions_added(topic, 0)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        settings = self._settings_of(topic)
        self._ids.add(topic.topic_id.bytes)
        for index in range(first_new, len(topic.partitions)):
            partition = self._open(topic, index, settings)
            self._by_name[topic.name, index] = partition
            self._by_id[topic.topic_id.bytes, index] = partition

    def on_config_changed(self, topic: Topic) -> None:
        settings = self._settings_of(topic)
        config, rules = self._log_config(settings), _rules(settings)
        for index in range(len(topic.partitions)):
            partition = self._by_name[topic.name, index]
            partition.configure(config, rules)

    def on_topic_deleted(self, topic: Topic) -> None:
        self._ids.discard(topic.topic_id.bytes)
        for index in range(len(topic.partitions)):
            partition = self._by_name.pop((topic.name, index))
            del self._by_id[topic.topic_id.bytes, index]
            self._directory.delete_log(str(partition.topic_partition))
            partition.wake()

    def _open(self, topic: Topic, index: int, settings: TopicSettings) -> Partition:
        name = TopicPartition(topic.name, index)
        log = self._directory.open_log(
            str(name), self._log_config(settings), topic_id=topic.topic_id)
        partition = Partition(name, topic.topic_id, log, _rules(settings))
        if log.failure is not None:
            _log.error("%s is offline: %s", name, log.failure)
        return partition

    def _log_config(self, settings: TopicSettings) -> LogConfig:
        deletes = "delete" in settings.cleanup_policy
        return LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
            retention_ms=settings.retention_ms if deletes else -1,
            retention_bytes=settings.retention_bytes if deletes else -1,
            flush_messages=settings.flush_messages,
            flush_ms=settings.flush_ms,
            producer_expiration_ms=self._producer_expiration_ms,
        )


def _rules(settings: TopicSettings) -> Rules:
    return Rules(
        batch_size_max=settings.max_message_bytes,
        append_time=settings.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
        timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
        min_insync_replicas=settings.min_insync_replicas,
    )
