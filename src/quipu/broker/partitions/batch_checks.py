"""Checks that a producer's batch keeps the rules of its topic, before it is appended.

Not here: what the rules are (model/batch_rules.py), the check of large compressed batches in
threads (broker/serving/record_checks.py).
"""

from contextlib import suppress
from typing import Final

from quipu.model.batch_rules import NO_LIMIT_MS, BatchRules
from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.model.ids import NO_TIMESTAMP, TopicPartition
from quipu.model.partition_log import CheckedRecords
from quipu.wire.fast import check_batch
from quipu.wire.record_batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_records,
    set_log_append_time,
    set_max_timestamp,
)
from quipu.wire.record_check import InvalidRecords, check_records
from quipu.wire.records import KEYLESS_MAX, are_plain

NAMED_MAX: Final = KEYLESS_MAX  # records that a refusal names: a response must stay small
READ_RECORDS_MAX: Final = 2_000  # of a batch that is read again to name its records ...
READ_BYTES_MAX: Final = 256 << 10  # ... and its bytes, decompressed or not


def check(
    batch: memoryview, rules: BatchRules, now_ms: int, name: TopicPartition,
    checked: CheckedRecords | None,
) -> BatchHeader:
    """Raise unless the batch keeps the rules; return its header, with its final timestamps.

    `checked` is the result of the check of its records, if they were checked before.  All in one
    function, because it is called for every batch.
    """
    header = check_batch(batch, size_max=rules.batch_size_max)
    if header.attributes & TRANSACTIONAL_BIT:
        raise RequestError("transactions are not served", code=Code.INVALID_TXN_STATE)
    if checked is None and (
            rules.checks_compressed if header.attributes
            else rules.checks_plain and not (
                rules.takes_any_age and are_plain(batch, rules.keyed))):
        checked = check_records(
            batch, header, keyed=rules.keyed, size_max=rules.decompressed_size_max)
    if rules.append_time:
        return set_log_append_time(batch, now_ms)
    if checked is not None and checked.newest != header.max_timestamp:
        header = set_max_timestamp(batch, checked.newest)
    if header.max_timestamp > now_ms + rules.timestamp_after_max_ms:
        raise _wrong_time(batch, header, rules, now_ms, (
            f"{name}: timestamp {header.max_timestamp} is more than "
            f"{rules.timestamp_after_max_ms} ms ahead of the broker's clock, {now_ms} "
            "(message.timestamp.after.max.ms)"))
    if rules.timestamp_before_max_ms != NO_LIMIT_MS:
        # If the records were not checked, the oldest is taken to be the header's base timestamp.
        oldest = header.base_timestamp if checked is None else checked.oldest
        if oldest != NO_TIMESTAMP and oldest < now_ms - rules.timestamp_before_max_ms:
            raise _wrong_time(batch, header, rules, now_ms, (
                f"{name}: timestamp {oldest} is more than "
                f"{rules.timestamp_before_max_ms} ms behind the broker's clock, {now_ms} "
                "(message.timestamp.before.max.ms)"))
    return header


def _wrong_time(
    batch: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int, message: str
) -> InvalidRecords:
    """The refusal of a batch for its timestamps; it names the records (KIP-467), up to NAMED_MAX.

    Batches that take long to read are refused without names.
    """
    newest = now_ms + rules.timestamp_after_max_ms
    oldest = now_ms - rules.timestamp_before_max_ms
    named: list[tuple[int, str]] = []
    if header.count <= READ_RECORDS_MAX and len(batch) <= READ_BYTES_MAX:
        with suppress(MalformedBytes):
            for record in decode_records(batch, size_max=READ_BYTES_MAX):
                time = record.timestamp
                if time > newest or (time < oldest and time != NO_TIMESTAMP):
                    named.append((record.offset - header.base_offset,
                                  f"timestamp {time} is not between {oldest} and {newest}"))
    return InvalidRecords(message, tuple(named[:NAMED_MAX]), code=Code.INVALID_TIMESTAMP)
