"""The settings of one log, with Kafka's defaults."""

from dataclasses import dataclass
from typing import Final

NEVER: Final = 2**63 - 1  # Kafka's way to say that a limit is off

_LOWEST: Final = {"segment_ms": 1, "index_interval_bytes": 0, "index_max_bytes": 4,
                  "flush_messages": 1, "flush_ms": 0, "producer_expiration_ms": 1,
                  "producer_retry_ms": 1, "producers_max": 1, "delete_retention_ms": 0,
                  "min_compaction_lag_ms": 0, "max_compaction_lag_ms": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Named as Kafka's topic settings are; -1 turns a retention off, `NEVER` a flush."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_max_bytes: int = 10 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    is_tiered: bool = False  # remote.storage.enable
    is_copied: bool = True  # unless remote.log.copy.disable
    local_retention_ms: int = -1  # of what the tier has, if the log is tiered
    local_retention_bytes: int = -1
    flush_messages: int = NEVER
    flush_ms: int = 1000
    producer_expiration_ms: int = 24 * 3600 * 1000
    producer_retry_ms: int = 300_000
    producers_max: int = 20_000
    compacts: bool = False  # cleanup.policy includes compact: batches may have holes
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= 2**31 - 1:
            raise ValueError(f"segment.bytes {self.segment_bytes} is outside [1, 2^31 - 1]")
        for name, low in _LOWEST.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least {low}")

    @property
    def is_durable(self) -> bool:
        """Does an acknowledgement wait for the disk?"""
        return self.flush_messages == 1
