"""The states of racks: a table, driven by what the metadata says of brokers and by a clock."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from quipu.controller.racks import TRANSITIONS, UNKNOWN_RACK, Rack, RackEvent, RackState
from quipu.controller.records import BrokerFencingChanged, BrokerRegistered, encode_record
from quipu.model.ids import NodeId
from tests.controller.managed.cluster import BEGAN_MS, THRESHOLD_MS, Managed

HEALTHY, DEGRADED, UNAVAILABLE = RackState


def racks_of_two() -> Managed:
    """Brokers 1 and 2 in rack a, 3 in rack b."""
    return Managed(a=2, b=1)


class Case(NamedTuple):
    """What is done to rack a, and its state after each step."""

    why: str
    steps: list[tuple[Callable[[Managed], None], RackState]]


CASES = [
    Case("one broker of two is down", [(lambda it: it.kill(1), HEALTHY)]),
    Case("the last broker is down", [
        (lambda it: it.kill(1), HEALTHY), (lambda it: it.kill(2), DEGRADED)]),
    Case("the last broker shuts down", [
        (lambda it: it.kill(1), HEALTHY), (lambda it: it.stop(2), DEGRADED)]),
    Case("a broker is up again before the threshold", [
        (lambda it: it.kill(1, 2), DEGRADED), (lambda it: it.wait(THRESHOLD_MS), DEGRADED),
        (lambda it: it.start(2), HEALTHY)]),
    Case("the threshold is exceeded", [
        (lambda it: it.kill(1, 2), DEGRADED), (lambda it: it.wait(THRESHOLD_MS), DEGRADED),
        (lambda it: it.wait(1), UNAVAILABLE)]),
    Case("the last one that went down counts", [
        (lambda it: it.kill(1), HEALTHY), (lambda it: it.wait(THRESHOLD_MS), HEALTHY),
        (lambda it: it.kill(2), DEGRADED), (lambda it: it.wait(THRESHOLD_MS), DEGRADED),
        (lambda it: it.wait(1), UNAVAILABLE)]),
    Case("a broker is up again after the threshold", [
        (lambda it: it.lose(1, 2), UNAVAILABLE), (lambda it: it.start(1), HEALTHY)]),
    Case("a broker that registers is not up yet", [
        (lambda it: it.lose(1, 2), UNAVAILABLE),
        (lambda it: it.register(1, "a") and None, UNAVAILABLE),
        (lambda it: it.unfence(1), HEALTHY)]),
    Case("a rack that came back has its whole threshold again", [
        (lambda it: it.lose(1, 2), UNAVAILABLE), (lambda it: it.start(1), HEALTHY),
        (lambda it: it.kill(1), DEGRADED), (lambda it: it.wait(THRESHOLD_MS), DEGRADED),
        (lambda it: it.wait(1), UNAVAILABLE)]),
    Case("a process that crashes as it starts does not begin the threshold anew", [
        (lambda it: it.kill(1, 2), DEGRADED), (lambda it: it.wait(THRESHOLD_MS), DEGRADED),
        (lambda it: it.register(1, "a") and None, DEGRADED), (lambda it: it.wait(1), UNAVAILABLE)]),
    Case("a broker that was given up counts for its rack", [
        (lambda it: it.lose(1), HEALTHY), (lambda it: it.kill(2), DEGRADED),
        (lambda it: it.wait(THRESHOLD_MS + 1), UNAVAILABLE)]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_states_follow_from_brokers_and_time(case: Case) -> None:
    """D12, D14, controller.K1, controller.K2: each row of the table, and the times around it."""
    it = racks_of_two()
    assert it.rack("a").state is HEALTHY
    for step, state in case.steps:
        before = it.rack("a").state
        step(it)
        assert it.rack("a").state is state
        reachable = {before, *TRANSITIONS[before].values(),
                     *(end for middle in TRANSITIONS[before].values()
                       for end in TRANSITIONS[middle].values())}  # `lose` makes two transitions
        assert state in reachable  # controller.K3
        assert it.rack("b").state is HEALTHY
    assert it.again() == it.state


def test_every_state_has_a_row_and_every_event_a_cause() -> None:
    """D12, controller.K3: the arrows of the three states, and no others."""
    assert set(TRANSITIONS) == set(RackState)
    arrows = {(state, event, after) for state, row in TRANSITIONS.items()
              for event, after in row.items()}
    assert arrows == {
        (HEALTHY, RackEvent.LAST_BROKER_DOWN, DEGRADED),
        (DEGRADED, RackEvent.THRESHOLD_EXCEEDED, UNAVAILABLE),
        (DEGRADED, RackEvent.BROKER_UP, HEALTHY),
        (UNAVAILABLE, RackEvent.BROKER_UP, HEALTHY)}


def test_a_rack_says_since_when_and_who() -> None:
    """D12, D26: the time at which its last broker went down stays until one is up."""
    it = racks_of_two()
    assert it.rack("a") == Rack("a", HEALTHY, 0, (NodeId(1), NodeId(2)), (NodeId(1), NodeId(2)))
    it.kill(1)
    it.wait(10)
    it.kill(2)
    assert it.rack("a") == Rack("a", DEGRADED, BEGAN_MS + 10, (NodeId(1), NodeId(2)), ())
    it.wait(THRESHOLD_MS + 1)
    assert it.rack("a").degraded_since_ms == BEGAN_MS + 10
    assert it.rack("a").given_up == (1, 2)
    it.start(2)
    assert it.rack("a") == Rack(
        "a", HEALTHY, 0, (NodeId(1), NodeId(2)), (NodeId(2),), (NodeId(1),))


def test_brokers_without_a_rack_are_in_a_rack_of_their_own() -> None:
    """D10: it is called unknown, and has states like any other."""
    it = Managed(a=1)
    it.start(2)
    it.start(3, "")
    assert it.rack(UNKNOWN_RACK).brokers == (2, 3)
    it.lose(2, 3)
    assert it.rack(UNKNOWN_RACK).state is UNAVAILABLE


def test_the_first_broker_of_a_rack_is_not_waited_for() -> None:
    """D13, controller.K2: until it is up nothing is placed there, and nothing is missing there."""
    it = Managed(a=1)
    it.register(2, "b")
    assert it.rack("b").state is UNAVAILABLE
    assert it.topology.racks == ("a",)
    it.unfence(2)
    assert it.topology.racks == ("a", "b")


def test_a_second_broker_does_not_hide_that_its_rack_is_down() -> None:
    """D12: one that registers in a DEGRADED rack leaves it DEGRADED."""
    it = Managed(a=1, b=1)
    it.kill(1)
    it.register(3, "a")
    assert it.rack("a").state is DEGRADED


def test_a_rack_ends_with_its_last_broker() -> None:
    """D10: racks are those of registered brokers."""
    it = Managed(a=1, b=1)
    it.kill(1)
    it.unregister(1)
    assert it.topology.racks == ("b",)
    it.kill(2)
    it.start(2, "c")
    assert it.topology.racks == ("c",)


# -- the deadline, over failovers and clocks


def test_a_new_controller_goes_on_with_the_deadline() -> None:
    """D12: the time is in the metadata; each controller has a state of its own, from a snapshot."""
    it = racks_of_two()
    it.kill(1, 2)
    for _ in range(3):  # three controllers, each for a third of the threshold
        it.state = it.again()
        it.wait(THRESHOLD_MS // 3)
        assert it.rack("a").state is DEGRADED
    it.state = it.again()
    it.wait(1)
    assert it.rack("a").state is UNAVAILABLE
    it.state = it.again()
    assert it.rack("a").state is UNAVAILABLE
    assert it.tick() == []


def test_a_deadline_that_passed_between_controllers_is_met_at_once() -> None:
    """D12: nobody led at that time."""
    it = racks_of_two()
    it.kill(1, 2)
    it.now_ms += 10 * THRESHOLD_MS
    it.state = it.again()
    it.tick()
    assert it.rack("a").state is UNAVAILABLE


@pytest.mark.parametrize("behind_ms", [1, 2000, 100 * THRESHOLD_MS])
def test_a_controller_whose_clock_is_behind_waits_for_the_threshold(behind_ms: int) -> None:
    """D12: from when it began at the latest, whatever the difference."""
    it = racks_of_two()
    it.kill(1, 2)
    it.now_ms -= behind_ms
    it.tick()
    it.wait(THRESHOLD_MS - 1)
    assert it.rack("a").state is DEGRADED
    it.wait(2)
    assert it.rack("a").state is UNAVAILABLE


def test_a_controller_whose_clock_is_ahead_is_early_by_as_much() -> None:
    """D12: clocks of controllers are taken to be set by the same time."""
    it = racks_of_two()
    it.kill(1, 2)
    it.now_ms += 2000
    it.tick()
    it.wait(THRESHOLD_MS - 2000)
    assert it.rack("a").state is DEGRADED
    it.wait(1)
    assert it.rack("a").state is UNAVAILABLE


def test_brokers_that_an_older_version_fenced_get_a_time_once() -> None:
    """D9, D12: its records have none; the whole threshold is given, once."""
    it = racks_of_two()
    for node_id in (1, 2):
        it.state.apply(BrokerFencingChanged(node_id=node_id, fenced=True))
    assert it.rack("a").state is DEGRADED
    assert it.rack("a").degraded_since_ms == 0
    assert len(it.tick()) == 2
    assert it.rack("a").degraded_since_ms == BEGAN_MS
    it.state = it.again()
    it.wait(THRESHOLD_MS)
    assert it.rack("a").state is DEGRADED
    it.wait(1)
    assert it.rack("a").state is UNAVAILABLE


def test_fencing_is_written_as_before_where_nothing_is_new() -> None:
    """D21: what older versions do not know is a tagged field, absent where it says nothing."""
    assert len(encode_record(BrokerFencingChanged(node_id=1))) == len(
        encode_record(BrokerFencingChanged(node_id=1, fenced=True)))
    assert encode_record(BrokerFencingChanged(node_id=1, fenced=True)) != encode_record(
        BrokerFencingChanged(node_id=1, fenced=True, fenced_at_ms=1))
    assert BrokerRegistered().fenced_at_ms == 0
    assert not BrokerRegistered().given_up


def test_a_higher_threshold_does_not_take_back_what_was_given_up() -> None:
    """D12, controller.K2: only a broker that is up does."""
    it = racks_of_two()
    it.lose(1, 2)
    assert it.tick(threshold_ms=100 * THRESHOLD_MS) == []
    assert it.rack("a").state is UNAVAILABLE


def test_a_threshold_of_nothing_gives_up_with_the_next_look() -> None:
    """D12: 0 is allowed."""
    it = racks_of_two()
    it.kill(1, 2)
    assert it.tick(threshold_ms=0) == []
    it.now_ms += 1
    it.tick(threshold_ms=0)
    assert it.rack("a").state is UNAVAILABLE
