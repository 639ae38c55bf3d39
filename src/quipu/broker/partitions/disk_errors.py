"""Logs that a disk refuses a partition's batches, but not for every batch: producers retry."""

import logging
from typing import Final

from quipu.model.ids import TopicPartition
from quipu.runtime.disks.disk import DiskError

DISK_ERROR_LOG_MS: Final = 10_000  # between two log lines about one partition

_log = logging.getLogger(__name__)


class DiskErrorLog:
    """The refusals of one partition's disk."""

    __slots__ = ("_logged_ms", "_topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self._logged_ms = 0  # when a refusal was last logged

    def note(self, error: DiskError, now_ms: int) -> None:
        """Log the error, at most once in DISK_ERROR_LOG_MS."""
        if now_ms - self._logged_ms >= DISK_ERROR_LOG_MS:
            self._logged_ms = now_ms
            _log.error("%s: a batch was refused: %s", self._topic_partition, error)
