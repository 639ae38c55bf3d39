"""Decisions about topics: Kafka's rules, one case each."""

from typing import NamedTuple
from uuid import UUID

import pytest

from quipu.controller.records import PartitionsAdded, Record, TopicCreated, TopicDeleted
from quipu.controller.state import ClusterState
from quipu.controller.topic_limits import RequestLimits
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import (
    create_internal_topics,
    create_partitions,
    create_topics,
    delete_topics,
    topic_names,
)
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.model.settings import BrokerSettings
from quipu.model.topics import CONSUMER_OFFSETS
from tests.controller.states import chain_name, ids, nodes_with, state_with, stop

SETTINGS = BrokerSettings(num_partitions=3, default_replication_factor=2)


def apply(state: ClusterState, records: list[Record]) -> ClusterState:
    for record in records:
        state.apply(record)
    return state


def with_topics(*topics: NewTopic, **lengths: int) -> ClusterState:
    state = state_with(**lengths)
    decision = create_topics(state, topics, SETTINGS, ids())
    assert all(result.code is Code.NONE for result in decision.results)
    return apply(state, decision.records)


class Refused(NamedTuple):
    why: str
    topic: NewTopic
    code: Code


REFUSED = [
    Refused("an illegal name", NewTopic("a/b", 1, 1), Code.INVALID_TOPIC_EXCEPTION),
    Refused("the cluster's own", NewTopic("__consumer_offsets", 1, 1),
            Code.INVALID_TOPIC_EXCEPTION),
    Refused("it is there", NewTopic("old.topic", 1, 1), Code.TOPIC_ALREADY_EXISTS),
    Refused("it clashes", NewTopic("old_topic", 1, 1), Code.INVALID_TOPIC_EXCEPTION),
    Refused("no partitions", NewTopic("a", 0, 1), Code.INVALID_PARTITIONS),
    Refused("minus two partitions", NewTopic("a", -2, 1), Code.INVALID_PARTITIONS),
    Refused("more than a file name holds", NewTopic("a", 100_000, 1), Code.POLICY_VIOLATION),
    Refused("more than one request may make", NewTopic("a", 10_001, 1), Code.POLICY_VIOLATION),
    Refused("no replicas", NewTopic("a", 1, 0), Code.INVALID_REPLICATION_FACTOR),
    Refused("more replicas than nodes", NewTopic("a", 1, 4), Code.INVALID_REPLICATION_FACTOR),
    Refused("an unknown setting", NewTopic("a", 1, 1, configs=[("retention", "1")]),
            Code.INVALID_CONFIG),
    Refused("a bad value", NewTopic("a", 1, 1, configs=[("retention.ms", "x")]),
            Code.INVALID_CONFIG),
    Refused("no value", NewTopic("a", 1, 1, configs=[("retention.ms", None)]), Code.INVALID_CONFIG),
    Refused("assignments and a count", NewTopic("a", 1, -1, [(0, [1])]), Code.INVALID_REQUEST),
    Refused("assignments and a factor", NewTopic("a", -1, 1, [(0, [1])]), Code.INVALID_REQUEST),
    Refused("a gap", NewTopic("a", -1, -1, [(0, [1]), (2, [1])]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("not from 0 on", NewTopic("a", -1, -1, [(1, [1])]), Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("one partition twice", NewTopic("a", -1, -1, [(0, [1]), (0, [1])]),
            Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("a partition nowhere", NewTopic("a", -1, -1, [(0, [])]),
            Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("an unknown broker", NewTopic("a", -1, -1, [(0, [9])]),
            Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("one broker twice", NewTopic("a", -1, -1, [(0, [1, 1])]),
            Code.INVALID_REPLICA_ASSIGNMENT),
    Refused("uneven replicas", NewTopic("a", -1, -1, [(0, [2, 3]), (1, [1])]),
            Code.INVALID_REPLICA_ASSIGNMENT),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_topic_that_cannot_be_is_refused(case: Refused) -> None:
    """K5: Kafka's code, a message, no record; the good topic beside it is created."""
    state = with_topics(NewTopic("old.topic", 1, 1), a=1, b=2)

    decision = create_topics(state, [case.topic, NewTopic("good", 1, 1)], SETTINGS, ids())

    bad, good = decision.results
    assert (bad.code, good.code) == (case.code, Code.NONE)
    assert bad.message
    assert [r.name for r in decision.records if isinstance(r, TopicCreated)] == ["good"]


def test_minus_one_takes_the_defaults() -> None:
    """K5: num.partitions and default.replication.factor; the topic is on one chain."""
    state = with_topics(NewTopic("t"), a=1, b=2)

    assert [(chain_name(p), p.replicas, p.leader, p.leader_epoch)
            for p in state.topics["t"].partitions] == [("b", (2, 3), 2, 2)] * 3


def test_a_factor_of_zero_in_the_settings_is_any_chain_s() -> None:
    """V2, V8: a topic has as many replicas as its chain has nodes."""
    state = state_with(a=3)
    wanted = [NewTopic("t", 1, -1), NewTopic("u", 1, 3)]

    apply(state, create_topics(state, wanted, BrokerSettings(), ids()).records)

    assert [state.topics[name].replication_factor for name in ("t", "u")] == [3, 3]


def test_an_assignment_by_hand_may_name_whole_chains() -> None:
    """K5: partitions may be on several chains; in their own order, they are on the chains."""
    state = with_topics(NewTopic("t", assignments=[(1, [3, 4]), (0, [1, 2])]), a=2, b=2)

    assert [(chain_name(p), p.replicas) for p in state.topics["t"].partitions] == [
        ("a", (1, 2)), ("b", (3, 4))]


def test_a_refused_factor_names_what_there_is() -> None:
    """V8: the message is enough to ask again, rightly."""
    results = create_topics(state_with(a=2, b=1), [NewTopic("t", 1, 4)], SETTINGS, ids()).results

    assert "only 3 brokers are registered" in (results[0].message or "")


@pytest.mark.parametrize("wanted", [NewTopic("t"), NewTopic("t", 1, 1),
                                    NewTopic("t", assignments=[(0, [1])])])
def test_without_a_chain_there_is_no_topic(wanted: NewTopic) -> None:
    """V6: chains are made by people, and the message says so."""
    decision = create_topics(nodes_with(["a-0"]), [wanted], SETTINGS, ids())

    assert decision.records == []
    assert decision.results[0].code in {Code.INVALID_REPLICATION_FACTOR,
                                        Code.INVALID_REPLICA_ASSIGNMENT}
    assert "quipu chain create" in (decision.results[0].message or "")


def test_topics_of_one_request_go_to_the_chain_with_the_fewest() -> None:
    """V8: what the same request puts on a chain counts."""
    state = with_topics(*(NewTopic(name, 1, 1) for name in "pqrstu"), a=1, b=1, c=1)

    assert [state.topic_count(name) for name in "abc"] == [2, 2, 2]


def test_a_chain_that_takes_no_writes_is_passed_over() -> None:
    """V8: unless there is no other."""
    state = state_with(a=1, b=1)
    stop(state, 1)
    wanted = [NewTopic(name, 1, 1) for name in "xyz"]

    apply(state, create_topics(state, wanted, SETTINGS, ids()).records)

    assert (state.topic_count("a"), state.topic_count("b")) == (0, 3)


def test_the_cluster_s_own_topics_are_spread_over_all_chains() -> None:
    """V8: partition by partition, whatever the chains' lengths and the default factor."""
    state = state_with(a=1, b=2, c=3)

    apply(state, create_internal_topics(
        state, [NewTopic(CONSUMER_OFFSETS, 7)], SETTINGS, ids()).records)

    assert "".join(chain_name(p) for p in state.topics[CONSUMER_OFFSETS].partitions) == "abcabca"


def test_a_name_twice_in_one_request_is_refused_once() -> None:
    decision = create_topics(
        state_with(), [NewTopic("a", 1, 1), NewTopic("a", 2, 1)], SETTINGS, ids())

    assert [(result.name, result.code) for result in decision.results] == [
        ("a", Code.INVALID_REQUEST)]
    assert decision.records == []


def test_a_request_that_is_sent_again_finds_what_it_created() -> None:
    """K5: as when its controller was lost before the response; another request's topic exists."""
    state = state_with(a=1)
    request = [NewTopic("t", 1, 1), NewTopic("u", 1, 1)]
    first = create_topics(state, request, SETTINGS, ids(), request_id=UUID(int=7))
    apply(state, first.records[:1])

    again = create_topics(state, request, SETTINGS, ids(), request_id=UUID(int=7))
    other = create_topics(state, request[:1], SETTINGS, ids(), request_id=UUID(int=8))

    assert [result.code for result in again.results] == [Code.NONE, Code.NONE]
    assert [result.topic_id for result in again.results] == [
        result.topic_id for result in first.results]
    assert [record.name for record in again.records if isinstance(record, TopicCreated)] == ["u"]
    assert [result.code for result in other.results] == [Code.TOPIC_ALREADY_EXISTS]


def test_two_names_that_clash_in_one_request_make_one_topic() -> None:
    decision = create_topics(
        state_with(), [NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1)], SETTINGS, ids())

    assert [result.code for result in decision.results] == [
        Code.NONE, Code.INVALID_TOPIC_EXCEPTION]


def test_a_request_may_add_ten_thousand_partitions_in_all() -> None:
    wanted = [NewTopic("a", 6000, 1), NewTopic("b", 6000, 1), NewTopic("c", 4000, 1)]

    results = create_topics(state_with(), wanted, SETTINGS, ids()).results

    assert [result.code for result in results] == [Code.NONE, Code.POLICY_VIOLATION, Code.NONE]


class Deletion(NamedTuple):
    why: str
    name: str | None
    topic_id: UUID
    code: Code


DELETIONS = [
    Deletion("by name", "a", ZERO_UUID, Code.NONE),
    Deletion("by id", None, UUID(int=1), Code.NONE),
    Deletion("an unknown name", "x", ZERO_UUID, Code.UNKNOWN_TOPIC_OR_PARTITION),
    Deletion("an unknown id", None, UUID(int=9), Code.UNKNOWN_TOPIC_ID),
    Deletion("both", "a", UUID(int=1), Code.INVALID_REQUEST),
    Deletion("neither", None, ZERO_UUID, Code.INVALID_REQUEST),
]


@pytest.mark.parametrize("case", DELETIONS, ids=lambda case: case.why)
def test_a_topic_is_deleted_by_name_or_by_id(case: Deletion) -> None:
    """K5: DeleteTopics."""
    state = with_topics(NewTopic("a", 1, 1))

    decision = delete_topics(state, [(case.name, case.topic_id)], SETTINGS)

    assert decision.results[0].code is case.code
    deleted = [r.topic_id for r in decision.records if isinstance(r, TopicDeleted)]
    assert deleted == ([UUID(int=1)] if case.code is Code.NONE else [])
    assert (apply(state, decision.records).topics == {}) == (case.code is Code.NONE)


def test_a_deleted_name_can_be_used_again_for_another_topic() -> None:
    """K5: the new topic has another id, so no one mistakes it for the old one."""
    state, new_id = with_topics(NewTopic("a.b", 1, 1)), ids()
    apply(state, delete_topics(state, [("a.b", ZERO_UUID)], SETTINGS).records)
    new_id()
    apply(state, create_topics(state, [NewTopic("a_b", 1, 1)], SETTINGS, new_id).records)

    assert state.topics["a_b"].topic_id == UUID(int=2)
    assert state.find_topic(None, UUID(int=1)) is None


def test_the_same_topic_by_name_and_id_is_refused_twice() -> None:
    state = with_topics(NewTopic("a", 1, 1))

    decision = delete_topics(state, [("a", ZERO_UUID), (None, UUID(int=1))], SETTINGS)

    assert [a.code for a in decision.results] == [Code.INVALID_REQUEST, Code.INVALID_REQUEST]
    assert decision.records == []


def test_a_topic_that_came_after_the_request_is_not_deleted_twice_either() -> None:
    """K5: a request waits behind others, and its topics may be created meanwhile."""
    state = with_topics(NewTopic("a", 1, 1))
    wanted: list[tuple[str | None, UUID]] = [("a", ZERO_UUID), ("a", ZERO_UUID)]
    limits = RequestLimits(topic_names(ClusterState(), wanted))  # there is none yet

    decision = delete_topics(state, wanted, SETTINGS, limits=limits)

    assert decision.records == []
    assert [result.code for result in decision.results] == [Code.INVALID_REQUEST] * 2



def test_deletion_can_be_forbidden() -> None:
    state = with_topics(NewTopic("a", 1, 1))
    forbidden = BrokerSettings(delete_topic_enable=False)

    results = delete_topics(state, [("a", ZERO_UUID)], forbidden).results

    assert results[0].code is Code.TOPIC_DELETION_DISABLED


class Extension(NamedTuple):
    why: str
    wanted: NewPartitions
    code: Code
    chains: str


EXTENSIONS = [
    Extension("two more", NewPartitions("a", 4), Code.NONE, "aa"),
    Extension("placed by hand", NewPartitions("a", 3, [[2]]), Code.NONE, "b"),
    Extension("as many as there are", NewPartitions("a", 2), Code.INVALID_PARTITIONS, ""),
    Extension("fewer", NewPartitions("a", 1), Code.INVALID_PARTITIONS, ""),
    Extension("far too many", NewPartitions("a", 100_000), Code.POLICY_VIOLATION, ""),
    Extension("more than one request may make", NewPartitions("a", 20_000),
              Code.POLICY_VIOLATION, ""),
    Extension("an unknown topic", NewPartitions("x", 4), Code.UNKNOWN_TOPIC_OR_PARTITION, ""),
    Extension("too few assignments", NewPartitions("a", 4, [[1]]),
              Code.INVALID_REPLICA_ASSIGNMENT, ""),
    Extension("no chain", NewPartitions("a", 3, [[]]), Code.INVALID_REPLICA_ASSIGNMENT, ""),
    Extension("other replicas", NewPartitions("a", 3, [[1, 2]]),
              Code.INVALID_REPLICA_ASSIGNMENT, ""),
    Extension("an unknown broker", NewPartitions("a", 3, [[7]]),
              Code.INVALID_REPLICA_ASSIGNMENT, ""),
]


@pytest.mark.parametrize("case", EXTENSIONS, ids=lambda case: case.why)
def test_a_topic_grows(case: Extension) -> None:
    """K5: CreatePartitions; existing partitions stay as they are."""
    state = with_topics(NewTopic("a", 2, 1), a=1, b=1)
    before = state.topics["a"].partitions

    decision = create_partitions(state, [case.wanted], SETTINGS)

    assert decision.results[0].code is case.code
    added = "".join(run.chain * run.count for r in decision.records
                    if isinstance(r, PartitionsAdded) for run in r.runs)
    assert added == case.chains
    assert apply(state, decision.records).topics["a"].partitions[:2] == before


def test_growing_a_topic_twice_in_one_request_is_refused() -> None:
    state = with_topics(NewTopic("a", 1, 1))

    decision = create_partitions(
        state, [NewPartitions("a", 2), NewPartitions("a", 3)], SETTINGS)

    assert [result.code for result in decision.results] == [Code.INVALID_REQUEST]
