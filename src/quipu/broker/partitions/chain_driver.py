"""The protocol between a partition and the driver of its chain; the status of its replication."""

from typing import TYPE_CHECKING, Protocol

from quipu.broker.partitions.partition_errors import Halted
from quipu.chain.replica import Replica
from quipu.model.partition_log import ReplicationStatus
from quipu.storage.log import AppendedBatch

if TYPE_CHECKING:  # it holds the driver
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition


class ChainDriver(Protocol):
    """Drives the replication of one partition; see `replication.partition_chain`."""

    @property
    def replica(self) -> Replica | None:
        """The replication core; None until something has to be replicated."""
        ...

    def begin_epoch(self) -> None:
        """Write the epoch's configuration batch, before the first append of the epoch."""
        ...

    def appended(self) -> None:
        """Replicate what was appended to the log."""
        ...

    def appended_batch(self, appended: AppendedBatch, batch: memoryview) -> None:
        """Replicate a client's batch; `batch` is valid only during the call."""
        ...


def status_of(partition: "ReplicatedPartition") -> ReplicationStatus | None:
    """The role and the lag of this node's replica; None before it was given a role."""
    replica_set, chain = partition.replica_set, partition.chain
    if replica_set is None or chain is None:
        return None
    core = chain.replica
    return ReplicationStatus(
        role="alone" if core is None or partition.is_sole_replica else core.role.value,
        epoch=replica_set.epoch,
        is_only_member=partition.is_sole_replica and len(replica_set.members) == 1,
        is_leader=partition.is_leader,
        is_under_replicated=(
            partition.is_leader and len(replica_set.serving) < len(replica_set.members)),
        is_under_min_isr=partition.is_leader and partition.shortages[0] is not None,
        is_halted=isinstance(partition.log.failure, Halted), lag=core.relay.lag if core else 0,
        lag_after=core.relay.successor_lag if core else 0,
        in_flight_size=core.relay.in_flight_size if core else 0)
