"""Derived chains: the chain of partitions whose replicas are no operator's chain as it is.

A partition is on a list of nodes, of which the first is its preferred head and the last its tail.
If the list is an operator's chain in its own order, the partition is on that chain.  Any other list
has a derived chain, for all partitions with this list: the nodes of a chain in another order, some
of them, or nodes of several chains.  It is a chain like any other (chains.py), so a partition on it
is led, replicated and repaired by the same rules; only operators neither name nor extend it.

It is made by the decision that places the first partition there, and removed when none is left.

    controller.E1  there are DERIVED_CHAINS_MAX derived chains at most: each costs a record when one
                   of its nodes fails
    controller.E2  none is made before all registered brokers can read it (controller.R4); an older
                   program refuses its record
    controller.E3  a new one has no records, so all of its nodes that are up serve in it at once

Not here: which list a new partition gets (assignments.py), what belongs to an operator's chain
(chain_index.py).
"""

from collections.abc import Collection, Iterable
from typing import Final

from quipu.controller.conversions import chain_record
from quipu.controller.decision import Numbers
from quipu.controller.members import NO_CHAIN, Chain, ChainMember
from quipu.controller.reconcile import in_order
from quipu.controller.records import LEVEL_OF_DERIVED_CHAINS, ChainRemoved, Record
from quipu.controller.state import ClusterState
from quipu.model.chains import MemberState
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId

DERIVED_CHAINS_MAX: Final = 1000

Order = tuple[NodeId, ...]  # the nodes of a partition, in the order that is preferred


class DerivedChains:
    """The chains by their lists of nodes, for one decision: those there are, and those it makes."""

    def __init__(self, state: ClusterState, numbers: Numbers) -> None:
        self.chains = dict(state.chains)  # as they are when the decision is applied
        self._made: list[Chain] = []
        self._state = state
        self._numbers = numbers
        self._by_order: dict[Order, Chain] = {}
        for chain in (*state.chain_index.operators(), *state.chain_index.derived()):
            self._by_order.setdefault(state.chain_index.preferred(chain.name), chain)
        self._count = len(state.chain_index.derived())

    def at(self, order: Order) -> Chain:
        """The chain of partitions on this list of nodes; raises if there can be none."""
        found = self._by_order.get(order)
        if found is not None:
            return found
        why = self.why_not([order])
        if why is not None:
            raise RequestError(f"partitions on nodes {list(order)}: {why}",
                               code=Code.POLICY_VIOLATION)
        return self._make(order)

    def records(self, used: Collection[str]) -> list[Record]:
        """The records that make those of the new chains that are `used`, by name.

        They are applied before the records that place partitions there.
        """
        return [chain_record(chain) for chain in self._made if chain.name in used]

    def why_not(self, orders: Collection[Order]) -> str | None:
        """Why there cannot be chains of all these lists; None if there can."""
        new = sum(order not in self._by_order for order in set(orders))
        if not new:
            return None
        if behind := unready_brokers(self._state):
            return (f"{', '.join(behind)} run a version that knows whole chains only: upgrade "
                    "them first")  # controller.E2
        if self._count + new > DERIVED_CHAINS_MAX:  # controller.E1
            return (f"there are {self._count} lists of nodes that are no whole chain in its own "
                    f"order, and {DERIVED_CHAINS_MAX} is the most: use one that there is")
        return None

    def _make(self, order: Order) -> Chain:
        assert len(set(order)) == len(order) > 0, order  # controller.S8
        state, version = self._state, self._numbers.version()
        parents = {state.chain_of(node_id) for node_id in order}
        parent = parents.pop() if len(parents) == 1 else None
        up = state.up()
        first = next((node_id for node_id in order if node_id in up), order[0])
        chain = Chain(
            name=f"{parent.name if parent is not None else NO_CHAIN}/{version}",
            epoch=self._numbers.epoch(), version=version, order=order,
            members=in_order(ChainMember(
                node_id,
                MemberState.SERVING if node_id in up or node_id == first  # model.H2
                else MemberState.OFFLINE,
                *state.brokers[node_id].process) for node_id in order))  # controller.E3
        assert chain.name not in self.chains, chain
        self.chains[chain.name] = self._by_order[order] = chain
        self._made.append(chain)
        self._count += 1
        assert self._count <= DERIVED_CHAINS_MAX, chain  # controller.E1
        return chain


def unready_brokers(state: ClusterState) -> list[str]:
    """Brokers that cannot read the record of a derived chain, by name (controller.E2)."""
    return sorted(broker.name for broker in state.brokers.values()
                  if broker.metadata_level < LEVEL_OF_DERIVED_CHAINS)


def unused(state: ClusterState) -> Iterable[Record]:
    """The removal of derived chains that no partition is on, or moves to (controller.S8)."""
    return [ChainRemoved(name=chain.name) for chain in state.chain_index.derived()
            if not state.chain_index.topics_on(chain.name)]


def words(state: ClusterState, chain: Chain) -> str:
    """A chain as a person knows it: an operator's by its name, a derived one by its nodes too."""
    if not chain.is_derived:
        return f"chain {chain.name}"
    parent = state.chain_index.parent_of(chain)
    names = " ".join(state.brokers[node_id].name for node_id in chain.order)
    return f"chain {parent} in the order {names}" if parent else f"the chain of nodes {names}"
