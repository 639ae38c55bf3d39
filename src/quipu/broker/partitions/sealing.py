"""A sealed partition: its chain serves reads and takes no batches of clients (controller.G1).

    append --> refused with NOT_LEADER_OR_FOLLOWER, which producers retry after they have asked for
               metadata: before the switch they come back here, after it the partition is diskless

Records are neither removed nor expire: what the tier has must stay what its head has said.

Invariant
    broker.partitions.S1  every batch that is refused because of the seal is made known to the
                          writer of diskless topics on this node, so that later ones of its producer
                          are not taken before it after the switch (diskless.W4)
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quipu.broker.partitions.partition_errors import NotLeader
from quipu.diskless.values import LogKey
from quipu.wire.record_batch import HEADER_SIZE, BatchHeader, parse_header

if TYPE_CHECKING:  # it calls this
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition

NoteRefused = Callable[[LogKey, BatchHeader], None]


def check_open(partition: "ReplicatedPartition", batch: memoryview) -> None:
    """Raise if `partition` takes no batches of clients."""
    if not partition.is_sealed:
        return
    if partition.note_refused is not None and len(batch) >= HEADER_SIZE:
        key = LogKey(partition.topic_id, partition.topic_partition.partition)
        partition.note_refused(key, parse_header(batch))  # broker.partitions.S1
    raise sealed_error(partition)


def sealed_error(partition: "ReplicatedPartition") -> NotLeader:
    return NotLeader(f"{partition.topic_partition}: it is becoming diskless, and takes no writes "
                     "until it is; try again")
