"""State: the same records give the same state, and a snapshot gives it too."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.controller import brokers, reassignment
from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigResource, alter
from quipu.controller.invariants import Counters, check_applied
from quipu.controller.producer_ids import reserve
from quipu.controller.records import (
    BrokerUnregistered,
    ChainChanged,
    ChainMemberRecord,
    ClusterCreated,
    ConfigChanged,
    ProducerIdsReserved,
    Record,
    decode_record,
    encode_record,
)
from quipu.controller.resources import ResourceType
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import create_partitions, create_topics, delete_topics
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from quipu.model.settings import BrokerSettings
from tests.controller.states import ids, register, state_with

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c"])
COUNTS = st.integers(-1, 4)
CONFIGS = st.sampled_from([("retention.ms", "5"), ("retention.ms", "6"),
                           ("cleanup.policy", "compact"), ("bad", "x"), ("segment.bytes", "0")])
RESOURCES = st.one_of(st.builds(ConfigResource, st.just(2), NAMES),
                      st.builds(ConfigResource, st.just(4), st.sampled_from(["", "1", "7"])))
BROKER_CONFIGS = st.sampled_from(
    [("log.retention.ms", "5"), ("num.partitions", "3"), ("node.id", "4")])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, COUNTS, st.lists(CONFIGS, max_size=2)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("extend"), NAMES, COUNTS),
    st.tuples(st.just("alter"), RESOURCES, st.one_of(CONFIGS, BROKER_CONFIGS), st.integers(0, 3),
              st.booleans()),
    st.tuples(st.just("reserve")),
    st.tuples(st.just("register"), st.integers(1, 3)),
    st.tuples(st.just("fence"), st.integers(1, 2)),
    st.tuples(st.just("move"), NAMES, st.sampled_from([(1,), (2,), None])),
)


def decide(state: ClusterState, step: tuple, new_id) -> list[Record]:  # noqa: ANN001 a function
    broker = BrokerSettings()
    match step:
        case ("create", name, count, configs):
            wanted = [NewTopic(name, count, configs=configs)]
            return create_topics(state, wanted, broker, new_id).records
        case ("delete", name):
            return delete_topics(state, [(name, ZERO_UUID)], broker).records
        case ("extend", name, count):
            return create_partitions(state, [NewPartitions(name, count)], BrokerSettings()).records
        case ("alter", resource, (name, value), operation, whole):
            change = ConfigChange(name, 0 if whole else operation, value)
            return alter(state, [ConfigAlteration(resource, [change], whole)], broker).records
        case ("reserve",):
            return reserve(state, NodeId(1)).records
        case ("register", node_id):
            return register(state, node_id, f"{'?abc'[node_id]}-0", life=len(state.topics)).records
        case ("fence", node_id):
            return brokers.fence(state, [NodeId(node_id)]).records
        case ("move", name, replicas):
            return reassignment.alter(
                state, [reassignment.Reassignment(name, 0, replicas)]).records
    raise AssertionError(step)


def check(state: ClusterState) -> None:
    """controller.S2, controller.S3: and what the finders promise."""
    assert {topic.topic_id for topic in state.topics.values()} == set(state.topics_by_id)
    for name, topic in state.topics.items():
        assert topic.name == name
        assert state.topics_by_id[topic.topic_id] is topic
        assert state.find_topic(name) is topic
        assert state.find_clash(name) is None
        assert topic.partitions
        for partition in topic.partitions:
            assert partition.leader in (NO_NODE, *partition.isr)
            assert set(partition.isr) <= set(partition.replicas) <= set(state.brokers)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=25))
def test_replay_and_snapshot_give_the_same_state(steps: list[tuple]) -> None:
    """T7, K5, controller.S1, controller.S5: whatever is decided, the log of records and a snapshot
    of it say the same.
    """
    state, log, new_id = state_with(a=1, b=1), [], ids()
    log.extend(records_of(state))
    for step in steps:
        records = decide(state, step, new_id)
        for record in records:
            state.apply(record)
        log.extend(records)
        check(state)

    replayed, restored = ClusterState(), ClusterState()
    for record in log:
        replayed.apply(decode_record(encode_record(record)))
    for record in list(records_of(state)):
        restored.apply(decode_record(encode_record(record)))

    assert replayed == state
    assert restored == state
    assert list(restored.topics) == list(state.topics)


@given(steps=st.lists(st.just(("reserve",)), max_size=5))
def test_producer_ids_are_never_given_twice(steps: list[tuple]) -> None:
    """K2, controller.S4: two producers never share an id."""
    state, seen = state_with(), set()
    for _ in steps:
        decision = reserve(state, NodeId(1))
        (block,) = decision.results
        assert seen.isdisjoint(block)
        seen.update(block)
        for record in decision.records:
            state.apply(record)


SERVING = [ChainMemberRecord(node_id=1)]
IMPOSSIBLE: list[tuple[str, Record]] = [
    ("a second birth", ClusterCreated(cluster_id="other")),
    ("ids that go back", ProducerIdsReserved(next_producer_id=0)),
    ("a member leaves the cluster", BrokerUnregistered(node_id=1)),
    ("a node in two chains", ChainChanged(name="b", epoch=9, version=9, members=SERVING)),
    ("a member that is not registered", ChainChanged(
        name="b", epoch=9, version=9, members=[ChainMemberRecord(node_id=7)])),
    ("a chain whose version goes back", ChainChanged(
        name="a", epoch=9, version=1, members=SERVING)),
    ("a chain whose epoch goes back", ChainChanged(
        name="a", epoch=0, version=99, members=SERVING)),
    ("a chain without members", ChainChanged(name="a", epoch=9, version=99)),
    ("a chain without a serving member", ChainChanged(
        name="a", epoch=9, version=99, members=[ChainMemberRecord(node_id=1, state=1)])),
    ("a chain without a name", ChainChanged(epoch=9, version=99, members=SERVING)),
]


@pytest.mark.parametrize(("why", "record"), IMPOSSIBLE, ids=[case[0] for case in IMPOSSIBLE])
def test_a_record_that_does_not_fit_is_a_bug(why: str, record: Record) -> None:
    with pytest.raises(AssertionError):
        state_with().apply(record)


def forget_by_name(state: ClusterState) -> None:
    state.topics["t"] = dataclasses.replace(state.topics["t"])


def lead_elsewhere(state: ClusterState) -> None:
    topic = state.topics["t"]
    partitions = (*topic.partitions[:-1], topic.partitions[-1]._replace(leader=NodeId(9)))
    state.topics["t"] = state.topics_by_id[topic.topic_id] = dataclasses.replace(
        topic, partitions=partitions)


def reuse_versions(state: ClusterState) -> None:
    state.next_version = 1


def forget_the_chain_s_topics(state: ClusterState) -> None:
    state.chain_index._topics["a"].clear()


@pytest.mark.parametrize("damage", [
    forget_by_name, lead_elsewhere, reuse_versions, forget_the_chain_s_topics])
def test_a_state_that_contradicts_itself_is_found_by_the_next_record(
    damage: Callable[[ClusterState], None]
) -> None:
    """controller.S2, controller.P2, controller.S6: checked after each record."""
    state = state_with()
    for record in create_topics(state, [NewTopic("t", 3, 1)], BrokerSettings(), ids()).records:
        state.apply(record)
    change = ConfigChanged(resource_type=2, resource_name="t", name="flush.ms", value="7")
    if damage is not forget_by_name:  # else the record itself mends it
        damage(state)
        with pytest.raises(AssertionError):
            state.apply(change)
        return
    state.apply(change)
    before = Counters.of(state)
    damage(state)
    with pytest.raises(AssertionError):
        check_applied(state, change, before)


def test_the_check_after_a_record_does_not_look_at_all_there_is() -> None:
    """V21: a record about one topic costs the same among many topics, and of many partitions."""
    state = state_with()
    wanted = [NewTopic("large", 9_000), *(NewTopic(f"t{number}") for number in range(300))]
    for record in create_topics(state, wanted, BrokerSettings(), ids()).records:
        state.apply(record)
    looked_at: list[object] = []

    class Watched(tuple):  # noqa: SLOT001 a tuple that says what is read of it
        def __getitem__(self, index: Any) -> Any:
            looked_at.append(index)
            return super().__getitem__(index)

        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("all partitions are looked at")

    for topic in list(state.topics.values()):
        state.topics[topic.name] = state.topics_by_id[topic.topic_id] = dataclasses.replace(
            topic, partitions=Watched(topic.partitions))
    change = ConfigChanged(resource_type=2, resource_name="large", name="flush.ms", value="7")

    state.apply(change)

    assert looked_at == [0, -1]


def test_a_setting_is_inherited_again_when_it_is_cleared() -> None:
    state = state_with(ConfigChanged(resource_type=4, resource_name="1", name="n", value="v"))
    assert state.configs(ResourceType.BROKER, "1") == {"n": "v"}

    state.apply(ConfigChanged(resource_type=4, resource_name="1", name="n", value=None))

    assert state.broker_configs == {}


def test_ten_thousand_partitions_follow_a_chain_at_once() -> None:
    """V21: partitions at one place are one value, and one record changes them all."""
    state = state_with(a=2)
    new_id = ids()
    for wanted in (NewTopic("t", 10_000), NewTopic("small", 1)):
        for record in create_topics(state, [wanted], BrokerSettings(), new_id).records:
            state.apply(record)
    assert len(set(map(id, state.topics["t"].partitions))) == 1

    changed = [topic.name for record in brokers.fence(state, [NodeId(1)]).records
               for topic in state.apply(record)]

    assert changed == ["t", "small", "t", "small"]  # without a leader, and then with another
    assert len(set(map(id, state.topics["t"].partitions))) == 1
    assert state.topics["t"].partitions[9_999].leader == 2
