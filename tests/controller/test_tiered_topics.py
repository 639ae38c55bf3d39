"""Topics with a remote tier: what may be created and altered."""

from dataclasses import replace

from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigOperation, ConfigResource
from quipu.controller.configs import alter as decide
from quipu.controller.records import ConfigChanged
from quipu.controller.resources import ResourceType
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topics import create_internal_topics, create_topics
from quipu.model.errors import Code
from quipu.model.settings import BrokerSettings
from quipu.model.topics import CONSUMER_OFFSETS
from tests.controller.states import ids, state_with

SETTINGS = BrokerSettings(
    remote_log_storage_system_enable=True, remote_log_storage_url="s3://bucket")
Result = tuple[Code, str]


def create(state: ClusterState, settings: BrokerSettings = SETTINGS, **configs: str) -> Result:
    """Create topic `t`; `_` stands for a dot in the names of its settings."""
    wanted = NewTopic("t", 1, 1, configs=tuple(
        (name.replace("_", "."), value) for name, value in configs.items()))
    decision = create_topics(state, [wanted], settings, ids())
    for record in decision.records:
        state.apply(record)
    (result,) = decision.results
    return result.code, result.message or ""


def alter(state: ClusterState, topic: str = "t", **configs: str | None) -> Result:
    """Set settings of a topic, or remove them with None."""
    changes = [ConfigChange(name.replace("_", "."), ConfigOperation.SET, value) if value is not None
               else ConfigChange(name.replace("_", "."), ConfigOperation.DELETE, None)
               for name, value in configs.items()]
    decision = decide(state, [ConfigAlteration(ConfigResource(2, topic), changes)], SETTINGS)
    for record in decision.records:
        state.apply(record)
    (result,) = decision.results
    return result.code, result.message or ""


def test_a_tiered_topic_is_created_if_there_is_a_tier() -> None:
    """R13: INVALID_CONFIG otherwise, and for limits that contradict each other."""
    without = replace(SETTINGS, remote_log_storage_system_enable=False)
    code, message = create(state_with(), without, remote_storage_enable="true")
    assert code is Code.INVALID_CONFIG
    assert "remote.log.storage.system.enable=true" in message
    code, message = create(state_with(), remote_storage_enable="true", retention_ms="1000",
                           local_retention_ms="2000")
    assert (code, "at most 1000" in message) == (Code.INVALID_CONFIG, True)
    code, message = create(state_with(), remote_storage_enable="true", cleanup_policy="compact")
    assert (code, "cleanup.policy=delete" in message) == (Code.INVALID_CONFIG, True)
    assert create(state_with(), remote_storage_enable="true", local_retention_ms="1000",
                  retention_ms="2000") == (Code.NONE, "")
    assert create(state_with(), without, retention_ms="1000") == (Code.NONE, "")


def test_settings_of_a_tiered_topic_change_while_it_is_used() -> None:
    """R13: each change is checked with all other settings, a broker's dynamic ones too."""
    state = state_with()
    create(state, retention_ms="1000")
    assert alter(state, remote_storage_enable="true", local_retention_ms="500")[0] is Code.NONE
    assert alter(state, retention_ms="400")[0] is Code.INVALID_CONFIG
    assert alter(state, local_retention_ms="300")[0] is Code.NONE
    assert alter(state, retention_ms="400")[0] is Code.NONE
    assert alter(state, cleanup_policy="compact")[0] is Code.INVALID_CONFIG
    state.apply(ConfigChanged(resource_type=ResourceType.BROKER, resource_name=CLUSTER_DEFAULT,
                              name="log.retention.bytes", value="1000"))
    code, message = alter(state, local_retention_bytes="2000")
    assert (code, "retention.bytes=1000" in message) == (Code.INVALID_CONFIG, True)


def test_a_tier_is_given_up_only_if_its_records_may_go() -> None:
    """R13: remote.log.delete.on.disable in the same request, or before."""
    state = state_with()
    create(state, remote_storage_enable="true")
    code, message = alter(state, remote_storage_enable="false")
    assert (code, "remote.log.delete.on.disable=true" in message) == (Code.INVALID_CONFIG, True)
    assert alter(state, remote_log_copy_disable="true")[0] is Code.NONE
    assert alter(state, remote_storage_enable="false",
                 remote_log_delete_on_disable="true")[0] is Code.NONE
    assert alter(state, remote_storage_enable="true")[0] is Code.NONE


def test_the_cluster_s_own_topics_have_no_tier() -> None:
    """R13: nothing of them can be configured that could take records away."""
    state = state_with()
    for record in create_internal_topics(
            state, [NewTopic(CONSUMER_OFFSETS, 1, 1)], SETTINGS, ids()).records:
        state.apply(record)
    assert alter(state, CONSUMER_OFFSETS, remote_storage_enable="true")[0] is (
        Code.INVALID_TOPIC_EXCEPTION)


def test_to_remove_the_setting_is_to_give_up_the_tier() -> None:
    """R13: the default is false; remote.log.copy.disable is no confirmation."""
    state = state_with()
    create(state, remote_storage_enable="true", local_retention_ms="1000")
    assert alter(state, remote_storage_enable=None)[0] is Code.INVALID_CONFIG
    assert alter(state, remote_storage_enable=None, remote_log_copy_disable="true",
                 local_retention_ms=None)[0] is Code.INVALID_CONFIG
    assert alter(state, remote_storage_enable=None,
                 remote_log_delete_on_disable="true")[0] is Code.NONE


def test_the_confirmation_alone_changes_nothing() -> None:
    """R13: remote.log.delete.on.disable says what a later request would do, on and off again."""
    state = state_with()
    create(state, remote_storage_enable="true", remote_log_delete_on_disable="true")
    for _ in range(2):
        assert alter(state, retention_ms="5000")[0] is Code.NONE
        assert alter(state, remote_storage_enable="false")[0] is Code.NONE
        assert alter(state, cleanup_policy="compact")[0] is Code.NONE
        code, message = alter(state, remote_storage_enable="true")
        assert (code, "compacted topic" in message) == (Code.INVALID_CONFIG, True)
        assert alter(state, remote_storage_enable="true",
                     cleanup_policy="delete")[0] is Code.NONE
    assert alter(state, remote_log_delete_on_disable=None)[0] is Code.NONE
    assert alter(state, remote_storage_enable="false")[0] is Code.INVALID_CONFIG


def test_extreme_limits() -> None:
    """R13: of what a number may be, -2 and -1 have their meanings, and the largest is none."""
    most = str(2**63 - 1)
    for allowed in (
            {"retention_ms": "-1", "local_retention_ms": most},
            {"retention_ms": most, "local_retention_ms": most},
            {"retention_ms": "0", "local_retention_ms": "0"},
            {"retention_bytes": "-1", "local_retention_bytes": "-1"},
            {"retention_bytes": "0", "local_retention_bytes": "-2"}):
        assert create(state_with(), remote_storage_enable="true", **allowed) == (Code.NONE, "")
    for refused in (
            {"local_retention_ms": "-3"}, {"local_retention_bytes": "-3"},
            {"local_retention_ms": str(2**63)}, {"local_retention_ms": "1e3"},
            {"local_retention_ms": ""}, {"remote_log_copy_disable": "1"},
            {"remote_storage_enable": "TRUE?"},
            {"retention_ms": most, "local_retention_ms": "-1"},
            {"retention_bytes": "0", "local_retention_bytes": "1"},
            {"retention_ms": "-2"}):
        wanted = {"remote_storage_enable": "true", **refused}
        assert create(state_with(), **wanted)[0] is Code.INVALID_CONFIG, refused
