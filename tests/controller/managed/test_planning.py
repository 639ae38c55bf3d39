"""What is right and wrong about a partition's replicas, and the next step, case by case."""

from typing import NamedTuple

import pytest

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.planning import Planner, Step, assess
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId

# Rack a has 1 and 2, b has 3 and 4, c has 5 and 6; brokers that are down are given with each case.
RACKS = {"a": (1, 2), "b": (3, 4), "c": (5, 6)}


def topology(down: str = "", lost: str = "", gone: tuple[int, ...] = ()) -> Topology:
    """Racks `down` are DEGRADED, those `lost` are UNAVAILABLE; brokers `gone` were given up."""
    racks = {rack: tuple(map(NodeId, nodes)) for rack, nodes in RACKS.items()}
    eligible = {rack: tuple(node_id for node_id in nodes if node_id not in gone)
                for rack, nodes in racks.items() if rack not in down + lost}
    return Topology(
        racks=tuple(rack for rack in racks if rack not in lost),
        rack_of={node_id: rack for rack, nodes in racks.items() for node_id in nodes},
        eligible=eligible,
        up=frozenset(node_id for nodes in eligible.values() for node_id in nodes),
        gone=frozenset(map(NodeId, gone)) | {node_id for rack in lost for node_id in racks[rack]})


class Case(NamedTuple):
    """A partition, its leader, and all of its steps."""

    why: str
    replicas: tuple[int, ...]
    leader: int
    steps: list[tuple[tuple[int, ...], int]]  # replicas and leader after each
    down: str = ""
    lost: str = ""
    gone: tuple[int, ...] = ()


CASES = [
    Case("one in each rack stays", (1, 3, 5), 1, []),
    Case("in any order, and whoever leads", (5, 1, 3), 3, []),
    Case("an older version gave it one replica", (3,), 3, [((3, 1, 5), 3)]),
    Case("a missing rack gets one", (1, 3), 1, [((1, 3, 5), 1)]),
    Case("an extra goes, and not the leader", (1, 2, 3, 5), 2, [((2, 3, 5), 2)]),
    Case("an extra goes after the missing one is there", (1, 2, 3), 1,
         [((1, 2, 3, 5), 1), ((1, 3, 5), 1)]),
    Case("all in one rack", (1, 2), 2, [((1, 2, 3, 5), 2), ((2, 3, 5), 2)]),
    Case("a rack that is down keeps its replica", (1, 3, 5), 1, [], "c"),
    Case("a rack that is down keeps two", (1, 3, 5, 6), 1, [], "c"),
    Case("a rack that is down gets none", (1, 3), 1, [], "c"),
    Case("no other rack gets one instead", (1,), 1, [((1, 3), 1)], "c"),
    Case("a rack that is lost leaves its replica", (1, 3, 5), 1, [((1, 3), 1)], "", "c"),
    Case("nothing is placed for a rack that is lost", (1, 3), 1, [], "", "c"),
    Case("the leader stays when another rack is lost", (5, 1, 3), 3, [((1, 3), 3)], "", "c"),
    Case("a broker that is given up is replaced in its rack", (1, 3, 5), 1,
         [((1, 3, 5, 6), 1), ((1, 3, 6), 1)], "", "", (5,)),
    Case("a broker that is not registered is replaced", (1, 3, 9), 1,
         [((1, 3, 9, 5), 1), ((1, 3, 5), 1)]),
    Case("all that it has is down, and another rack is up", (5, 6), 5,
         [((5, 6, 1, 3), 1)], "c"),
    Case("all that it has is lost", (5, 6), 5, [((5, 6, 1, 3), 1), ((1, 3), 1)], "", "c"),
    Case("everything is down", (1, 3), 1, [], "abc"),
    Case("everything is lost", (1, 3), 1, [], "", "abc"),
    Case("what is lost stays while all else is down", (1, 3, 5), 1, [], "ab", "c"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_steps(case: Case) -> None:
    """D13, D14, D15, controller.M1 to controller.M4: add, then remove, then nothing."""
    planner = Planner(topology(case.down, case.lost, case.gone), ReplicaLoad())
    replicas, leader = tuple(map(NodeId, case.replicas)), NodeId(case.leader)
    for expected in case.steps:
        step = planner.next_step(replicas, leader)
        assert step is not None
        assert step[:2] == expected
        replicas, leader = step[:2]
    assert planner.next_step(replicas, leader) is None


def test_an_assessment_names_what_is_wrong() -> None:
    """D14, D15: what stays, what goes, where one is missing, and where none can be."""
    found = assess((NodeId(1), NodeId(2)), NodeId(1), topology(down="c"))
    assert found == ((1,), (2,), ("b",), ("c",))
    assert found.is_drifted
    assert not assess((NodeId(1), NodeId(3)), NodeId(1), topology(down="c")).is_drifted


def test_a_replica_goes_to_the_least_loaded_broker_of_its_rack() -> None:
    """D15: each of many partitions, counting what was planned before."""
    load = ReplicaLoad()
    load.count_all([(NodeId(5),)] * 3)
    planner = Planner(topology(), load)
    added = [planner.next_step((NodeId(1), NodeId(3)), NodeId(1)) for _ in range(5)]
    assert [step.replicas[-1] for step in added if step] == [6, 6, 6, 5, 6]


def test_a_step_may_be_taken_in_parts() -> None:
    """D16: no more moves than are allowed; the rest follows."""
    planner = Planner(topology(), ReplicaLoad())
    replicas, seen = (NodeId(1), NodeId(2)), []
    while step := planner.next_step(replicas, NodeId(1), 1):
        assert step.moves == 1
        replicas = step.replicas
        seen.append(replicas)
    assert seen == [(1, 2, 3), (1, 2, 3, 5), (1, 3, 5)]


def test_a_new_replica_is_preferred_where_others_are_preferred_too_often() -> None:
    """D16: preference is spread again, and the leader stays until somebody elects."""
    load = ReplicaLoad()
    load.count_all([(NodeId(1), NodeId(3))] * 4)
    planner = Planner(topology(), load)
    steps = [planner.next_step((NodeId(1), NodeId(3)), NodeId(1)) for _ in range(4)]
    assert steps == [Step((NodeId(5), NodeId(1), NodeId(3)), NodeId(1), 1),
                     Step((NodeId(6), NodeId(1), NodeId(3)), NodeId(1), 1),
                     Step((NodeId(1), NodeId(3), NodeId(5)), NodeId(1), 1),
                     Step((NodeId(1), NodeId(3), NodeId(6)), NodeId(1), 1)]
