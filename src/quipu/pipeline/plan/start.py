"""Pass: finds the offsets of START OFFSET or START TIMESTAMP at which reading begins (I14).

A timestamp is resolved once.  The offsets belong to the topics that exist now, so the ids of these
topics are stored with them.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.external_facts import Unreachable
from quipu.pipeline.source import Start
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import Option

OFFSET_MAX = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find_start(draft: Draft) -> Draft:
    """Find the first offset of each partition; partitions not named begin at the earliest."""
    offset = draft.options.get("start offset")
    timestamps = [draft.options[name] for name in ("start timestamp", "kafka time offset")
                  if name in draft.options]
    if timestamps and offset is not None:
        raise SqlError("cannot specify START TIMESTAMP and START OFFSET at same time",
                       max(offset.span, timestamps[0].span), hint="leave one of them out")
    if offset is not None:
        return replace(draft, start=Start(_by_offset(draft, offset), _topic_ids(draft)))
    if timestamps:
        ids = _topic_ids(draft)  # before the offsets: a topic recreated in between is then noticed
        return replace(draft, start=Start(_by_timestamp(draft, timestamps[0]), ids))
    return draft


def _topic_ids(draft: Draft) -> Mapping[str, UUID]:
    with _asking_kafka(draft):
        return draft.facts.topic_ids(draft.location)


@contextmanager
def _asking_kafka(draft: Draft) -> Iterator[None]:
    try:
        yield
    except Unreachable as error:
        raise SqlError(f"Kafka cannot be reached: {error}", draft.statement.kafka.span,
                       hint="check the broker's address and that it runs") from error


def _by_offset(draft: Draft, option: Option) -> Mapping[str, Mapping[int, int]]:
    values = option.value if isinstance(option.value, tuple) else (option.value,)
    offsets = {}
    for partition, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= OFFSET_MAX:
            raise SqlError("START OFFSET must be a nonnegative integer", option.value_span,
                           hint="write START OFFSET (0, 10): one for each partition, from 0 on")
        offsets[partition] = value
    for topic, count in sorted(draft.partitions.items()):
        if len(offsets) > count:
            raise SqlError(f"START OFFSET specified more partitions ({len(offsets)}) than topic "
                           f"({topic}) contains ({count})", option.value_span,
                           hint=f"give at most {count}")
    return {topic: dict(offsets) for topic in draft.partitions}


def _by_timestamp(draft: Draft, option: Option) -> Mapping[str, Mapping[int, int]]:
    timestamp_ms = _timestamp_ms(option)
    if timestamp_ms < 0:
        timestamp_ms += draft.facts.now_ms()
        if timestamp_ms < 0:
            raise SqlError("Relative START TIMESTAMP must be smaller than current system "
                           "timestamp", option.value_span,
                           hint="write -3600000 for one hour ago")
    with _asking_kafka(draft):
        found = draft.facts.offsets_at(draft.location, timestamp_ms)
    return {topic: dict(offsets) for topic, offsets in found.items()}


def _timestamp_ms(option: Option) -> int:
    value = option.value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= OFFSET_MAX:
        return value
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
            if (milliseconds := (when - EPOCH) // timedelta(milliseconds=1)) >= 0:
                return milliseconds
    raise SqlError("invalid START TIMESTAMP: cannot use value as number", option.value_span,
                   hint="write milliseconds since 1970, a negative number of milliseconds before "
                        "now, or '2024-01-31T12:00:00Z'")
