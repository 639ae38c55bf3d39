"""The replicas of new partitions: one in each rack, on the least loaded broker there.

The first replica is the preferred leader.  It is the one whose broker is preferred for the fewest
partitions; the others follow in the order of the racks.
"""

from collections.abc import Iterator

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId


def place(topology: Topology, load: ReplicaLoad, count: int) -> Iterator[tuple[NodeId, ...]]:
    """The replicas of `count` new partitions, which are added to `load`.

    Racks without a broker that is up get no replica; there must be another rack.
    """
    racks = [topology.eligible[rack] for rack in topology.racks if rack in topology.eligible]
    assert racks, "there must be a broker to place partitions on"
    columns = [load.take_many(brokers, count) for brokers in racks]
    known: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}  # equal ones are one value
    for replicas in zip(*columns, strict=True):
        ordered = _led_by(load.prefer(replicas), replicas)
        yield known.setdefault(ordered, ordered)


def _led_by(first: NodeId, replicas: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """`replicas` with `first` in front, and the others after it as in a circle."""
    index = replicas.index(first)
    return replicas[index:] + replicas[:index]
