"""The replicas of new partitions: one in each rack, on the least loaded broker there.

The first replica is the preferred leader.  It is the one whose broker is preferred for the fewest
partitions; the others follow in the order of the racks, and begin with one of a few in turns: when
that leader is down, its partitions are led in several racks.
"""

from collections.abc import Iterator
from typing import Final

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId

WAYS_MAX: Final = 4  # more would spread leaders further, and make more placements different


def place(topology: Topology, load: ReplicaLoad, count: int) -> Iterator[tuple[NodeId, ...]]:
    """The replicas of `count` new partitions, which are added to `load`.

    Racks without a broker that is up get no replica; there must be another rack.
    """
    racks = [topology.eligible[rack] for rack in topology.racks if rack in topology.eligible]
    assert racks, "there must be a broker to place partitions on"
    columns = [load.take_many(brokers, count) for brokers in racks]
    known: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}  # equal ones are one value
    for replicas in zip(*columns, strict=True):
        first = load.prefer(replicas)
        ordered = _led_by(first, replicas, load.leads[first] - 1)
        yield known.setdefault(ordered, ordered)


def _led_by(first: NodeId, replicas: tuple[NodeId, ...], turn: int) -> tuple[NodeId, ...]:
    """`replicas` with `first` in front, and the others after it as in a circle, begun by `turn`."""
    index = replicas.index(first)
    others = replicas[index + 1 :] + replicas[:index]
    ways = min(len(others), WAYS_MAX)
    start = turn % ways * (len(others) // ways) if ways else 0
    return (first, *others[start:], *others[:start])
