"""How records of a partition are removed: by DeleteRecords, and by retention.

Not here: which segments go (storage/retention.py).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quipu.broker.partitions import acknowledgements
from quipu.broker.partitions.acknowledgements import as_quipu_error
from quipu.broker.partitions.sealing import sealed_error
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset

if TYPE_CHECKING:  # it calls this
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition


def delete_records(
    partition: "ReplicatedPartition", before: Offset, now_ms: int, *, timeout_ms: int,
    done: Callable[[Offset | QuipuError], None],
) -> None:
    """Move the log start offset, to the high watermark for -1; `done` once it is committed.

    The records below it may be on this node, in a remote tier, or both.
    """
    partition.check_leader()
    if partition.is_sealed:  # broker.diskless.M2
        raise sealed_error(partition)
    partition.admit_internal()
    log = partition.log
    start = log.delete_records(before, now_ms, high_watermark=partition.high_watermark)
    partition.appended_internal()
    acknowledgements.when_committed(
        partition, log.log_end,
        lambda error: done(start if error is None else as_quipu_error(error)), timeout_ms)


def apply_retention(partition: "ReplicatedPartition", now_ms: int) -> int:
    """Remove old segments; returns how many.  Only the leader may roll a segment for that."""
    if partition.failure is not None or partition.is_sealed:  # broker.diskless.M2
        return 0
    log = partition.log
    log_end = log.log_end
    count = log.apply_retention(
        now_ms, high_watermark=partition.high_watermark, committed_log=partition.committed_end,
        may_roll=partition.is_leader)
    if log.log_end != log_end:
        partition.appended_internal()
    return count
