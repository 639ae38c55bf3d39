"""Which batches a topic accepts, according to its settings."""

from typing import Final, NamedTuple

from quipu.model.settings import TopicSettings

NO_LIMIT_MS: Final = (1 << 63) - 1
AS_PRODUCED: Final = -1  # compression.type=producer
_CODECS: Final = {  # the numbers that a batch's attributes have
    "producer": AS_PRODUCED, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_GZIP_OWN_LEVEL: Final = -1


class BatchRules(NamedTuple):
    """The limits that a batch must meet to be appended to a topic."""

    batch_size_max: int
    append_time: bool  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_insync_replicas: int | None  # None: all replicas but one
    checks_plain: bool = True  # message.records.check, for batches that are not compressed
    checks_compressed: bool = True  # message.records.check, for compressed batches
    takes_any_age: bool = True  # message.timestamp.before.max.ms sets no limit
    keyed: bool = False  # cleanup.policy includes compact: every record needs a key
    decompressed_size_max: int = 64 << 20
    codec: int = AS_PRODUCED  # compression.type: the number of the codec of stored batches
    level: int | None = None  # of compression; None: the codec's own


def rules_of(settings: TopicSettings) -> BatchRules:
    """The batch rules of a topic with these `settings`."""
    return BatchRules(
        batch_size_max=settings.max_message_bytes,
        append_time=settings.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
        timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
        min_insync_replicas=settings.min_insync_replicas,
        checks_plain=settings.message_records_check != "none",
        checks_compressed=settings.message_records_check == "all",
        takes_any_age=settings.message_timestamp_before_max_ms == NO_LIMIT_MS,
        keyed="compact" in settings.cleanup_policy,
        decompressed_size_max=settings.max_decompressed_message_bytes,
        codec=_CODECS[settings.compression_type],
        level=_level(settings),
    )


def _level(settings: TopicSettings) -> int | None:
    match settings.compression_type:
        case "gzip" if settings.compression_gzip_level != _GZIP_OWN_LEVEL:
            return settings.compression_gzip_level
        case "lz4":
            return settings.compression_lz4_level
        case "zstd":
            return settings.compression_zstd_level
        case _:
            return None
