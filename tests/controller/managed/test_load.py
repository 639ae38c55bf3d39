"""Counting the replicas of brokers, and taking the least loaded."""

from hypothesis import given
from hypothesis import strategies as st

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.placing import place
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId

LOADS = st.lists(st.integers(0, 6), min_size=1, max_size=6)


def loaded(loads: list[int]) -> tuple[ReplicaLoad, tuple[NodeId, ...]]:
    load = ReplicaLoad()
    brokers = tuple(map(NodeId, range(len(loads))))
    for node_id, number in zip(brokers, loads, strict=True):
        load.count_all([(node_id,)] * number)
    return load, brokers


@given(LOADS, st.integers(1, 30))
def test_many_are_taken_as_one_after_the_other(loads: list[int], count: int) -> None:
    """D15: the same brokers in the same order, each time the least loaded, the first of equals."""
    one, brokers = loaded(loads)
    many, _ = loaded(loads)
    expected = []
    for _ in range(count):
        least = min(brokers, key=lambda node_id: (one.replicas[node_id], node_id))
        assert one.take(brokers) == least
        expected.append(least)
    assert many.take_many(brokers, count) == expected
    assert many == one


@given(LOADS, st.lists(st.integers(0, 11), max_size=40))
def test_the_least_loaded_is_found_whatever_is_dropped(loads: list[int], steps: list[int]) -> None:
    """D15, controller.L1: after any mix of taking and dropping."""
    load, brokers = loaded(loads)
    for step in steps:
        if step < len(brokers) and load.replicas[brokers[step]]:
            load.drop([brokers[step]])
        else:
            least = min(load.replicas[node_id] for node_id in brokers)
            assert load.replicas[load.take(brokers)] == least + 1


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 60))
def test_new_partitions_are_spread_over_brokers_and_leaders(sizes: list[int], count: int) -> None:
    """D10, D15: one replica in each rack; loads of a rack's brokers differ by one at most."""
    racks = {f"r{index}": tuple(NodeId(10 * index + number) for number in range(size))
             for index, size in enumerate(sizes)}
    nodes = {node_id: rack for rack, members in racks.items() for node_id in members}
    load = ReplicaLoad()
    topology = Topology(tuple(racks), nodes, racks, frozenset(nodes))
    placed = list(place(topology, load, count))
    assert all([nodes[node_id] for node_id in sorted(each)] == list(racks) for each in placed)
    for members in racks.values():
        loads = [load.replicas[node_id] for node_id in members]
        assert max(loads) - min(loads) <= 1
    again = ReplicaLoad()
    again.count_all(placed)
    assert again == load
    assert len({id(each) for each in placed}) == len(set(placed))  # equal ones are one value


def test_leaders_are_spread_over_racks_of_the_same_size() -> None:
    """D15: over six brokers in three racks, each leads as often."""
    racks = {"a": (1, 2), "b": (3, 4), "c": (5, 6)}
    load = ReplicaLoad()
    topology = Topology(tuple(racks), {}, {rack: tuple(map(NodeId, nodes))
                                           for rack, nodes in racks.items()}, frozenset())
    assert len(list(place(topology, load, 60))) == 60
    assert set(load.leads.values()) == {10}


def test_a_load_that_returned_to_nothing_equals_none() -> None:
    """controller.L1: brokers without replicas are not counted."""
    load, _ = loaded([1, 2])
    load.count_all([(NodeId(0),), (NodeId(1),), (NodeId(1),)], -1)
    assert load == ReplicaLoad()
    assert load.replicas.total() == 0
