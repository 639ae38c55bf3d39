"""Waits until a partition's end offset is safe to return: not below what any client has read.

The tail of a chain is the first to know that a record is committed, and gives it to consumers; the
head learns of it later.  If the head returned the high watermark that it knows, a client could get
an end offset below records that it has read at the tail.  But no node can have given more than the
head's log holds.  So a request for the end offset notes the end of the log, waits until everything
below it is committed, and then returns the high watermark; if that takes too long, it fails with
OFFSET_NOT_AVAILABLE, which clients retry.

The end of a diskless log is known to the control plane alone: it is asked for instead.

Invariants
    broker.partitions.E1  an end offset in a response is not below any record that any node gave to
                          a client, nor below any end offset that any leader returned, before the
                          request came
    broker.partitions.E2  this node leads and holds its lease both when the wait begins and when the
                          response is made
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.partitions.partition_errors import OffsetNotAvailable
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import LogOffset
from quipu.model.partition_log import PartitionLog

WAIT_MS: Final = 1000  # for other nodes; later requests of the connection wait meanwhile
DISKLESS_WAIT_MS: Final = 5000  # for the control plane
UNKNOWN_END: Final = LogOffset(1 << 62)  # that nothing reaches
VERSION_OFFSET_NOT_AVAILABLE: Final = 5  # of ListOffsets: older versions do not have the code

LogEnds = dict[PartitionLog, LogOffset]  # below which everything must be committed


async def wait_until_committed(partitions: Iterable[PartitionLog]) -> LogEnds:
    """Wait, for WAIT_MS at most, until everything in the logs of `partitions` is committed.

    Returns where the logs ended when the wait began, for `check_committed`.
    """
    log_ends = {partition: partition.log_end for partition in partitions}
    diskless = [partition for partition in log_ends if partition.is_diskless]
    log_ends.update(dict.fromkeys(diskless, UNKNOWN_END))
    waiting = [partition.committed(log_end, timeout_ms=WAIT_MS)
               for partition, log_end in log_ends.items()
               if partition.committed_end < log_end and not partition.is_diskless]
    waiting += [_learn_end(partition, log_ends) for partition in diskless]
    if waiting:
        with suppress(TimeoutError):
            async with asyncio.timeout((DISKLESS_WAIT_MS if diskless else WAIT_MS) / 1000):
                await asyncio.gather(*waiting, return_exceptions=True)
    return log_ends


async def _learn_end(partition: PartitionLog, log_ends: LogEnds) -> None:
    await partition.refresh()
    log_ends[partition] = partition.log_end


def check_committed(partition: PartitionLog, log_ends: LogEnds) -> None:
    """Raise unless everything below the partition's end in `log_ends` is committed."""
    # broker.partitions.E1
    if partition.committed_end < log_ends.get(partition, partition.log_end):
        raise OffsetNotAvailable(
            f"{partition.topic_partition}: the end is not known yet, because other nodes or the "
            "control plane have not responded: ask again")


def code_for(error: QuipuError, version: int) -> Code:
    """The code of an error in a response to ListOffsets of `version`."""
    if code_of(error) is Code.OFFSET_NOT_AVAILABLE and version < VERSION_OFFSET_NOT_AVAILABLE:
        return Code.LEADER_NOT_AVAILABLE
    return code_of(error)
