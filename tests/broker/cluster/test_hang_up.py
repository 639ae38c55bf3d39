"""Connections that close: a node that has ended is missed soon, one that lives keeps its part."""

from collections.abc import Iterator

import pytest

from quipu.broker.cluster.listing import LISTED_SECONDS, SETTLED_SECONDS
from quipu.broker.cluster.liveness import Liveness
from quipu.model.ids import NodeId
from quipu.sim.world import Violation
from tests.broker.cluster.rig import LEASE_MS, SESSION_MS, Rig

SLACK_SECONDS = 0.4  # for a sweep, a decision and the way to the other nodes
ELECTION_SECONDS = 2.2  # its timeout, and the spread that chance adds
assert LEASE_MS / 1000 + SLACK_SECONDS < SESSION_MS / 1000


@pytest.fixture(params=[False, True], ids=["council", "raft"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = Rig(with_raft=request.param)
    rig.boot()
    rig.chain()
    rig.run_for(1.0)
    yield rig
    rig.world.end()


@pytest.mark.parametrize("place", [0, 1])
def test_a_killed_node_is_fenced_when_its_lease_is_over(rig: Rig, place: int) -> None:
    """V5, V15, broker.cluster.L1: its connections close at once; nobody waits for its session."""
    victim = rig.others[place]
    rig.kill(victim)
    rig.until(lambda: victim not in rig.serving(), "fenced",
              seconds=LEASE_MS / 1000 + SLACK_SECONDS)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_controller_is_fenced_when_its_lease_is_over(seed: int) -> None:
    """V5, V15: the lease counts from before the election; `OneSpeaker` looks on."""
    rig = Rig(seed, with_raft=True)
    rig.boot()
    rig.chain()
    rig.run_for(1.0)
    victim = rig.controller
    rig.kill(victim)
    rig.until(lambda: victim not in rig.serving() != [], "fenced",
              seconds=max(LEASE_MS / 1000, ELECTION_SECONDS) + SLACK_SECONDS)
    rig.world.end()


def test_a_node_that_lives_is_not_fenced_for_a_closed_connection(rig: Rig) -> None:
    """V5: it connects again, and is heard of before its lease is over."""
    epoch = rig.cluster(rig.controller).state.chains["a"].epoch
    for node_id in (1, 2, 3):
        rig.hang_up(node_id)
        rig.run_for(SESSION_MS / 1000)

    assert rig.serving() == [1, 2, 3]
    assert rig.cluster(rig.controller).state.chains["a"].epoch == epoch


def test_a_node_that_lives_behind_closed_connections_stops_before_others_begin(rig: Rig) -> None:
    """V15: the network closes its connections and lets nothing through; `OneSpeaker` looks on."""
    victim = rig.others[0]
    cut_off = rig.cluster(victim)
    rig.hang_up(victim)
    rig.cut_off(victim)
    seen_by = rig.controller

    rig.until(lambda: victim not in rig.serving(seen_by=seen_by), "fenced",
              seconds=LEASE_MS / 1000 + SLACK_SECONDS)

    assert cut_off.lease_until < rig.world.loop.now


@pytest.mark.parametrize("seed", range(3))
def test_fencing_without_regard_to_the_lease_is_found_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V15: the planted bug: a closed connection is taken for proof that the process has ended."""
    monkeypatch.setattr(Liveness, "_is_lease_over", lambda *_: True)
    rig = Rig(seed)
    rig.boot()
    rig.chain()
    rig.run_for(1.0)
    head = next(iter(rig.serving()))
    if head == rig.controller:
        rig.council.leader = rig.others[0]
        rig.run_for(1.0)
    rig.hang_up(head)
    rig.cut_off(head)
    with pytest.raises(Violation, match="both speak for chain"):
        rig.run_for(SESSION_MS / 1000)


def test_a_fenced_broker_is_listed_for_a_while(rig: Rig) -> None:
    """V5: clients learn who leads instead before they lose sight of it."""
    victim = rig.others[0]
    seen_by = rig.controller
    rig.kill(victim)
    rig.until(lambda: rig.cluster(seen_by).state.brokers[victim].fenced, "fenced")

    def listed() -> set[NodeId]:
        return {broker.node_id for broker in rig.cluster(seen_by).listed_brokers(for_topics=True)}

    assert victim in listed()
    assert victim not in {
        broker.node_id for broker in rig.cluster(seen_by).listed_brokers(for_topics=False)}
    rig.run_for(LISTED_SECONDS + 1)
    assert victim not in listed()
    rig.boot(victim)
    assert victim in listed()


def test_a_broker_that_came_back_is_settled_after_a_while(rig: Rig) -> None:
    """V3: clients that found it down still wait before they try it again."""
    victim = rig.others[0]
    seen_by = rig.controller
    assert rig.cluster(seen_by).is_settled(victim)
    rig.kill(victim)
    rig.until(lambda: rig.cluster(seen_by).state.brokers[victim].fenced, "fenced")
    rig.boot(victim)
    rig.until(lambda: not rig.cluster(seen_by).state.brokers[victim].fenced, "back")

    assert not rig.cluster(seen_by).is_settled(victim)
    rig.run_for(SETTLED_SECONDS + 0.5)
    assert rig.cluster(seen_by).is_settled(victim)
