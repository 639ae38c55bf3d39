"""Managed placement in the metadata: creation, racks that come and go, operators, upgrades."""

from uuid import UUID

import pytest

from quipu.controller import brokers
from quipu.controller.managed.describing import MISSING_RACK_CAPACITY, PlacementState
from quipu.controller.placement import DisklessPlacement
from quipu.controller.records import (
    BrokerFencingChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigRecord,
    PartitionRecord,
    PartitionRun,
    PartitionsAdded,
    PartitionsMoved,
    PlacementKind,
    TopicCreated,
    TopicDeleted,
)
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from tests.controller.managed.cluster import THRESHOLD_MS, Managed

OLD_TOPIC = UUID(int=77)


def three_racks() -> Managed:
    """Rack a has 1 and 2, b has 3 and 4, c has 5 and 6."""
    return Managed(a=2, b=2, c=2)


# -- creation


@pytest.mark.parametrize("factor", [-1, 1])
def test_a_new_topic_has_one_replica_in_each_rack(factor: int) -> None:
    """D10, D11, D20: controller.D4; whichever factor is given; all replicas are in sync."""
    it = three_racks()
    assert it.create(6, factor=factor).code is Code.NONE
    for partition in it.partitions():
        assert sorted(it.racks_of(partition.replicas)) == ["a", "b", "c"]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
    assert set(it.counted().replicas.values()) == {3}
    assert set(it.counted().leads.values()) == {1}
    assert it.topology.effective_factor == it.state.topics["t"].replication_factor == 3
    assert it.settle() == 0


@pytest.mark.parametrize("factor", [0, 2, 3, -2])
def test_other_factors_are_refused(factor: int) -> None:
    """D11: with the message that says what to give."""
    result = three_racks().create(1, factor=factor)
    assert (result.code, result.message) == (
        Code.INVALID_REQUEST, ("replication factor is system-managed for diskless topics; use "
        "replicationFactor=-1 or replicationFactor=1"))


def test_partitions_are_added_like_those_of_a_new_topic() -> None:
    """D10: with what the topic has already."""
    it = three_racks()
    it.create(1)
    it.grow(2)
    assert it.counted().replicas == dict.fromkeys(range(1, 7), 1)


def test_brokers_without_a_rack_are_one_rack() -> None:
    """D10: of the brokers 1, 2, 3 without a rack one gets a replica, and rack z another."""
    it = Managed()
    for node_id in (1, 2, 3):
        it.start(node_id)
    it.start(4, "z")
    it.create(3)
    assert [it.racks_of(each.replicas) for each in it.partitions()].count(["unknown", "z"]) == 3
    assert it.counted().replicas == {1: 1, 2: 1, 3: 1, 4: 3}


def test_a_topic_created_while_a_rack_is_down_gets_its_replica_later() -> None:
    """D13, D14: nothing is placed there, nor elsewhere for it; retried when a broker returns."""
    it = three_racks()
    it.kill(5, 6)
    it.create()
    assert it.racks_of(it.replicas()) == ["a", "b"]
    assert it.settle() == 0
    assert it.described().exceptions == (MISSING_RACK_CAPACITY,)
    it.start(6)
    assert it.settle() == 1
    assert it.replicas()[-1] == 6


# -- racks that come and go


def test_a_degraded_rack_keeps_its_replicas_and_gets_none() -> None:
    """D13: and the partition is under-replicated there, which is shown."""
    it = three_racks()
    it.create(3)
    before = it.placements()
    it.kill(5, 6)
    assert it.settle() == 0
    assert {key: each.replicas for key, each in it.placements().items()} == {
        key: each.replicas for key, each in before.items()}
    found = it.described()
    assert found.target_racks == ("a", "b", "c")
    assert sorted(found.assigned_racks) == ["a", "b", "c"]
    assert (found.rack_coverage, found.exceptions) == (66, (MISSING_RACK_CAPACITY,))
    assert (found.state, found.is_drifted) == (PlacementState.STEADY, False)
    it.start(5)
    it.start(6)
    assert it.described().rack_coverage == 100
    assert it.described().exceptions == ()


def test_an_unavailable_rack_loses_its_replicas_and_gets_them_back() -> None:
    """D13, D19: one move for each partition, there and back; leaders that are up stay."""
    it = three_racks()
    it.create(12)
    before = it.placements()
    it.lose(5, 6)
    assert it.topology.effective_factor == 2
    assert it.described().target_racks == ("a", "b")
    down = {key: each.leader for key, each in it.placements().items()}
    assert it.settle() == 12
    assert {key: each.leader for key, each in it.placements().items()} == down
    for key, placement in it.placements().items():
        assert sorted(it.racks_of(placement.replicas)) == ["a", "b"]
        if before[key].leader not in (5, 6):
            assert placement.leader == before[key].leader
    it.start(5)
    it.start(6)
    assert it.settle() == 12
    assert {key: each.leader for key, each in it.placements().items()} == down
    assert set(it.counted().replicas.values()) == {6}


def test_a_new_rack_gets_one_replica_of_each_partition() -> None:
    """D19: nothing else moves, and no leader."""
    it = Managed(a=2, b=2)
    it.create(8)
    before = it.placements()
    it.start(9, "c")
    assert it.settle() == 8
    for key, placement in it.placements().items():
        assert set(placement.replicas) == {*before[key].replicas, NodeId(9)}
        assert placement.leader == before[key].leader
    assert it.counted().leads[NodeId(9)] >= 1  # it is preferred for some, which changes no leader


def test_a_controlled_shutdown_is_no_capacity() -> None:
    """D14: a stopping broker gets nothing, and keeps what it has."""
    it = Managed(a=1, b=1)
    it.create(2)
    it.stop(2)
    it.create(1, "u")
    assert it.settle() == 0
    assert it.replicas(0, "u") == (1,)
    assert [len(each.replicas) for each in it.state.topics["t"].partitions] == [2, 2]


def test_a_broker_that_stays_down_leaves_its_replicas_to_its_rack() -> None:
    """D15: one eligible broker in each rack; added first, then removed."""
    it = three_racks()
    it.create(6)
    it.kill(5)
    it.wait(THRESHOLD_MS)
    assert it.settle() == 0  # a restart moves nothing
    assert it.described(0).rack_coverage == 66
    assert it.described(0).exceptions == ()
    it.wait(1)
    assert it.rack("c").eligible == (6,)
    assert it.described(0).state is PlacementState.RECONCILING
    it.step()
    assert any({5, 6} <= set(each.replicas) for each in it.partitions())
    assert it.settle() == 3
    assert it.counted().replicas[NodeId(6)] == 6
    it.start(5)
    assert it.settle() == 0  # and its return neither


def test_a_broker_that_changes_racks_moves_as_little_as_it_can() -> None:
    """D15: the rack that it left gets another replica, the one that it came to has one too many."""
    it = three_racks()
    it.create(1)
    first, *_ = it.replicas()
    assert first == 1
    it.kill(1)
    it.start(1, "b")
    assert it.step().moves == 1  # 2 is added in a
    assert it.racks_of(it.replicas()) == ["b", "b", "c", "a"]
    assert it.settle() == 1
    assert it.leader() in it.replicas()
    assert sorted(it.racks_of(it.replicas())) == ["a", "b", "c"]


# -- leaders


def test_the_partitions_of_a_lost_rack_are_led_in_all_others() -> None:
    """D19: not all of them in one other rack."""
    it = three_racks()
    it.create(12)
    rack = {node_id: it.racks_of((node_id,))[0] for each in it.partitions()
            for node_id in each.replicas}
    for node_id in [node_id for node_id, name in rack.items() if name == "a"]:
        it.kill(node_id)
    leaders = [rack[each.leader] for each in it.partitions()]
    assert (leaders.count("b"), leaders.count("c")) == (6, 6)


def test_leaders_move_only_when_they_must() -> None:
    """D16, D19: controller.D3; not when a broker returns, nor when one is preferred."""
    it = three_racks()
    it.create(6)
    before = [each.leader for each in it.partitions()]
    it.kill(1)
    after = [each.leader for each in it.partitions()]
    assert [old for old, new in zip(before, after, strict=True) if old != new] == [1]
    it.start(1)
    assert [each.leader for each in it.partitions()] == after
    moved = next(index for index, (old, new) in enumerate(zip(before, after, strict=True))
                 if old != new)
    assert it.elect(moved) is Code.NONE
    assert [each.leader for each in it.partitions()] == before


# -- operators


def test_an_operator_may_give_any_replicas_and_they_are_repaired() -> None:
    """D18: accepted at once; drift is shown; gradually repaired, with what was given."""
    it = three_racks()
    it.create()
    assert it.move([2, 1]) is Code.NONE
    assert (it.replicas(), it.leader()) == ((2, 1), 1)
    found = it.described()
    assert (found.is_drifted, found.state) == (True, PlacementState.RECONCILING)
    assert (found.assigned_racks, found.rack_coverage) == (("a", "a"), 33)
    assert it.step().moves == 2
    assert set(it.replicas()) >= {1, 2}
    assert it.step().moves == 1
    assert (it.leader(), 2 in it.replicas()) == (1, False)
    assert it.described().state is PlacementState.STEADY


def test_drift_is_left_where_it_is_only_observed() -> None:
    """D17, D18: frozen, with the same drift, until the setting is true again."""
    it = three_racks()
    it.create(2)
    it.move([1])
    assert it.step(moves=0).drifted == 1
    assert it.replicas() == (1,)
    found = it.described(auto=False)
    assert (found.is_drifted, found.state) == (True, PlacementState.FROZEN)
    assert it.described(1, auto=False).state is PlacementState.STEADY
    assert it.settle() == 2


def test_a_move_within_a_rack_is_no_drift() -> None:
    """D18: a hot partition is moved to a less loaded broker, and stays there."""
    it = three_racks()
    it.create()
    assert it.replicas() == (1, 3, 5)
    assert it.move([2, 3, 5]) is Code.NONE
    assert not it.described().is_drifted
    assert it.settle() == 0
    assert it.leader() == 2


def test_a_broker_that_is_drained_stays_empty() -> None:
    """D18: an operator moves all of it to the other broker of the rack."""
    it = three_racks()
    it.create(4)
    for index, partition in enumerate(list(it.partitions())):
        it.move([2 if node_id == 1 else node_id for node_id in partition.replicas], index)
    assert it.settle() == 0
    assert NodeId(1) not in it.counted().replicas


def test_a_broker_that_is_unregistered_is_replaced_in_its_rack() -> None:
    """D14, D18: at its place in the order; where its rack has no other, nowhere."""
    it = Managed(a=2, b=1)
    it.create(4)
    before = [it.racks_of(each.replicas) for each in it.partitions()]
    assert ["b", "a"] in before
    it.kill(1)
    it.unregister(1)
    assert [it.racks_of(each.replicas) for each in it.partitions()] == before
    it.kill(3)
    it.unregister(3)
    assert {each.replicas for each in it.partitions()} == {(2,)}
    assert it.settle() == 0
    it.kill(2)
    with pytest.raises(RequestError, match="last broker"):
        brokers.unregister(it.state, NodeId(2))


def test_unregistering_a_broker_repairs_nothing_else() -> None:
    """D18: whoever only observes keeps the drift."""
    it = three_racks()
    it.create()
    it.move([1, 3])
    it.kill(3)
    it.unregister(3)
    assert it.replicas() == (1, 4)


def test_the_last_replica_is_replaced_anywhere() -> None:
    """D14: a partition has a replica, as long as there is a broker."""
    it = Managed(a=1, b=1, c=1)
    it.create()
    it.move([1])
    it.kill(1)
    it.unregister(1)
    assert it.replicas() == (2,)


# -- pacing


def test_no_more_is_moved_than_is_allowed() -> None:
    """D16: the rest is counted, and follows."""
    it = Managed(a=1)
    it.create(10)
    it.start(2, "b")
    it.start(3, "c")
    left = 20
    while left:
        found = it.step(moves=3)
        assert found.moves == min(3, left)
        assert found.is_cut == any(len(each.replicas) == 1 for each in it.partitions())
        left -= found.moves
    assert it.step(moves=3) == (0, 0, 0, False)


# -- what older versions wrote, and what they read


def test_topics_of_an_older_version_are_reconciled() -> None:
    """D9: one replica each, no leader in moves; no data moves, and leaders stay."""
    it = three_racks()
    it.state.apply(TopicCreated(
        name="t", topic_id=OLD_TOPIC,
        configs=[ConfigRecord(name="diskless.enable", value="true")],
        partitions=[PartitionRecord(replicas=[node], isr=[node], leader=node) for node in (1, 4)],
        runs=[PartitionRun(count=2, kind=PlacementKind.DISKLESS, version=it.state.next_version)]))
    it.state.apply(PartitionsMoved(
        topic_id=OLD_TOPIC, partitions=[1], replicas=[6], version=it.state.next_version,
        kind=PlacementKind.DISKLESS))
    assert [(each.replicas, each.leader) for each in it.partitions()] == [((1,), 1), ((6,), 6)]
    assert it.described().state is PlacementState.RECONCILING
    assert it.settle() == 4
    assert [each.leader for each in it.partitions()] == [1, 6]
    assert all(sorted(it.racks_of(each.replicas)) == ["a", "b", "c"] for each in it.partitions())
    assert all(isinstance(each.placement, DisklessPlacement) for each in it.partitions())


def test_only_records_that_there_were_are_written() -> None:
    """D21: creation, moves, elections, racks and brokers need no new type of record."""
    it = three_racks()
    it.create(6)
    it.grow(8)
    it.move([1, 2])
    it.lose(5, 6)
    it.settle()
    it.start(5)
    it.settle()
    it.kill(5)
    it.unregister(5)
    it.elect()
    it.delete("t")
    assert {type(record) for record in it.records} == {
        BrokerRegistered, BrokerFencingChanged, BrokerUnregistered, TopicCreated,
        PartitionsAdded, PartitionsMoved, TopicDeleted}
    assert [type(record).KEY for record in (
        BrokerRegistered(), TopicCreated(), PartitionsMoved(), BrokerFencingChanged())] == [
            2, 3, 11, 8]
