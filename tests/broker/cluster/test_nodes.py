"""Several nodes with one cluster: whom they ask, who is counted on, and what outlives whom."""

from typing import Any
from uuid import UUID

import pytest

from quipu.broker.cluster.membership import FAILED_MAX
from quipu.broker.cluster.requests import BrokerRegistrationRequest
from quipu.broker.observing.chain_health import chain_trouble
from quipu.broker.quorum.contract import NotController
from quipu.controller.topic_requests import NewTopic
from quipu.model.chains import ReplicaSet
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId
from quipu.model.topics import CONSUMER_OFFSETS
from tests.broker.cluster.rig import SESSION_MS, Rig


@pytest.fixture(params=[False, True], ids=["council", "raft"])
def rig(request: pytest.FixtureRequest) -> Any:
    rig = Rig(with_raft=request.param)
    rig.boot()
    rig.chain()
    yield rig
    rig.world.end()


def create(
    rig: Rig, node_id: int, *names: str, partitions: int = 1, rotate: str = "auto"
) -> list[Code]:
    results = rig.ask(node_id, lambda cluster: rig.create_topics(cluster, *(
        NewTopic(name, partitions, configs=[("chain.rotate", rotate)]) for name in names)))
    return [Code(result.error_code) for result in results]


def test_a_topic_created_on_any_node_is_there_at_once(rig: Rig) -> None:
    """K5, broker.cluster.K3: a client that creates a topic and asks the same broker finds it, with
    its partitions.
    """
    for node_id in rig.machines:
        name = f"t{node_id}"
        assert create(rig, node_id, name) == [Code.NONE]
        assert name in rig.cluster(node_id).state.topics
        assert ("created", name, 1) in rig.program(node_id).chains.notifications

    rig.until(lambda: all(len(rig.cluster(each).state.topics) == 3 for each in rig.machines),
              "the same everywhere")


def test_the_controller_s_errors_reach_whoever_asked(rig: Rig) -> None:
    """K5: with their codes and words, wherever the controller is."""
    other = rig.others[0]
    create(rig, other, "t")
    (again,) = rig.ask(other, lambda cluster: rig.create_topics(cluster, NewTopic("t")))
    (bad,) = rig.ask(other, lambda cluster: rig.create_topics(cluster, NewTopic("a", -7)))

    assert again.error_code == Code.TOPIC_ALREADY_EXISTS
    assert again.error_message == "topic t exists already"
    assert bad.error_code == Code.INVALID_PARTITIONS
    with pytest.raises(NotController):
        rig.ask(other, lambda cluster: cluster.controller.unregister_broker(NodeId(9)))


def test_internal_topics_and_producer_ids_come_from_the_controller(rig: Rig) -> None:
    """K2, K3: nodes that ask at once share the topic, and no id."""
    ids = [rig.ask(node_id, lambda cluster: cluster.next_producer_id())
           for node_id in rig.machines for _ in range(3)]
    topics = [rig.ask(node_id, lambda cluster: cluster.ensure_internal_topic(CONSUMER_OFFSETS, 4))
              for node_id in rig.machines]

    assert len(set(ids)) == 9
    assert len({topic.topic_id for topic in topics}) == 1


@pytest.mark.parametrize("with_raft", [False, True], ids=["council", "raft"])
@pytest.mark.parametrize("seed", range(3))
def test_creations_survive_whoever_decides_them(seed: int, *, with_raft: bool) -> None:
    """V15, broker.cluster.K4: the controller is killed again and again; what was acknowledged
    exists exactly once, and the request that created it succeeds.

    By the council also at the worst moments: before it is decided, and when it is decided and no
    other node knows.
    """
    rig = Rig(seed, with_raft=with_raft)
    rig.boot()
    rig.chain()
    acknowledged: list[str] = []
    for number in range(12):
        victim = rig.controller
        moment = 0 if with_raft else number % 3
        asked = rig.others[number % 2]

        def kill(node_id: NodeId, victim: NodeId = victim) -> None:
            if node_id == victim:
                rig.kill(victim)

        if moment == 0:
            rig.kill(victim)
        else:
            rig.council.before_commit = kill if moment == 1 else None
            rig.council.after_commit = kill if moment == 2 else None
        assert create(rig, asked, f"t{number}") == [Code.NONE]
        rig.council.before_commit = rig.council.after_commit = None
        assert create(rig, asked, f"t{number}") == [Code.TOPIC_ALREADY_EXISTS]
        acknowledged.append(f"t{number}")
        rig.until(lambda victim=victim: rig.machines[victim].is_dead, "dead")
        rig.boot(victim)

    for node_id in rig.machines:
        rig.until(lambda node_id=node_id: sorted(rig.cluster(node_id).state.topics) == sorted(
            acknowledged), "everywhere")
    rig.world.end()


def test_a_node_that_is_killed_is_fenced_and_comes_back_at_the_end(rig: Rig) -> None:
    """V5, V16, V21: others go on in its place, and it serves again when it has caught up."""
    create(rig, 1, "t")
    rig.kill(1)
    rig.until(lambda: rig.serving() == [2, 3], "shortened", seconds=2 * SESSION_MS / 1000 + 1)
    seen_by = rig.controller
    assert rig.cluster(seen_by).state.brokers[NodeId(1)].fenced
    assert rig.leader_of("t", seen_by=seen_by) == 2

    rig.boot(1)

    rig.until(lambda: rig.serving() == [2, 3, 1], "whole again")
    assert rig.leader_of("t", seen_by=1) == 2
    assert ("replicas", "t") in rig.program(2).chains.notifications


@pytest.mark.parametrize("seed", range(5))
def test_a_controller_that_dies_is_missed_no_later_than_any_other_node(seed: int) -> None:
    """V5, V15, broker.cluster.L2: its silence counts from before the new one was elected;
    `OneSpeaker` looks on.
    """
    rig = Rig(seed, with_raft=True)
    rig.boot()
    rig.chain()
    rig.run_for(1.0)
    victim = rig.controller
    rig.kill(victim)
    rig.until(lambda: victim not in rig.serving() != [], "fenced", seconds=SESSION_MS / 1000 + 1)
    rig.world.end()


def test_who_dies_with_the_controller_is_fenced_with_it() -> None:
    """V14, broker.cluster.L5: each of the two may be the one whose disk has kept most."""
    rig = Rig(names=("a-0", "a-1", "a-2", "a-3", "a-4"), with_raft=True)
    rig.boot()
    rig.chain()
    rig.run_for(1.0)
    epoch = rig.cluster(1).state.chains["a"].epoch
    victims = {rig.controller, rig.others[0]}
    for victim in victims:
        rig.kill(victim)
    rig.until(lambda: rig.serving() != [] and not victims & set(rig.serving()), "fenced")
    assert rig.cluster(rig.controller).state.chains["a"].epoch == epoch + 1
    rig.world.end()


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_node_that_is_cut_off_stops_to_speak_before_others_begin(rig: Rig, victim: int) -> None:
    """V15, broker.cluster.L3, broker.cluster.M4: `OneSpeaker` looks after every step; and the node
    takes part again when it is back.
    """
    create(rig, 1, "t")
    rig.cut_off(victim)
    other = 1 if victim != 1 else 2
    rig.until(lambda: victim not in rig.serving(seen_by=other), "shortened")
    cut_off = rig.cluster(victim)
    assert cut_off.lease_until < rig.world.loop.now

    rig.world.net.heal()

    rig.until(lambda: sorted(rig.serving()) == [1, 2, 3], "whole again")
    rig.until(lambda: cut_off.lease_until > rig.world.loop.now, "leased again")


def test_a_node_that_was_paused_finds_that_others_lead(rig: Rig) -> None:
    """V15, broker.cluster.B2: it has no lease when it wakes, and gets one only with the metadata of
    now.
    """
    create(rig, 1, "t")
    rig.machines[NodeId(1)].pause()
    rig.until(lambda: 1 not in rig.serving(seen_by=2), "shortened")
    rig.machines[NodeId(1)].resume()

    rig.until(lambda: rig.serving(seen_by=1) == [2, 3, 1], "whole again")

    assert rig.leader_of("t", seen_by=1) == 2


def test_a_member_serves_when_all_of_its_partitions_have_caught_up(rig: Rig) -> None:
    """V7: not before, however many have."""
    create(rig, 1, "t", "u", "v", rotate="false")
    rig.kill(3)
    rig.until(lambda: rig.serving() == [1, 2], "shortened")
    tail = rig.program(2)
    tail.chains.is_quick = False
    rig.boot(3)
    topics = tail.cluster.state.topics
    rig.until(lambda: topics["v"].partitions[0].replica_set.syncing == (3,), "syncing")
    tail.chains.is_quick = True
    tail.chains.sync(topics["t"])
    tail.chains.sync(topics["u"])
    rig.run_for(5)
    assert rig.serving() == [1, 2]

    tail.chains.sync(topics["v"])

    rig.until(lambda: rig.serving() == [1, 2, 3], "promoted", seconds=1)


def test_a_member_serves_in_each_order_of_its_chain_for_itself(rig: Rig) -> None:
    """V7: each order has a tail of its own, which reports who has caught up there."""
    create(rig, 1, "t", partitions=3, rotate="true")
    rig.kill(3)
    rig.until(lambda: rig.serving() == [1, 2], "shortened")
    for node_id in (1, 2):
        rig.program(node_id).chains.is_quick = False
    rig.boot(3)
    topics = rig.cluster(1).state.topics

    def syncing() -> list[int]:
        return [index for index, partition in enumerate(topics["t"].partitions)
                if 3 in partition.replica_set.syncing]

    rig.until(lambda: syncing() == [0, 1, 2], "syncing")
    rig.program(1).chains.is_quick = True
    rig.program(1).chains.sync(topics["t"])  # the tail of partition 1 alone: 2 1
    rig.until(lambda: syncing() == [0, 2], "promoted where it has caught up", seconds=2)
    rig.run_for(5)
    assert syncing() == [0, 2]

    rig.program(2).chains.is_quick = True
    rig.program(2).chains.sync(topics["t"])

    rig.until(lambda: not syncing(), "promoted everywhere", seconds=2)


def test_a_node_that_stops_in_order_is_replaced_at_once(rig: Rig) -> None:
    """K10: before it goes, not when it is missed; and each of them in turn."""
    create(rig, 1, "t")
    for victim in (1, 2, 3):
        began = rig.world.loop.now
        rig.stop(victim)
        other = rig.controller
        assert victim not in rig.serving(seen_by=other)
        assert rig.leader_of("t", seen_by=other) not in (victim, None)
        assert rig.world.loop.now - began < SESSION_MS / 2000
        rig.boot(victim)
        rig.until(lambda victim=victim: victim in rig.serving(), "whole again")


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_node_whose_disk_fails_steps_back_until_it_is_restarted(rig: Rig, victim: int) -> None:
    """V10, V15, V16, broker.cluster.B4: controller or not; the others go on at once."""
    create(rig, 1, "t")
    sick = rig.cluster(victim)
    sick.report_disk_failure("broken for a test")
    assert sick.why_stepped_back is None

    rig.until(lambda: victim not in rig.serving(), "shortened", seconds=1.0)
    rig.until(lambda: sick.why_stepped_back is not None, "reported", seconds=1.0)

    assert sick.why_stepped_back == "broken for a test"
    assert sick.is_out_of_touch
    assert "broken for a test" in str(chain_trouble(sick))
    rig.run_for(2 * SESSION_MS / 1000)
    assert victim not in rig.serving()
    rig.stop(victim)
    rig.boot(victim)
    rig.until(lambda: len(rig.serving()) == 3, "whole again")
    assert chain_trouble(rig.cluster(victim)) is None


def test_a_node_that_starts_with_a_failed_disk_starts(rig: Rig) -> None:
    """V16: it is not counted on, and does not wait for that."""
    rig.kill(2)
    rig.until(lambda: 2 not in rig.serving() != [], "shortened")
    machine = rig.machines[NodeId(2)]
    machine.boot()
    rig.world.run_for(0)
    rig.cluster(2).report_disk_failure("broken for a test")

    rig.until(lambda: machine.is_up, "started")

    assert rig.cluster(2).state.brokers[NodeId(2)].fenced
    rig.until(lambda: "broken" in str(chain_trouble(rig.cluster(2))), "reported")


def test_the_only_node_that_serves_stays_although_its_disk_fails() -> None:
    """V14: for the sake of all its other partitions."""
    rig = Rig(names=("a-0", "b-0", "b-1"))
    rig.boot()
    rig.chain()
    rig.cluster(1).report_disk_failure("broken for a test")
    rig.run_for(2 * SESSION_MS / 1000)
    assert rig.serving() == [1]
    assert not rig.cluster(1).is_out_of_touch
    assert chain_trouble(rig.cluster(1)) is None
    rig.world.end()


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_failed_log_takes_its_node_off_one_partition(rig: Rig, victim: int) -> None:
    """V13, V15, broker.cluster.B5: the chain and every other partition stay as they are; when the
    log is open again the replica catches up, and all is as it was.
    """
    create(rig, 1, "t", partitions=2)
    topic = rig.cluster(1).state.topics["t"]
    sick, key = rig.cluster(victim), (topic.topic_id, 0)
    sick.report_failure(*key, "broken for a test")
    assert not sick.is_failure_known(*key)

    def isr(partition: int) -> list[int]:
        return sorted(rig.cluster(2).state.topics["t"].partitions[partition].isr)

    others = sorted({1, 2, 3} - {victim})
    rig.until(lambda: isr(0) == others, "taken off", seconds=1.0)
    rig.until(lambda: sick.is_failure_known(*key), "reported", seconds=1.0)
    assert sick.failures == {"t-0": "broken for a test"}
    rig.run_for(2 * SESSION_MS / 1000)
    assert isr(0) == others
    assert isr(1) == rig.serving() == [1, 2, 3]
    assert chain_trouble(sick) is None
    assert not sick.is_out_of_touch

    sick.report_repair(*key)
    rig.until(lambda: isr(0) == [1, 2, 3], "whole again", seconds=1.0)
    rig.until(lambda: rig.cluster(1).state.detached_partitions() == [], "as it was", seconds=1.0)


def test_only_members_tell_that_a_replica_has_caught_up() -> None:
    """K8, V15: of a partition that is detached from its chain, too; others cannot know."""
    rig = Rig(names=("a-0", "a-1", "a-2", "b-0"))
    rig.boot()
    rig.chain()
    create(rig, 1, "t")
    topic_id = rig.cluster(1).state.topics["t"].topic_id
    for member in (1, 2, 3):
        rig.program(member).chains.is_quick = False
    rig.cluster(2).report_failure(topic_id, 0, "broken for a test")
    rig.until(lambda: rig.cluster(2).is_failure_known(topic_id, 0), "reported", seconds=1.0)
    rig.cluster(2).report_repair(topic_id, 0)

    def replicas(node_id: int) -> ReplicaSet:
        return rig.cluster(node_id).state.topics["t"].partitions[0].replica_set

    rig.until(lambda: replicas(1).syncing == replicas(4).syncing == (2,), "open again", seconds=1.0)
    for teller, serving in ((4, [1, 3]), (3, [1, 2, 3])):
        rig.cluster(teller).report_in_sync(topic_id, 0, NodeId(2), version=replicas(4).version)
        rig.run_for(2 * SESSION_MS / 1000)
        assert sorted(replicas(1).serving) == serving
    rig.world.end()


def test_a_node_with_too_many_failed_logs_steps_back(rig: Rig) -> None:
    """V13: then it is its disk that has failed."""
    create(rig, 1, "t")
    for number in range(FAILED_MAX):
        rig.cluster(2).report_failure(UUID(int=number + 1), 0, "broken for a test")
    rig.run_for(SESSION_MS / 1000)
    assert rig.serving() == [1, 2, 3]
    rig.cluster(2).report_failure(UUID(int=FAILED_MAX + 1), 0, "broken for a test")
    rig.until(lambda: rig.serving() == [1, 3], "shortened", seconds=1.0)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_nodes_that_stop_one_after_the_other_wait_for_nobody_who_is_gone(
    order: tuple[int, ...],
) -> None:
    """K10: the last one has no controller to ask, and knows it."""
    rig = Rig(with_raft=True)
    rig.boot()
    rig.chain()
    for node_id in order:
        began = rig.world.loop.now
        rig.stop(node_id)
        assert rig.world.loop.now - began < 1.5
    rig.world.end()


def test_the_last_one_that_serves_leaves_its_chain_as_it_is() -> None:
    """V14: nobody else has every record; when it comes back it serves again."""
    rig = Rig(names=("a-0", "b-0", "b-1"))
    rig.boot()
    rig.chain()
    create(rig, 2, "t")
    rig.stop(1)
    assert rig.serving(seen_by=2) == [1]
    rig.until(lambda: rig.leader_of("t", seen_by=2) is None, "without a leader", seconds=1)

    rig.boot(1)

    rig.until(lambda: rig.leader_of("t", seen_by=2) == 1, "led again")
    rig.world.end()


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3), (3, 1, 2)])
def test_a_chain_starts_again_after_all_of_it_was_down(rig: Rig, order: tuple[int, ...]) -> None:
    """V14: when all have come back they serve in their old order, under a new epoch."""
    create(rig, 1, "t")
    epoch = rig.cluster(1).state.chains["a"].epoch
    for node_id in rig.machines:
        rig.kill(node_id)
    rig.council.leader = None
    for node_id in order:
        rig.machines[NodeId(node_id)].boot()
        rig.run_for(0.3)

    rig.until(lambda: all(machine.is_up for machine in rig.machines.values()), "up")
    rig.until(lambda: rig.leader_of("t", seen_by=3) == 1, "led")

    assert rig.serving() == [1, 2, 3]
    assert rig.cluster(1).state.chains["a"].epoch > epoch


def test_a_chain_does_not_wait_for_ever_for_its_last_node(rig: Rig) -> None:
    """V14, broker.cluster.L4: after chain.cold.start.wait.ms those that served go on without it."""
    create(rig, 1, "t")
    for node_id in rig.machines:
        rig.kill(node_id)
    rig.council.leader = None
    rig.boot(2, 3)
    assert rig.leader_of("t", seen_by=2) is None

    rig.until(lambda: rig.leader_of("t", seen_by=2) == 2, "led")

    assert rig.serving() == [2, 3]
    rig.boot(1)
    rig.until(lambda: rig.serving() == [2, 3, 1], "whole again")


def test_a_second_process_of_a_node_is_refused_while_the_first_is_heard_of(rig: Rig) -> None:
    """V15: two processes with one number; the second is refused until the first is gone."""
    rival = BrokerRegistrationRequest(
        node_id=1, name="a-0", host="h", port=1, incarnation=UUID(int=7))
    rig.run_for(2.5 * SESSION_MS / 1000)
    with pytest.raises(QuipuError, match="node 1 is up already, as a-0") as error:
        rig.ask(rig.controller, lambda cluster: cluster._server.handle(NodeId(1), rival))
    assert error.value.code is Code.DUPLICATE_BROKER_REGISTRATION
    rig.kill(1)
    rig.until(lambda: rig.serving(seen_by=2) == [2, 3], "fenced")

    taken = rig.ask(rig.controller, lambda cluster: cluster._server.handle(NodeId(1), rival))

    assert taken.response.broker_epoch == rig.cluster(2).state.brokers[NodeId(1)].epoch


def test_nodes_learn_where_the_others_are(rig: Rig) -> None:
    """V5: the address book follows the registrations, and so does the cluster's id."""
    for node_id in rig.machines:
        assert rig.peers(node_id).known().keys() == rig.machines.keys() - {node_id}
        assert rig.peers(node_id).identity.cluster_id == rig.cluster(1).state.cluster_id != ""


def test_a_node_that_was_away_for_long_hears_the_differences() -> None:
    """T7: it gets an image instead of the history, and its listeners hear what is different."""
    rig = Rig()
    rig.boot()
    rig.chain()
    create(rig, 1, "kept", "gone")
    rig.until(lambda: "gone" in rig.cluster(3).state.topics, "seen")
    rig.cut_off(3)
    notifications = rig.program(3).chains.notifications
    rig.until(lambda: 3 not in rig.serving(seen_by=1), "shortened")
    controller = rig.controller
    topic = rig.cluster(1).state.topics["gone"]
    rig.ask(controller, lambda cluster: cluster.controller.delete_topics([(None, topic.topic_id)]))
    create(rig, controller, "gone", "new")
    notifications.clear()
    seat = rig.program(controller).seat
    seat.shorten(seat._machine.snapshot())
    rig.council.entries = [()] * len(rig.council.entries)  # they are nowhere else any more

    rig.world.net.heal()
    rig.until(lambda: "new" in rig.cluster(3).state.topics, "caught up")
    rig.run_for(0.1)

    assert notifications.index(("deleted", "gone")) < notifications.index(("created", "gone", 1))
    assert ("created", "new", 1) in notifications
    assert ("replicas", "kept") in notifications
    assert ("brokers",) in notifications
    assert rig.cluster(3).state == rig.cluster(controller).state
    rig.world.end()


def test_a_cluster_without_a_controller_says_so_in_time(rig: Rig) -> None:
    """K5, broker.cluster.K5: a request ends, with REQUEST_TIMED_OUT, when nobody can decide."""
    rig.cut_off(1)
    began = rig.world.loop.now
    with pytest.raises(QuipuError) as error:
        rig.ask(1, lambda cluster: rig.create_topics(cluster, NewTopic("t")))

    assert error.value.code is Code.REQUEST_TIMED_OUT
    assert rig.world.loop.now - began < 40
