"""The table of a topic's settings, with Kafka's names, and their typed values.

A topic has its own values for some settings and inherits the others from the broker: `broker`
names the broker's settings that the default comes from.  Every number declares its minimum and
maximum.

Not here: the settings of a broker (broker_settings), looking up and parsing values (settings).
"""

from dataclasses import dataclass
from typing import Final

from quipu.model.remote_settings import AS_RETENTION
from quipu.model.settings_rules import GZIP_LEVELS
from quipu.model.settings_types import (
    INT_MAX,
    LONG_MAX,
    boolean,
    choice,
    choices,
    int32,
    int64,
    optional_int32,
    ratio,
    ruled,
)
from quipu.model.throttle_settings import NO_REPLICAS, THROTTLED_REPLICAS

BATCH_SIZE_LOW: Final = 100  # a batch of one small record
SEGMENT_SIZE_LOW: Final = 1 << 14  # a segment is a file that begins with a checkpoint
SEGMENT_MS_LOW: Final = 100  # a segment is a file: ten a second are many
REPLICAS_MAX: Final = 100
DECOMPRESSED_SIZE_LOW: Final = 1 << 20
DECOMPRESSED_SIZE_HIGH: Final = 256 << 20  # a consumer has to hold a whole batch in memory
RECORDS_CHECKS: Final = ("all", "uncompressed", "none")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = ("delete", "compact")
ROTATE_AUTO: Final = "auto"
ROTATE_ON: Final = "true"
ROTATIONS: Final = (ROTATE_AUTO, ROTATE_ON, "false")
SPREAD_PARTITIONS: Final = "partition"
SPREADS: Final = ("topic", SPREAD_PARTITIONS)
COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
GZIP_LEVEL_DEFAULT: Final = -1
LZ4_LEVEL_MAX: Final = 17
ZSTD_LEVEL_MIN: Final = -131_072
ZSTD_LEVEL_MAX: Final = 22

_HOUR_MS: Final = 60 * 60_000
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_BY_HAND: Final = "only an unclean election that an operator requests may lose records."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of one topic; all may be changed while the topic is in use."""

    chain_rotate: str = choice(
        ROTATE_AUTO, ROTATIONS, broker=("chain.rotate",),
        about="Whether each partition has its own order of the nodes of its chain, so that all of "
        "them lead partitions and serve reads. auto: see the broker's setting. It holds for "
        "partitions that are created from now on.")
    chain_spread: str = choice(
        "topic", SPREADS, broker=("chain.spread",),
        about="What is placed on one chain: a topic as a whole, or each partition for itself, "
        "round all chains that fit. It holds for partitions that are created from now on.")
    cleanup_policy: tuple[str, ...] = choices(
        ("delete",), CLEANUP_POLICIES, broker=("log.cleanup.policy",),
        about="What happens to old records. With delete, retention removes old segments. With "
        "compact, only the last record of each key is kept; records without a key are refused, "
        "and those from before are removed. Both may be combined.")
    compression_gzip_level: int = ruled(
        GZIP_LEVEL_DEFAULT, GZIP_LEVELS, "Level of compression.type=gzip; -1 is gzip's own.",
        broker=("compression.gzip.level",))
    compression_lz4_level: int = int32(
        9, "Level of compression.type=lz4: from 3 on, smaller batches and more work.",
        broker=("compression.lz4.level",), low=1, high=LZ4_LEVEL_MAX)
    compression_type: str = choice(
        "producer", COMPRESSION_TYPES, broker=("compression.type",),
        about="Compression of stored batches. With `producer` they are stored as they were sent. "
        "With uncompressed, gzip, snappy, lz4 or zstd, the leader compresses those again that "
        "differ, in threads: work that a producer could have done.")
    compression_zstd_level: int = int32(
        3, "Level of compression.type=zstd.", broker=("compression.zstd.level",),
        low=ZSTD_LEVEL_MIN, high=ZSTD_LEVEL_MAX)
    delete_retention_ms: int = int64(
        _DAY_MS, "Milliseconds for which a compacted topic keeps a tombstone, a record without a "
        "value, after it was first compacted. A consumer that reads the topic from its start must "
        "be done in this time, or it may miss deletions.",
        broker=("log.cleaner.delete.retention.ms",), low=0, high=LONG_MAX)
    diskless_enable: bool = boolean(
        "Keep the topic's records in object storage alone, which any broker writes to and reads "
        "from. Only when the topic is created; it needs diskless.storage.system.enable on the "
        "brokers, and cleanup.policy=delete. Settings of segments, flushes and replicas have no "
        "effect then.", default=False)
    file_delete_delay_ms: int = int64(
        60_000, "Milliseconds after which the files of a deleted segment are removed.",
        broker=("log.segment.delete.delay.ms",),
        ignored="files are removed at once; open reads keep their mapped bytes.", low=0,
        high=LONG_MAX)
    flush_messages: int = int64(
        LONG_MAX, broker=("log.flush.interval.messages",),
        about="Number of records after which a log is flushed to disk. With 1, a response to "
        "acks=1 or acks=all is sent only after the records are on disk.", low=1, high=LONG_MAX)
    flush_ms: int = int64(
        1000, "Milliseconds after which new records of a log are flushed to disk.",
        broker=("log.flush.interval.ms",), low=1, high=LONG_MAX)
    follower_replication_throttled_replicas: tuple[str, ...] = ruled(
        NO_REPLICAS, THROTTLED_REPLICAS,
        "Replicas that receive at most their node's follower.replication.throttled.rate while "
        "they catch up: * for all, or PARTITION:BROKER,PARTITION:BROKER.")
    index_interval_bytes: int = int32(
        4096,
        "Bytes of log between two entries of the segment's index; fewer bytes make lookups read "
        "less and the index larger.", broker=("log.index.interval.bytes",), low=64, high=_GIB)
    leader_replication_throttled_replicas: tuple[str, ...] = ruled(
        NO_REPLICAS, THROTTLED_REPLICAS,
        "Replicas that send at most their node's leader.replication.throttled.rate to the next "
        "node of the chain while that catches up: * for all, or PARTITION:BROKER,PARTITION:BROKER.")
    local_retention_bytes: int = int64(
        AS_RETENTION, broker=("log.local.retention.bytes",),
        about="Size in bytes of a partition's local segments above which the oldest of those that "
        "the remote tier has are deleted locally; -1: no limit, -2: as retention.bytes. For topics "
        "with remote.storage.enable.", low=AS_RETENTION, high=LONG_MAX)
    local_retention_ms: int = int64(
        AS_RETENTION, broker=("log.local.retention.ms",),
        about="Age in milliseconds at which a segment that the remote tier has is deleted locally; "
        "-1: never, -2: as retention.ms. For topics with remote.storage.enable.",
        low=AS_RETENTION, high=LONG_MAX)
    max_compaction_lag_ms: int = int64(
        LONG_MAX, "Longest time in milliseconds for which a record stays uncompacted: older "
        "segments are compacted whatever the ratio of dirty bytes is, and a segment is closed at "
        "that age.", broker=("log.cleaner.max.compaction.lag.ms",), low=1, high=LONG_MAX)
    max_decompressed_message_bytes: int = int32(
        64 * _MIB,
        "Largest size in bytes of the records of one compressed batch after decompression; a "
        "batch that may exceed it is refused before memory is allocated for it.",
        broker=("message.decompressed.max.bytes",), low=DECOMPRESSED_SIZE_LOW,
        high=DECOMPRESSED_SIZE_HIGH)
    max_message_bytes: int = int32(
        1_048_588,
        "Largest size in bytes of one batch of records; a larger batch is refused with "
        "MESSAGE_TOO_LARGE.", broker=("message.max.bytes",), low=BATCH_SIZE_LOW, high=_GIB)
    message_records_check: str = choice(
        "all", RECORDS_CHECKS, broker=("log.message.records.check",),
        about="Which batches are stored only after their records were found to match the batch "
        "header, so that no consumer fails on them: all, only uncompressed ones, which saves the "
        "decompression, or none. With none, records without a key are also accepted on compacted "
        "topics.")
    message_timestamp_after_max_ms: int = int64(
        _HOUR_MS,
        "Largest time in milliseconds by which a record's timestamp may lie after the broker's "
        "clock; a later record is refused.", broker=("log.message.timestamp.after.max.ms",), low=0,
        high=LONG_MAX)
    message_timestamp_before_max_ms: int = int64(
        LONG_MAX,
        "Largest time in milliseconds by which a record's timestamp may lie before the broker's "
        "clock; an older record is refused.", broker=("log.message.timestamp.before.max.ms",),
        low=0, high=LONG_MAX)
    message_timestamp_type: str = choice(
        "CreateTime", TIMESTAMP_TYPES, broker=("log.message.timestamp.type",),
        about="Which timestamp is stored: CreateTime, the one that the producer set, or "
        "LogAppendTime, the broker's time when it appended the batch.")
    min_cleanable_dirty_ratio: float = ratio(
        0.5, "Fraction of the bytes of a log that must be uncompacted before it is compacted.",
        broker=("log.cleaner.min.cleanable.ratio",))
    min_compaction_lag_ms: int = int64(
        0, "Shortest time in milliseconds for which a record stays uncompacted.",
        broker=("log.cleaner.min.compaction.lag.ms",), low=0, high=LONG_MAX)
    min_insync_replicas: int | None = optional_int32(
        "Number of in-sync replicas below which writes with acks=all are refused; more than there "
        "are replicas means all of them. If not set, it is one less than the number of replicas, "
        "and at least 1. 0 means all replicas, and then writes with any acks are refused.",
        broker=("min.insync.replicas",), low=0, high=REPLICAS_MAX)
    preallocate: bool = boolean(
        "Reserve a segment's space on disk when it is created.", default=False,
        broker=("log.preallocate",), ignored="space is allocated as segments grow.")
    remote_log_copy_disable: bool = boolean(
        "Copy no more segments to the remote tier; those that it has can be read until they "
        "expire. Local segments are then kept for as long as retention.ms and retention.bytes "
        "say.", default=False)
    remote_log_delete_on_disable: bool = boolean(
        "Delete what the remote tier has of the topic when remote.storage.enable is set to false, "
        "which is refused otherwise.", default=False)
    remote_storage_enable: bool = boolean(
        "Copy complete segments to the remote tier, and delete them locally by "
        "local.retention.ms and local.retention.bytes; retention.ms and retention.bytes then "
        "apply to both tiers together. Needs remote.log.storage.system.enable on the brokers, and "
        "cleanup.policy=delete.", default=False)
    retention_bytes: int = int64(
        -1,
        "Size in bytes of a partition above which its oldest segments are deleted; -1: no limit.",
        broker=("log.retention.bytes",), low=-1, high=LONG_MAX)
    retention_ms: int = int64(
        7 * _DAY_MS, "Age in milliseconds at which a segment is deleted; -1: never.",
        broker=("log.retention.ms", "log.retention.minutes", "log.retention.hours"), low=-1,
        high=LONG_MAX)
    segment_bytes: int = int32(
        1 << 30, "Size in bytes at which a segment file is closed and a new one is started.",
        broker=("log.segment.bytes",), low=SEGMENT_SIZE_LOW, high=INT_MAX)
    segment_index_bytes: int = int32(
        10 * _MIB,
        "Size in bytes of an index at which its segment is closed and a new one is started.",
        broker=("log.index.size.max.bytes",), low=1024, high=_GIB)
    segment_jitter_ms: int = int64(
        0,
        "Maximum random time in milliseconds subtracted from segment.ms, so that segments are not "
        "all closed at once.", broker=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ignored="closing a segment is cheap here.", low=0, high=LONG_MAX)
    segment_ms: int = int64(
        7 * _DAY_MS, "Age in milliseconds at which a segment is closed and a new one is started.",
        broker=("log.roll.ms", "log.roll.hours"), low=SEGMENT_MS_LOW, high=LONG_MAX)
    unclean_leader_election_enable: bool = boolean(
        "Allow a replica that lacks acknowledged records to become leader.", default=False,
        broker=("unclean.leader.election.enable",), ignored=_BY_HAND)
