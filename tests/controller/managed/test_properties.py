"""Managed placement over random clusters and histories: what holds at every step, and at the end.

    history     brokers come, go, crash, shut down, change racks; time passes; topics are created,
                extended, deleted; operators move and elect; reconciliation is on, off, and slow
    quiescence  nothing happens any more, and reconciliation is on: a fixed point follows
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.controller.managed.planning import assess
from quipu.controller.placement import DisklessPlacement
from quipu.controller.racks import TRANSITIONS, RackState, rack_of, racks_of
from quipu.model.errors import RequestError
from quipu.model.ids import NodeId
from tests.controller.managed.cluster import THRESHOLD_MS, Managed

RACKS = ("a", "b", "c", None)
EXAMPLES = 120
Placements = dict[Any, DisklessPlacement]


class History:
    """A cluster to which anything happens, watched at every step."""

    def __init__(self) -> None:
        self.it = Managed(a=2, b=2, c=1)
        self.it.create(3, "t0")
        self.auto = True
        self.moves_max = 1_000_000

    def happen(self, what: str, node: int, number: int) -> None:
        before = self.it.placements()
        states = {name: rack.state for name, rack in
                  racks_of(self.it.state.brokers.values()).items()}
        getattr(self, what)(node, number)
        check_racks(self.it, states)
        check_leaders(self.it, before, may_elect=what in ("elect", "move"))
        assert self.it.again() == self.it.state  # controller.S5

    # -- events

    def start(self, node: int, number: int) -> None:
        found = self.it.state.brokers.get(NodeId(node))
        if found is None or found.fenced:
            self.it.start(node, RACKS[number % 4] if found is None else found.rack)

    def change_rack(self, node: int, number: int) -> None:
        if NodeId(node) in self.it.state.brokers:
            self.it.kill(node)
            self.it.start(node, RACKS[number % 4] or "")

    def register(self, node: int, number: int) -> None:
        found = self.it.state.brokers.get(NodeId(node))
        if found is None or found.fenced:
            self.it.register(node, RACKS[number % 4])

    def kill(self, node: int, number: int) -> None:
        del number
        if self.it.state.is_up(NodeId(node)):
            self.it.kill(node)

    def kill_rack(self, node: int, number: int) -> None:
        del node
        name = RACKS[number % 4] or "unknown"
        self.it.kill(*(each.node_id for each in self.it.state.brokers.values()
                       if rack_of(each) == name and not each.fenced))

    def stop(self, node: int, number: int) -> None:
        del number
        if self.it.state.is_up(NodeId(node)):
            self.it.stop(node)

    def unregister(self, node: int, number: int) -> None:
        del number
        found = self.it.state.brokers.get(NodeId(node))
        if found is not None and found.fenced:
            try:
                self.it.unregister(node)
            except RequestError:  # it is the last one
                assert len(self.it.state.brokers) == 1

    def wait(self, node: int, number: int) -> None:
        del node
        self.it.wait(number * THRESHOLD_MS // 3)

    def fail_over(self, node: int, number: int) -> None:
        """Another controller, whose clock is a little ahead or behind."""
        self.it.state = self.it.again()
        self.it.now_ms += (number - node) * 100
        self.it.tick()

    def create(self, node: int, number: int) -> None:
        if self.it.state.up():
            self.it.create(1 + number, f"t{node % 3}")

    def grow(self, node: int, number: int) -> None:
        topic = self.it.state.topics.get(f"t{node % 3}")
        if topic is not None and self.it.state.up():
            self.it.grow(len(topic.partitions) + 1 + number % 3, topic.name)

    def delete(self, node: int, number: int) -> None:
        del number
        if f"t{node % 3}" in self.it.state.topics:
            self.it.delete(f"t{node % 3}")

    def move(self, node: int, number: int) -> None:
        """Replicas without any order in them."""
        if "t0" in self.it.state.topics:
            known = sorted(self.it.state.brokers)
            chosen = [known[(node + step) % len(known)] for step in range(1 + number % len(known))]
            count = len(self.it.state.topics["t0"].partitions)
            self.it.move(chosen, number % count, "t0")

    def elect(self, node: int, number: int) -> None:
        del node
        if "t0" in self.it.state.topics:
            self.it.elect(number % len(self.it.state.topics["t0"].partitions), "t0")

    def set_auto(self, node: int, number: int) -> None:
        self.auto, self.moves_max = number % 2 == 0, node

    def reconcile(self, node: int, number: int) -> None:
        del node, number
        before = self.it.placements()
        found = self.it.step(self.moves_max if self.auto else 0)
        assert found.moves <= self.moves_max
        check_step(self.it, before)
        if not self.auto:
            assert self.it.placements() == before  # D18

    def quiesce(self) -> None:
        """Nothing happens any more; brokers that are down are waited for, or not."""
        self.it.tick()
        self.it.wait(THRESHOLD_MS + 1)
        before = self.it.placements()
        self.it.settle()
        check_leaders(self.it, before, may_elect=False)


def check_racks(it: Managed, before: dict[str, RackState]) -> None:
    """controller.K1, controller.K3: a state changes only along the arrows, one or two at a time."""
    for name, rack in racks_of(it.state.brokers.values()).items():
        assert (rack.state is RackState.HEALTHY) == bool(rack.eligible)
        if name in before and before[name] is not rack.state:
            ways = set(TRANSITIONS[before[name]].values())
            ways |= {end for way in ways for end in TRANSITIONS[way].values()}
            assert rack.state in ways, (name, before[name], rack)


def check_leaders(it: Managed, before: Placements, *, may_elect: bool) -> None:
    """controller.D1, controller.D3, D20: leaders that are up, and replicas, stay."""
    after = it.placements()
    for key, old in before.items():
        new = after.get(key)
        if new is None or may_elect:
            continue
        if old.leader in new.replicas and it.state.is_up(old.leader):
            assert new.leader == old.leader or not _was_up_before(it, old), (old, new)
    for partition in it.partitions():
        assert partition.isr == partition.replicas
        assert it.state.is_up(partition.leader) or not it.state.up()


def _was_up_before(it: Managed, old: DisklessPlacement) -> bool:
    """Whether the leader of `old` may be taken to have been up all the time: it has not restarted.

    A start is a change of epoch, so a broker whose epoch is newer than the partition was down.
    """
    return it.state.brokers[old.leader].epoch <= old.version


def check_step(it: Managed, before: Placements) -> None:
    """controller.M1, controller.M2, D15: adds or removes, each with its cause."""
    topology = it.topology
    for key, new in it.placements().items():
        old = before[key]
        added = [node_id for node_id in new.replicas if node_id not in old.replicas]
        removed = [node_id for node_id in old.replicas if node_id not in new.replicas]
        assert not (added and removed), (old, new)
        there = {topology.rack_of.get(node_id) for node_id in old.replicas
                 if node_id not in topology.gone}
        assert len({topology.rack_of[node_id] for node_id in added}) == len(added)
        for node_id in added:
            assert topology.rack_of[node_id] not in there, (old, new)  # controller.M1
            assert node_id in topology.up, (old, new)
        for node_id in removed:  # controller.M2
            rack = topology.rack_of.get(node_id)
            stays = {topology.rack_of.get(other) for other in new.replicas}
            assert node_id in topology.gone or rack is None or rack in stays, (old, new)
            assert not topology.up.isdisjoint(new.replicas), (old, new)
            assert set(topology.eligible) <= stays, (old, new)
        if it.state.is_up(old.leader):
            assert new.leader == old.leader, (old, new)  # controller.M3


EVENTS = ["start", "change_rack", "register", "kill", "kill_rack", "stop", "unregister", "wait",
          "fail_over", "create", "grow", "delete", "move", "elect", "set_auto", "reconcile",
          "reconcile", "reconcile"]
STEPS = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 7), st.integers(0, 5)),
                 max_size=25)


@given(STEPS)
@settings(max_examples=EXAMPLES)
def test_whatever_happens_a_fixed_point_follows(steps: list[tuple[str, int, int]]) -> None:
    """D15, D19, controller.M4: never two replicas in one rack while another eligible rack has none;
    at the end one in each rack that is up, and no further step, ever.
    """
    history = History()
    for step in steps:
        history.happen(*step)
    history.quiesce()
    it = history.it
    topology = it.topology
    for partition in it.partitions():
        racks = Counter(topology.rack_of[node_id] for node_id in partition.replicas)
        if topology.up:
            assert set(racks) == set(topology.racks) == set(topology.eligible)
            assert set(racks.values()) == {1}
            assert set(partition.replicas) <= topology.up
        found = assess(partition.replicas, partition.leader, topology)
        assert not found.is_drifted or not topology.up
    placed = it.placements()
    assert it.settle() == 0
    assert it.tick() == []
    it.now_ms += THRESHOLD_MS
    assert it.tick() == []
    assert it.placements() == placed


@given(STEPS, st.integers(0, 3))
@settings(max_examples=EXAMPLES)
def test_a_rack_that_returns_finds_what_it_had(
    steps: list[tuple[str, int, int]], which: int
) -> None:
    """D13, D19: one move for each partition on the way out, and one on the way back; then the racks
    are those of before, leaders stayed, and load is as even in the rack as it was.
    """
    history = History()
    for step in steps:
        history.happen(*step)
    history.quiesce()
    it = history.it
    healthy = it.topology.racks
    if len(healthy) < 2:
        return
    rack = healthy[which % len(healthy)]
    count, before = len(list(it.partitions())), it.placements()
    spread_before = _spread(it, rack)
    nodes = it.topology.eligible[rack]
    it.lose(*nodes)
    led = {key: each.leader for key, each in it.placements().items()}
    assert it.settle() == count
    assert {key: each.leader for key, each in it.placements().items()} == led
    assert all(led[key] == each.leader or each.leader in nodes for key, each in before.items())
    for node_id in nodes:
        it.start(node_id)
    assert it.settle() == count
    after = it.placements()
    assert {key: each.leader for key, each in after.items()} == led
    assert {key: sorted(it.racks_of(each.replicas)) for key, each in after.items()} == {
        key: sorted(it.racks_of(each.replicas)) for key, each in before.items()}
    for key, each in before.items():  # in the other racks nothing has moved
        assert set(each.replicas) - set(nodes) == set(after[key].replicas) - set(nodes)
    assert _spread(it, rack) <= max(spread_before, 1)


def _spread(it: Managed, rack: str) -> int:
    loads = [it.state.diskless_load.replicas[node_id] for node_id in it.topology.eligible[rack]]
    return max(loads) - min(loads)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 12), st.integers(1, 3))
@settings(max_examples=EXAMPLES)
def test_a_new_rack_takes_one_replica_of_each_partition(
    racks: int, size: int, count: int, new_size: int
) -> None:
    """D19: and no leader; its brokers get as many each."""
    it = Managed(**{f"r{number}": size for number in range(racks)})
    it.create(count)
    before = it.placements()
    for number in range(new_size):
        it.start(100 + number, "new")
    assert it.settle() == count
    for key, each in it.placements().items():
        added = set(each.replicas) - set(before[key].replicas)
        assert set(each.replicas) >= set(before[key].replicas)
        assert (len(added), each.leader) == (1, before[key].leader)
    assert _spread(it, "new") <= 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True), st.booleans())
@settings(max_examples=EXAMPLES)
def test_repairing_drift_keeps_what_can_be_kept(replicas: list[int], again: bool) -> None:
    """D15, D18: the leader, and one replica of each rack that the operator's placement had."""
    it = Managed(a=2, b=2, c=2)
    it.create()
    it.move(replicas)
    leader = it.leader()
    racks = set(it.racks_of(map(NodeId, replicas)))
    moves = it.settle()
    assert moves == (3 - len(racks)) + (len(replicas) - len(racks))
    assert it.leader() == leader
    assert len(set(it.replicas()) & set(replicas)) == len(racks)
    if again:
        assert it.settle() == 0


def _named(events: list[str]) -> list[Callable[..., None]]:
    return [getattr(History, event) for event in events]


def test_every_event_of_a_history_exists() -> None:
    """D19: a name that is wrong would be a history in which less happens."""
    assert len({each.__name__ for each in _named(EVENTS)}) == len(set(EVENTS))
