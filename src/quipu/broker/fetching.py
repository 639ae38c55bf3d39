"""Reading for a fetch: one pass over what a client fetches, within its limits.

The first batch found is taken whatever its size, so that a client with small limits gets on; after
it, limits hold.  What cannot be read is an error of its partition alone.

Not here: waiting and answering (handlers/k01_fetch.py), what is fetched (fetch_sessions.py).
"""

from typing import NamedTuple

from quipu.broker.context import Broker
from quipu.broker.fetch_sessions import FetchSession, FetchTarget
from quipu.broker.partition import Partition
from quipu.model.errors import Code, OffsetOutOfRange, QuipuError
from quipu.model.ids import Epoch, Offset
from quipu.wire.fetch_codec import FetchedPart


class Found(NamedTuple):
    """What one pass found."""

    parts: list[tuple[FetchTarget, FetchedPart]]
    size: int  # bytes of all records
    failed: bool  # something the client should hear of now


def read(broker: Broker, session: FetchSession, size_max: int) -> Found:
    """Read every target of the session once."""
    size_left = min(size_max, broker.settings.fetch_max_bytes)
    parts: list[tuple[FetchTarget, FetchedPart]] = []
    size = 0
    failed = False
    incremental = session.incremental
    for target in session:
        partition = broker.partitions.find_for_wire(target.topic, target.partition)
        if incremental and partition is not None and _is_quiet(target, partition):
            continue  # most of many partitions, most of the time
        part = _read_one(broker, target, partition, max(size_left, 0), min_one=size == 0)
        parts.append((target, part))
        size += part.size
        size_left -= part.size
        failed = failed or part.error_code != 0 or part.diverging_end_offset >= 0
    return Found(parts, size, failed)


def _is_quiet(target: FetchTarget, partition: Partition) -> bool:
    """Has the client read to the end, and been told all there is to tell?"""
    high_watermark = partition.high_watermark
    return (
        target.offset == high_watermark
        and target.told == (high_watermark, partition.log.log_start_offset)
        and partition.failed is None
        and check_epoch(target.leader_epoch, partition.leader_epoch) == 0
    )


def _read_one(
    broker: Broker,
    target: FetchTarget,
    partition: Partition | None,
    size_left: int,
    *,
    min_one: bool,
) -> FetchedPart:
    if partition is None:
        return FetchedPart(target.partition, _unknown(broker, target))
    if partition.failed is not None:
        return FetchedPart(target.partition, partition.failed.code)
    log = partition.log
    code = check_epoch(target.leader_epoch, partition.leader_epoch)
    if code:
        return FetchedPart(target.partition, code)
    high_watermark = partition.high_watermark
    diverging = _diverging(target, partition)
    if diverging is not None:
        return FetchedPart(
            target.partition, 0, high_watermark, high_watermark, log.log_start_offset,
            diverging_epoch=diverging[0], diverging_end_offset=diverging[1])
    try:
        records = log.read(
            Offset(target.offset), min(size_left, target.size_max),
            end=high_watermark, min_one=min_one)
    except OffsetOutOfRange:
        return FetchedPart(
            target.partition, Code.OFFSET_OUT_OF_RANGE, high_watermark, high_watermark,
            log.log_start_offset)
    except QuipuError as error:
        return FetchedPart(target.partition, error.code)
    return FetchedPart(
        target.partition, 0, high_watermark, high_watermark, log.log_start_offset,
        records, sum(map(len, records)))


def _unknown(broker: Broker, target: FetchTarget) -> Code:
    if isinstance(target.topic, str) or broker.partitions.knows_id(target.topic):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.UNKNOWN_TOPIC_ID


def check_epoch(asked: int, current: Epoch) -> int:
    """A client that knows another leader than there is must ask for metadata first."""
    if asked < 0 or asked == current:
        return 0
    return Code.FENCED_LEADER_EPOCH if asked < current else Code.UNKNOWN_LEADER_EPOCH


def _diverging(target: FetchTarget, partition: Partition) -> tuple[int, int] | None:
    """Where the client's history and this log part ways, if they do (KIP-595)."""
    if target.last_fetched_epoch < 0:
        return None
    epoch, end = partition.log.epoch_end(Epoch(target.last_fetched_epoch))
    if epoch == target.last_fetched_epoch and end >= target.offset:
        return None
    return epoch, end
