"""Decisions about settings: Kafka's rules, one case each."""

from typing import NamedTuple

import pytest

from quipu.controller.configs import (
    ConfigAlteration as Alteration,
)
from quipu.controller.configs import (
    ConfigChange as Change,
)
from quipu.controller.configs import (
    ConfigOperation as Operation,
)
from quipu.controller.configs import (
    ConfigResource as Resource,
)
from quipu.controller.configs import (
    alter,
    effective_settings,
)
from quipu.controller.records import ConfigChanged, ConfigRecord, PartitionRun, TopicCreated
from quipu.controller.resources import ResourceType
from quipu.controller.state import ClusterState
from quipu.model.errors import Code
from quipu.model.ids import NodeId
from quipu.model.listeners import ListenerEndpoint
from quipu.model.settings import BrokerSettings
from tests.controller.states import ids, state_with

TOPIC = Resource(2, "t")
SET, DELETE, APPEND, SUBTRACT = Operation
STATIC = BrokerSettings(
    log_cleanup_policy=("delete",), listeners=(ListenerEndpoint("PLAINTEXT", "h", 1),))


def a_state() -> ClusterState:
    return state_with(TopicCreated(
        name="t", topic_id=ids()(), runs=[PartitionRun(count=1, chain="a")],
        configs=[ConfigRecord(name="retention.ms", value="5"),
                 ConfigRecord(name="segment.ms", value="6")]))


class Case(NamedTuple):
    why: str
    resource: Resource
    changes: list[Change]
    want: dict[str, str] | Code


CASES = [
    Case("set one, keep the rest", TOPIC, [Change("retention.ms", SET, "9")],
         {"retention.ms": "9", "segment.ms": "6"}),
    Case("faults of settings come before a topic's absence", Resource(2, "absent"),
         [Change("retention.ms", SET, "x")], Code.INVALID_CONFIG),
    Case("and so do faults of the request", Resource(2, "absent"),
         [Change("retention.ms", SET, None)], Code.INVALID_REQUEST),
    Case("what is no list comes before a topic's name", Resource(2, "a b"),
         [Change("retention.ms", APPEND, "5")], Code.INVALID_CONFIG),
    Case("fine settings of an absent topic", Resource(2, "absent"),
         [Change("retention.ms", SET, "5")], Code.UNKNOWN_TOPIC_OR_PARTITION),
    Case("there are no settings of all topics", Resource(2, ""),
         [Change("retention.ms", SET, "5")], Code.INVALID_REQUEST),
    Case("delete one", TOPIC, [Change("retention.ms", DELETE, None)], {"segment.ms": "6"}),
    Case("delete what is not there", TOPIC, [Change("flush.ms", DELETE, None)],
         {"retention.ms": "5", "segment.ms": "6"}),
    Case("append to what the broker says", TOPIC, [Change("cleanup.policy", APPEND, "compact")],
         {"retention.ms": "5", "segment.ms": "6", "cleanup.policy": "delete,compact"}),
    Case("append what is there", TOPIC, [Change("cleanup.policy", APPEND, "delete")],
         {"retention.ms": "5", "segment.ms": "6", "cleanup.policy": "delete"}),
    Case("subtract the last", TOPIC, [Change("cleanup.policy", SUBTRACT, "delete")],
         Code.INVALID_CONFIG),
    Case("append to a number", TOPIC, [Change("retention.ms", APPEND, "5")], Code.INVALID_CONFIG),
    Case("an unknown setting", TOPIC, [Change("retention", SET, "5")], Code.INVALID_CONFIG),
    Case("one good, one bad: none", TOPIC,
         [Change("segment.ms", SET, "8"), Change("retention.ms", SET, "x")], Code.INVALID_CONFIG),
    Case("no value", TOPIC, [Change("retention.ms", SET, None)], Code.INVALID_REQUEST),
    Case("an unknown operation", TOPIC, [Change("retention.ms", 4, "5")], Code.INVALID_REQUEST),
    Case("one setting twice", TOPIC, [Change("retention.ms", SET, "5")] * 2, Code.INVALID_REQUEST),
    Case("an unknown topic", Resource(2, "x"), [], Code.UNKNOWN_TOPIC_OR_PARTITION),
    Case("an illegal topic", Resource(2, "a/b"), [], Code.INVALID_TOPIC_EXCEPTION),
    Case("a kind that has no settings", Resource(8, "1"), [], Code.INVALID_REQUEST),
    Case("an unknown broker", Resource(4, "2"), [], Code.INVALID_REQUEST),
    Case("not a broker's name", Resource(4, "one"), [], Code.INVALID_REQUEST),
    Case("a broker", Resource(4, "1"), [Change("log.retention.ms", SET, "7")],
         {"log.retention.ms": "7"}),
    Case("every broker", Resource(4, ""), [Change("log.cleanup.policy", APPEND, "compact")],
         {"log.cleanup.policy": "delete,compact"}),
    Case("read at the start only", Resource(4, "1"), [Change("listeners", SET, "h:2")],
         Code.INVALID_REQUEST),
    Case("a topic's setting on a broker", Resource(4, "1"), [Change("retention.ms", SET, "7")],
         Code.INVALID_CONFIG),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_settings_are_changed_one_by_one(case: Case) -> None:
    """K5: IncrementalAlterConfigs; a resource changes as a whole or not at all."""
    state = a_state()

    decision = alter(state, [Alteration(case.resource, case.changes)], STATIC)
    for record in decision.records:
        state.apply(record)

    (result,) = decision.results
    if isinstance(case.want, Code):
        assert result.code is case.want
        assert result.message
        assert state == a_state()
    else:
        assert result.code is Code.NONE, result.message
        assert state.configs(ResourceType(case.resource.kind), case.resource.name) == case.want


def test_the_whole_set_is_replaced() -> None:
    """K5: AlterConfigs resets what it does not name, and writes only what differs."""
    change = [Change("retention.ms", SET, "5"), Change("flush.ms", SET, "7")]

    decision = alter(a_state(), [Alteration(TOPIC, change, whole=True)], STATIC)

    assert decision.records == [
        ConfigChanged(resource_type=2, resource_name="t", name="segment.ms", value=None),
        ConfigChanged(resource_type=2, resource_name="t", name="flush.ms", value="7"),
    ]


def test_a_resource_may_be_named_once() -> None:
    decision = alter(a_state(), [Alteration(TOPIC, []), Alteration(TOPIC, [])], STATIC)

    assert [result.code for result in decision.results] == [Code.INVALID_REQUEST] * 2


def test_a_broker_s_own_setting_covers_the_cluster_s() -> None:
    """K5: dynamic over static, one broker over all."""
    state = a_state()
    for resource, value in (("", "7"), ("1", "8")):
        change = [Change("log.retention.ms", SET, value)]
        for record in alter(state, [Alteration(Resource(4, resource), change)], STATIC).records:
            state.apply(record)

    assert effective_settings(state, NodeId(1), STATIC).log_retention_ms == 8
    assert effective_settings(state, NodeId(2), STATIC).log_retention_ms == 7
