"""Throttled replicas: how they are written, and which replicas they mean."""

import pytest

from quipu.model.errors import SettingError
from quipu.model.ids import NodeId
from quipu.model.settings import BROKER, TOPIC, BrokerSettings, check, topic_settings, with_dynamic
from quipu.model.settings_types import LONG_MAX, render
from quipu.model.throttle_settings import THROTTLED_SIZE_MAX, ThrottledReplicas

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


@pytest.mark.parametrize(("text", "values"), [
    ("", ()), ("*", ("*",)), ("0:1", ("0:1",)), (" 0:1 , 2:3 ", ("0:1", "2:3")),
    ("00:01,0:1,", ("0:1",)), ("999:2147483647", ("999:2147483647",)),
])
@pytest.mark.parametrize("name", [LEADERS, FOLLOWERS])
def test_throttled_replicas(name: str, text: str, values: tuple[str, ...]) -> None:
    """K5: as Kafka writes them; an empty list is one."""
    check(TOPIC, {name: text})
    found = topic_settings({name: text}, BrokerSettings())
    assert (found.leader_replication_throttled_replicas if name == LEADERS
            else found.follower_replication_throttled_replicas) == values
    assert render(values) == ",".join(values)


@pytest.mark.parametrize("text", [
    "0", "0:", ":1", "0:1:2", "a:1", "0:-1", "*,0:1", "0:1,*", "0;1", "0:1 2:3",
    "1234567890:1", "0:12345678901"])
def test_anything_else_is_refused(text: str) -> None:
    """K5: with the format that is expected."""
    with pytest.raises(SettingError, match=r"must be \* or a comma list of replicas"):
        check(TOPIC, {LEADERS: text})


def test_a_list_of_many_replicas_is_allowed() -> None:
    """K5: the tool lists each replica of each partition that it moves."""
    text = ",".join(f"{partition}:{node}" for partition in range(5000) for node in (1, 2, 3))
    check(TOPIC, {FOLLOWERS: text})
    with pytest.raises(SettingError, match=f"at most {THROTTLED_SIZE_MAX}"):
        check(TOPIC, {FOLLOWERS: "0:1," * THROTTLED_SIZE_MAX})


def test_which_replicas_are_meant() -> None:
    """K5: the one on that node, of that partition; or all."""
    some = ThrottledReplicas(frozenset({"0:1", "3:2"}), frozenset({"*"}))
    assert some.sends_limited(0, NodeId(1))
    assert not some.sends_limited(0, NodeId(2))
    assert not some.sends_limited(1, NodeId(1))
    assert some.receives_limited(7, NodeId(9))
    assert not ThrottledReplicas().receives_limited(0, NodeId(1))


@pytest.mark.parametrize("name", [
    "leader.replication.throttled.rate", "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second"])
def test_rates_are_dynamic(name: str) -> None:
    """K5: of one broker or of all, from 0 on; without one there is no limit."""
    row = BROKER[name]
    assert row.dynamic
    assert row.default == LONG_MAX
    check(BROKER, {name: "0"})
    check(BROKER, {name: str(LONG_MAX)})
    with pytest.raises(SettingError):
        check(BROKER, {name: "-1"})


def test_a_rate_holds_once_it_is_set() -> None:
    """K5: over what the node was started with."""
    settings = with_dynamic(BrokerSettings(), {"leader.replication.throttled.rate": "1000"})
    assert settings.leader_replication_throttled_rate == 1000
    assert settings.follower_replication_throttled_rate == LONG_MAX
