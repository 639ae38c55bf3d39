"""How many replicas each broker has, and which brokers are the least loaded.

Invariant
    controller.L1  the load of a broker is the number of diskless replicas that name it, and its
                   leads the number of those that name it first
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from quipu.model.ids import NodeId


class ReplicaLoad:
    """The number of replicas of each broker, and for how many partitions it is preferred."""

    __slots__ = ("_heap_of", "_heaps", "leads", "replicas")

    def __init__(self) -> None:
        self.replicas: Counter[NodeId] = Counter()
        self.leads: Counter[NodeId] = Counter()
        # Of brokers that replicas are taken from; an entry with another load than now is old.
        self._heaps: dict[tuple[NodeId, ...], list[tuple[int, NodeId]]] = {}
        self._heap_of: dict[NodeId, list[tuple[int, NodeId]]] = {}

    def __eq__(self, other: object) -> bool:
        """Whether all brokers have the same load."""
        return isinstance(other, ReplicaLoad) and (self.replicas, self.leads) == (
            other.replicas, other.leads)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> "ReplicaLoad":
        """A load to plan with: what is planned is not in the metadata yet."""
        copy = ReplicaLoad()
        copy.replicas.update(self.replicas)
        copy.leads.update(self.leads)
        return copy

    def count_all(self, partitions: Iterable[Sequence[NodeId]], number: int = 1) -> None:
        """Count each of these partitions, given by their replicas, `number` times."""
        for replicas in partitions:
            for counter, nodes in ((self.replicas, replicas), (self.leads, replicas[:1])):
                for node_id in nodes:
                    counter[node_id] += number
                    assert counter[node_id] >= 0, node_id  # controller.L1
                    if not counter[node_id]:
                        del counter[node_id]
        self._forget_heaps()

    def drop(self, replicas: Iterable[NodeId]) -> None:
        """Count one replica less of each of these brokers."""
        for node_id in replicas:
            self.replicas[node_id] -= 1
            heap = self._heap_of.get(node_id)
            if heap is not None:
                heapq.heappush(heap, (self.replicas[node_id], node_id))

    def take(self, brokers: tuple[NodeId, ...]) -> NodeId:
        """The least loaded of `brokers`, which gets a replica; the first of equals."""
        heap = self._heaps.get(brokers)
        if heap is None:
            heap = self._heaps[brokers] = [(self.replicas[node_id], node_id)
                                           for node_id in brokers]
            heapq.heapify(heap)
            self._heap_of.update(dict.fromkeys(brokers, heap))
        while heap[0][0] != self.replicas[heap[0][1]]:
            heapq.heappop(heap)
        load, node_id = heap[0]
        heapq.heapreplace(heap, (load + 1, node_id))
        self.replicas[node_id] += 1
        return node_id

    def take_many(self, brokers: tuple[NodeId, ...], count: int) -> list[NodeId]:
        """As `take`, `count` times: the same brokers in the same order, at the cost of a list."""
        levels: dict[int, list[NodeId]] = {}
        for node_id in sorted(brokers):
            levels.setdefault(self.replicas[node_id], []).append(node_id)
        taken: list[NodeId] = []
        while len(taken) < count:
            level = min(levels)
            lowest = sorted(levels.pop(level))
            left = count - len(taken)
            rounds = left // len(lowest)
            if levels:
                rounds = min(rounds, min(levels) - level)
            if not rounds:
                taken += lowest[:left]
                break
            taken += lowest * rounds
            levels.setdefault(level + rounds, []).extend(lowest)
        assert len(taken) == count, (brokers, count)
        self.replicas.update(taken)
        self._forget_heaps()
        return taken

    def prefer(self, replicas: Iterable[NodeId]) -> NodeId:
        """The broker, out of `replicas`, that is preferred for the fewest partitions."""
        chosen = min(replicas, key=self.leads.__getitem__)
        self.leads[chosen] += 1
        return chosen

    def _forget_heaps(self) -> None:
        self._heaps.clear()
        self._heap_of.clear()
