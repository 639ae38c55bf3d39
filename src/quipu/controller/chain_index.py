"""The chains of a state, found by node, and by the topics that are on them.

Invariants
    controller.S7  a node is a member of one operator's chain at most, and is registered as long as
                   it is a member of any chain
    controller.S8  a derived chain has the nodes of its preferred order, each once; one that no
                   partition is on is removed (chains.reconcile)

A derived chain belongs to the operator's chain that has all of its nodes, if there is one: what is
on it counts as on that chain, for people and for the placement of new topics.  That follows from
the members of now, so it is stored nowhere.

Not here: what a chain is (members.py), who makes derived ones (derived_chains.py).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from quipu.controller.members import NO_CHAIN, Chain
from quipu.model.ids import NodeId


@dataclass(slots=True)
class ChainIndex:
    """The chains by name; only `ClusterState.apply` writes (controller.S1)."""

    chains: dict[str, Chain] = field(default_factory=dict)
    _named_by_node: dict[NodeId, str] = field(default_factory=dict)  # operators' chains
    _by_node: dict[NodeId, dict[str, None]] = field(default_factory=dict)  # all chains
    _derived: dict[str, None] = field(default_factory=dict)
    _preferred: dict[str, tuple[NodeId, ...]] = field(default_factory=dict)
    _topics: dict[str, dict[UUID, None]] = field(default_factory=dict)  # ordered, by chain
    _counts: dict[str, int] = field(default_factory=dict, compare=False)  # see `topic_count`

    # -- look-ups

    def operators(self) -> list[Chain]:
        """The chains that operators have made."""
        return [chain for chain in self.chains.values() if not chain.is_derived]

    def derived(self) -> list[Chain]:
        """The chains that the controller has made for some partitions."""
        return [self.chains[name] for name in self._derived]

    def of_node(self, node_id: NodeId) -> Chain | None:
        """The operator's chain that a node is a member of."""
        name = self._named_by_node.get(node_id)
        return self.chains[name] if name is not None else None

    def with_node(self, node_id: NodeId) -> list[Chain]:
        """Every chain that a node is a member of."""
        return [self.chains[name] for name in self._by_node.get(node_id, ())]

    def preferred(self, name: str) -> tuple[NodeId, ...]:
        """The nodes of a chain in the order that is preferred: the first is its preferred head."""
        return self._preferred[name]

    def parent_of(self, chain: Chain) -> str | None:
        """The operator's chain that has all nodes of `chain`; itself if it is an operator's."""
        parents = {self._named_by_node.get(node_id) for node_id in chain.nodes}
        return parents.pop() if len(parents) == 1 else None

    def family(self, name: str) -> list[Chain]:
        """An operator's chain, and the derived chains that belong to it."""
        return [self.chains[name], *(chain for chain in self.derived()
                                     if self.parent_of(chain) == name)]

    def topics_on(self, name: str) -> Collection[UUID]:
        """Topics of which some partition is on this very chain, or moves to it."""
        return self._topics.get(name, {}).keys()

    def is_topic_on(self, name: str, topic_id: UUID) -> bool:
        return topic_id in self._topics.get(name, ())

    def topic_count(self, name: str) -> int:
        """How many topics have some partition on an operator's chain, or on one of its family."""
        if name not in self._counts:
            self._counts[name] = len(
                set[UUID]().union(*(self._topics[chain.name] for chain in self.family(name))))
        return self._counts[name]

    # -- changes

    def put(self, chain: Chain, preferred: tuple[NodeId, ...]) -> None:
        """Store a chain that is new, or has changed."""
        assert chain.name != NO_CHAIN, chain
        old = self.chains.get(chain.name)
        if old is not None:
            assert old.is_derived == chain.is_derived, (old, chain)
            self._unlink(old)
        assert len(set(preferred)) == len(preferred), chain  # controller.S8
        assert set(preferred) == set(chain.nodes), chain
        for node_id in chain.nodes:
            self._by_node.setdefault(node_id, {})[chain.name] = None
            if not chain.is_derived:
                assert node_id not in self._named_by_node, (node_id, chain)  # controller.S7
                self._named_by_node[node_id] = chain.name
        if chain.is_derived:
            self._derived[chain.name] = None
        self.chains[chain.name] = chain
        self._preferred[chain.name] = preferred
        self._topics.setdefault(chain.name, {})
        self._counts.clear()

    def remove(self, name: str) -> None:
        """Remove a chain that no topic is on."""
        assert not self._topics[name], name  # controller.S8
        self._unlink(self.chains.pop(name))
        self._derived.pop(name, None)
        del self._preferred[name], self._topics[name]
        self._counts.clear()

    def enter(self, topic_id: UUID, names: Iterable[str]) -> None:
        """Note that a topic is on these chains."""
        for name in names:
            self._topics[name][topic_id] = None
        self._counts.clear()

    def leave(self, topic_id: UUID, names: Iterable[str]) -> None:
        """Note that a topic is not on these chains any more."""
        for name in names:
            del self._topics[name][topic_id]
        self._counts.clear()

    def _unlink(self, chain: Chain) -> None:
        for node_id in chain.nodes:
            del self._by_node[node_id][chain.name]
            if not self._by_node[node_id]:
                del self._by_node[node_id]
            if not chain.is_derived:
                del self._named_by_node[node_id]
