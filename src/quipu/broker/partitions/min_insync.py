"""Checks that enough replicas serve for a write: min.insync.replicas."""

from typing import Final

from quipu.model.chains import ReplicaSet
from quipu.model.ids import TopicPartition
from quipu.model.partition_log import ACKS_ALL

ALL_REPLICAS: Final = 0  # min.insync.replicas = 0: all replicas, for writes with any acks


def why_too_few(
    name: TopicPartition, minimum: int, replica_set: ReplicaSet, first: ReplicaSet | None,
    acks: int,
) -> str | None:
    """The error message if too few replicas serve for a write with `acks`, else None.

    `first` is the first replica set of the epoch: if all replicas are required, those that joined
    later are not.
    """
    least, serving = minimum, len(replica_set.serving)
    if minimum == ALL_REPLICAS:
        known = replica_set if first is None else first
        least = len(set(known.replicas) & set(replica_set.replicas))
    elif acks != ACKS_ALL:
        return None
    if serving >= least:
        return None
    return (f"{name}: {serving} of the chain's nodes serve, and "
            f"min.insync.replicas = {minimum} asks for {least}")
