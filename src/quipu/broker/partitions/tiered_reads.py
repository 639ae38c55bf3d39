"""Reads and searches of a partition whose first records are only in the remote tier.

The tier is asked for offsets from the log start up to the local start; the log for all others.  If
this node has no access to the tier, clients get OFFSET_NOT_AVAILABLE, which they retry, and never
OFFSET_OUT_OF_RANGE, after which they would skip the records.

Not here: the tier (`quipu.model.tiered_log.RemoteReads`), local searches (time_lookup.py).
"""

from typing import TYPE_CHECKING

from quipu.broker.error_codes import code_of
from quipu.broker.partitions import time_lookup
from quipu.broker.partitions.partition_errors import OffsetNotAvailable
from quipu.model.errors import OffsetOutOfRange, QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import PendingRead, ReadResult, RunLong, TimestampAndOffset
from quipu.model.tiered_log import RemoteReads

if TYPE_CHECKING:  # it calls this
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition


def read(
    partition: "ReplicatedPartition", offset: Offset, max_bytes: int, *, min_one: bool, end: Offset
) -> ReadResult | PendingRead:
    """Read batches from the one that holds `offset`, which only the tier has, below `end`."""
    start = partition.log.log_start_offset
    assert start <= offset < partition.log.local_start_offset, (partition.topic_partition, offset)
    if offset >= end or (max_bytes <= 0 and not min_one):
        return ReadResult(0, end, end, start)  # nothing has to be fetched for that (model.P5)
    try:
        found = _tier_of(partition).read(partition, offset, max_bytes, min_one=min_one, end=end)
    except OffsetOutOfRange as error:
        return ReadResult(code_of(error), end, end, partition.log.log_start_offset)
    except QuipuError as error:
        return ReadResult(code_of(error))
    if not isinstance(found, list):
        return found
    return ReadResult(0, end, end, partition.log.log_start_offset, found, sum(map(len, found)))


async def find_timestamp(
    partition: "ReplicatedPartition", timestamp_ms: int, run_long: RunLong
) -> TimestampAndOffset | None:
    """The first record that is not before `timestamp_ms`: in the tier, else in the log."""
    log = partition.log
    start = log.log_start_offset
    while start < (end := log.local_start_offset):  # it may move meanwhile
        found = await _tier_of(partition).find_timestamp(
            partition, timestamp_ms, start=start, end=end)
        if found is not None:
            return found
        start = end
    return await time_lookup.carry_out(partition, log.search_timestamp(timestamp_ms), run_long)


async def find_max_timestamp(
    partition: "ReplicatedPartition", run_long: RunLong
) -> TimestampAndOffset | None:
    """The first of the records with the largest timestamp, in the tier and in the log."""
    log = partition.log
    start, found = log.log_start_offset, None
    while start < (end := log.local_start_offset):
        remote = await _tier_of(partition).find_max_timestamp(partition, start=start, end=end)
        found, start = _newer(found, remote), end
    return _newer(found, await time_lookup.carry_out(partition, log.search_newest(), run_long))


def _newer(
    first: TimestampAndOffset | None, second: TimestampAndOffset | None
) -> TimestampAndOffset | None:
    """The one with the larger timestamp; if they are equal, the first."""
    if first is None or second is None:
        return first or second
    return second if second.timestamp > first.timestamp else first


def _tier_of(partition: "ReplicatedPartition") -> RemoteReads:
    if partition.remote_reads is None:
        raise OffsetNotAvailable(
            f"{partition.topic_partition}: offsets below {partition.log.local_start_offset} are in "
            "the remote tier, which this node has no access to: set "
            "remote.log.storage.system.enable=true and remote.log.storage.url, and restart it")
    return partition.remote_reads
