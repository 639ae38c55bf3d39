"""Which brokers hold a new partition.

Brokers are taken in turn, in the order of their numbers, beginning one further for each partition,
so that leaders and replicas spread evenly.  Placement by rack builds on this when there are racks.
"""

from collections.abc import Sequence

from quipu.model.ids import NodeId


def place(brokers: Sequence[NodeId], *, partition: int, replicas: int) -> list[NodeId]:
    """The `replicas` brokers of a partition; the first one leads."""
    assert 1 <= replicas <= len(brokers), (replicas, len(brokers))
    assert partition >= 0, partition
    ordered = sorted(brokers)
    return [ordered[(partition + step) % len(ordered)] for step in range(replicas)]
