"""What a topic says about the batches it takes; see the settings of the same names."""

from typing import Final, NamedTuple

from quipu.model.errors import Code, RequestError
from quipu.model.ids import NO_TIMESTAMP
from quipu.model.settings import TopicSettings
from quipu.wire.record_batch import BatchHeader

NO_LIMIT_MS: Final = (1 << 63) - 1


class Rules(NamedTuple):
    """The settings of a topic that a batch must keep to."""

    batch_size_max: int
    append_time: bool  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_insync_replicas: int
    checks_plain: bool = True  # message.records.check, of batches that are not compressed
    checks_compressed: bool = True
    takes_any_age: bool = True  # message.timestamp.before.max.ms is not set
    keyed: bool = False  # cleanup.policy includes compact: every record needs a key
    decompressed_size_max: int = 64 << 20


def rules_of(settings: TopicSettings) -> Rules:
    """The rules that `settings` make."""
    return Rules(
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
    )


def check_time(
    rules: Rules, header: BatchHeader, now_ms: int, name: object, oldest: int | None = None
) -> None:
    """Refuse batches from too far in the past or the future.

    `oldest` is the least timestamp of the records, if they were looked at; else the header's base
    stands for it.
    """
    if header.max_timestamp > now_ms + rules.timestamp_after_max_ms:
        raise RequestError(
            f"{name}: timestamp {header.max_timestamp} is more than "
            f"{rules.timestamp_after_max_ms} ms ahead of the broker's clock, {now_ms} "
            "(message.timestamp.after.max.ms)", code=Code.INVALID_TIMESTAMP)
    if rules.timestamp_before_max_ms == NO_LIMIT_MS:
        return
    if oldest is None:
        oldest = header.base_timestamp
    if oldest != NO_TIMESTAMP and oldest < now_ms - rules.timestamp_before_max_ms:
        raise RequestError(
            f"{name}: timestamp {oldest} is more than "
            f"{rules.timestamp_before_max_ms} ms behind the broker's clock, {now_ms} "
            "(message.timestamp.before.max.ms)", code=Code.INVALID_TIMESTAMP)
