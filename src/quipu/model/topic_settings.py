"""What a topic can be told, spelled as Kafka spells it: the table and its typed values.

A topic's settings are its own overrides on top of the broker's: the `broker` column names where a
default comes from.  Every number declares the least and the most that it may be.

Not here: what a broker can be told (broker_settings), reading and rendering values (settings).
"""

from dataclasses import dataclass
from typing import Final

from quipu.model.settings_types import (
    INT_MAX,
    LONG_MAX,
    boolean,
    choice,
    choices,
    int32,
    int64,
    ratio,
)

BATCH_SIZE_LOW: Final = 100  # a batch of one small record
SEGMENT_SIZE_LOW: Final = 1 << 14  # a segment is a file that begins with a checkpoint
SEGMENT_MS_LOW: Final = 100  # a segment is a file: ten a second are many
REPLICAS_MAX: Final = 100
DECOMPRESSED_SIZE_LOW: Final = 1 << 20
DECOMPRESSED_SIZE_HIGH: Final = 256 << 20  # readers of whole batches have to hold one, too
RECORDS_CHECKS: Final = ("all", "uncompressed", "none")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = ("delete", "compact")

_HOUR_MS: Final = 60 * 60_000
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_NO_COMPACTION: Final = "compaction is a later feature; a compacted topic keeps every record."
_BY_HAND: Final = "data is lost only when someone asks for it, by an unclean election."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What a topic can be told; everything may be changed while it is in use."""

    cleanup_policy: tuple[str, ...] = choices(
        ("delete",), CLEANUP_POLICIES, broker=("log.cleanup.policy",),
        about="What happens to old records. With delete, retention applies. With compact alone "
        "nothing is deleted; compaction itself is a later feature, so every record is kept.")
    compression_type: str = choice(
        "producer", ("producer",), broker=("compression.type",),
        about="Compression of stored batches: as the producer sent them. Kafka's other values are "
        "refused, since this broker never compresses anew; set it at the producer.")
    delete_retention_ms: int = int64(
        _DAY_MS, "How long a compacted topic keeps tombstones.", ignored=_NO_COMPACTION,
        low=0, high=LONG_MAX)
    file_delete_delay_ms: int = int64(
        60_000, "How long the files of a deleted segment stay.",
        ignored="files go at once; readers keep what they have mapped.", low=0, high=LONG_MAX)
    flush_messages: int = int64(
        LONG_MAX, broker=("log.flush.interval.messages",),
        about="Records after which the log is flushed to disk. With 1 an answer to acks=1 or "
        "acks=all waits until the records are flushed.", low=1, high=LONG_MAX)
    flush_ms: int = int64(
        1000, "Time after which the log is flushed to disk.",
        broker=("log.flush.interval.ms",), low=1, high=LONG_MAX)
    index_interval_bytes: int = int32(
        4096, "Bytes of log between two entries of its index.",
        broker=("log.index.interval.bytes",), low=64, high=_GIB)
    max_compaction_lag_ms: int = int64(
        LONG_MAX, "Longest time for which a record stays uncompacted.",
        ignored=_NO_COMPACTION, low=1, high=LONG_MAX)
    max_decompressed_message_bytes: int = int32(
        64 * _MIB, "Size of the records of one compressed batch once they are decompressed, at "
        "most; a batch that may exceed it is refused before memory is taken for it.",
        broker=("message.decompressed.max.bytes",),
        low=DECOMPRESSED_SIZE_LOW, high=DECOMPRESSED_SIZE_HIGH)
    max_message_bytes: int = int32(
        1_048_588, "Size of one batch of records, at most.", broker=("message.max.bytes",),
        low=BATCH_SIZE_LOW, high=_GIB)
    message_records_check: str = choice(
        "all", RECORDS_CHECKS, broker=("log.message.records.check",),
        about="Which batches are stored only if their records are what their header says, so that "
        "no consumer stops at one: all, or only uncompressed ones, which saves their "
        "decompression, or none. With none, keys are not asked for on compacted topics either.")
    message_timestamp_after_max_ms: int = int64(
        _HOUR_MS, "How far a record's time may lie in the future.",
        broker=("log.message.timestamp.after.max.ms",), low=0, high=LONG_MAX)
    message_timestamp_before_max_ms: int = int64(
        LONG_MAX, "How far a record's time may lie in the past.",
        broker=("log.message.timestamp.before.max.ms",), low=0, high=LONG_MAX)
    message_timestamp_type: str = choice(
        "CreateTime", TIMESTAMP_TYPES, broker=("log.message.timestamp.type",),
        about="Whether a record's time is its producer's or that of its arrival.")
    min_cleanable_dirty_ratio: float = ratio(
        0.5, "Share of a log that must be uncompacted before it is compacted.",
        ignored=_NO_COMPACTION)
    min_compaction_lag_ms: int = int64(
        0, "Shortest time for which a record stays uncompacted.", ignored=_NO_COMPACTION,
        low=0, high=LONG_MAX)
    min_insync_replicas: int = int32(
        0, "Nodes of the chain that must serve for writes with acks=all to be taken; 0: all of "
        "them, and then for any write.", broker=("min.insync.replicas",), low=0, high=REPLICAS_MAX)
    preallocate: bool = boolean(
        "Reserve a segment's space on disk when it is created.", default=False,
        ignored="space is taken as it is needed.")
    retention_bytes: int = int64(
        -1, "Size of a partition beyond which its oldest segments are deleted, -1: any.",
        broker=("log.retention.bytes",), low=-1, high=LONG_MAX)
    retention_ms: int = int64(
        7 * _DAY_MS, "Age at which a segment is deleted, -1: never.",
        broker=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        low=-1, high=LONG_MAX)
    segment_bytes: int = int32(
        1 << 30, "Size at which a segment file is closed and a new one begun.",
        broker=("log.segment.bytes",), low=SEGMENT_SIZE_LOW, high=INT_MAX)
    segment_index_bytes: int = int32(
        10 * _MIB, "Size of an index at which its segment is closed.",
        broker=("log.index.size.max.bytes",), low=1024, high=_GIB)
    segment_jitter_ms: int = int64(
        0, "Random part of segment.ms, so that segments do not all roll at once.",
        ignored="closing a segment is cheap here.", low=0, high=LONG_MAX)
    segment_ms: int = int64(
        7 * _DAY_MS, "Age at which a segment is closed and a new one begun.",
        broker=("log.roll.ms", "log.roll.hours"), low=SEGMENT_MS_LOW, high=LONG_MAX)
    unclean_leader_election_enable: bool = boolean(
        "Let a replica lead that has not got every record.", default=False,
        ignored=_BY_HAND)
