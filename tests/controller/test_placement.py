"""Placement: replicas on different brokers, leaders spread evenly."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quipu.controller.placement import place
from quipu.model.ids import NodeId


@given(brokers=st.sets(st.integers(1, 50), min_size=1, max_size=8), data=st.data())
def test_partitions_spread_evenly(brokers: set[int], data: st.DataObject) -> None:
    """K5: no broker twice in a partition; leaders differ by one at most."""
    replicas = data.draw(st.integers(1, len(brokers)))
    nodes = [NodeId(node) for node in brokers]
    placed = [place(nodes, partition=p, replicas=replicas) for p in range(20)]

    assert all(len(set(nodes)) == replicas for nodes in placed)
    leaders = Counter(dict.fromkeys(brokers, 0))
    leaders.update(nodes[0] for nodes in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
