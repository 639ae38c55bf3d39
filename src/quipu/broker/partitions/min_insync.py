"""Checks that enough replicas serve for a write: min.insync.replicas."""

from quipu.model.chains import ALL_REPLICAS, ReplicaSet, least_in_sync
from quipu.model.ids import TopicPartition
from quipu.model.partition_log import ACKS_ALL


def why_too_few(
    name: TopicPartition, setting: int | None, replica_set: ReplicaSet, first: ReplicaSet | None,
    acks: int,
) -> str | None:
    """The error message if too few replicas serve for a write with `acks`, else None.

    `first` is the first replica set of the epoch: replicas that joined later do not count, nor do
    those that the partition is being moved to.  So adding replicas does not stop writes.
    """
    if setting != ALL_REPLICAS and acks != ACKS_ALL:
        return None
    known = set(replica_set.replicas if first is None else first.replicas)
    counted = known.intersection(replica_set.replicas) - replica_set.arriving
    least = least_in_sync(setting, len(counted) or len(replica_set.replicas))
    serving = len(replica_set.serving)
    if serving >= least:
        return None
    shown = "not set" if setting is None else setting
    return (f"{name}: {serving} of {len(counted)} replicas {'is' if serving == 1 else 'are'} in "
            f"sync, and writes need {least} (min.insync.replicas is {shown})")
