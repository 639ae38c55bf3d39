"""What happens to the cluster of a run, and what is measured of each event.

    create          all partitions are created
    rack lost       a rack goes down, its leaders are replaced; then it is given up
    rack returned   the same rack is up again
    broker drained  a broker leaves for good, and others of its rack take over
    hot broker      an operator moves half of a broker's replicas to others of its rack; nothing
                    else may move
"""

import resource
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from quipu.bench.placement.model import Moves, PlacementModel
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId

RACK_BROKERS_MIN: Final = 3  # one leaves, one is hot, one takes over
EVENTS: Final = ("create", "rack lost", "rack returned", "broker drained", "hot broker")


class Size(NamedTuple):
    """The size of a cluster."""

    brokers: int
    racks: int
    partitions: int

    def part(self, divisor: int) -> "Size":
        """A cluster with the same racks, and a part of the brokers and partitions."""
        return Size(max(self.brokers // divisor, self.racks * RACK_BROKERS_MIN), self.racks,
                    max(self.partitions // divisor, 1))


class EventCost(NamedTuple):
    """What one event has cost."""

    event: str
    size: Size
    seconds: float  # that passed; other work on the machine makes it longer
    cpu_seconds: float
    moves: Moves
    peak_bytes: int  # of the process, up to the end of the event
    spread: int  # most loaded minus least loaded broker of a rack, at the end

    def row(self) -> dict[str, object]:
        return {
            "event": self.event, "partitions": self.size.partitions,
            "brokers": self.size.brokers, "racks": self.size.racks,
            "CPU s": round(self.cpu_seconds, 2), "seconds": round(self.seconds, 2),
            "replica moves": self.moves.replicas,
            "leader moves": self.moves.leaders, "passes": self.moves.passes,
            "peak MiB": self.peak_bytes >> 20, "spread": self.spread,
        }


def measure(size: Size) -> list[EventCost]:
    """Run all events on one cluster; each result is checked, which is not in the times."""
    return list(_measured(size))


def _measured(size: Size) -> Iterator[EventCost]:
    model = PlacementModel(size.brokers, size.racks)
    rack, *_, other = sorted(model.racks)
    drained, *others, hot = model.racks[other]
    whole = model.topology()
    without_rack = model.topology(lost=[rack])
    without_broker = model.topology(gone=[drained])

    def lose() -> Moves:
        return model.elect(model.topology(down=[rack])) + model.reconcile(without_rack)

    def drain() -> Moves:
        return model.elect(without_broker) + model.reconcile(without_broker)

    def cool() -> Moves:
        return _cooled(model, hot, tuple(others)) + model.reconcile(without_broker)

    steps: dict[str, tuple[Callable[[], Moves], Topology]] = {
        "create": (lambda: model.create(size.partitions), whole),
        "rack lost": (lose, without_rack),
        "rack returned": (lambda: model.reconcile(whole), whole),
        "broker drained": (drain, without_broker),
        "hot broker": (cool, without_broker)}
    assert tuple(steps) == EVENTS, EVENTS
    for event, (step, after) in steps.items():
        began, began_cpu = time.perf_counter(), time.process_time()
        moves = step()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
        model.check(after)
        yield EventCost(
            event, size, seconds, cpu_seconds, moves, _peak_bytes(), model.spread(after))


def _cooled(model: PlacementModel, hot: NodeId, others: tuple[NodeId, ...]) -> Moves:
    """Move half of a broker's replicas to the least loaded of `others`."""
    total = Moves()
    on_it = model.partitions_on(hot)
    for index in on_it[:len(on_it) // 2]:
        total += model.move(index, hot, others)
    return total


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
