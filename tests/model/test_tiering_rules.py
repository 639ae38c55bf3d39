"""Settings of topics with a remote tier: Kafka's rules, one case each."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from quipu.model.errors import Code, SettingError
from quipu.model.settings import BROKER, TOPIC, BrokerSettings, TopicSettings, topic_settings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.model.tiering_rules import TIERING, check_tiering, local_limit

TIERED = TopicSettings(remote_storage_enable=True, retention_ms=1000, retention_bytes=500)


class Case(NamedTuple):
    why: str
    changes: dict[str, Any]
    message: str  # a part of it; empty if allowed


CASES = [
    Case("as it is by default", {}, ""),
    Case("local limits below the total", {"local_retention_ms": 999,
                                          "local_retention_bytes": 500}, ""),
    Case("more local time than total", {"local_retention_ms": 1001},
         "local.retention.ms=1001 is more than retention.ms=1000"),
    Case("more local bytes than total", {"local_retention_bytes": 501},
         "local.retention.bytes=501 is more than retention.bytes=500"),
    Case("no local limit below a total", {"local_retention_ms": -1}, "set it to -2"),
    Case("no limit at all", {"local_retention_ms": -1, "retention_ms": -1}, ""),
    Case("a local limit without a total", {"local_retention_ms": 10**9, "retention_ms": -1}, ""),
    Case("compacted", {"cleanup_policy": ("delete", "compact")}, "set cleanup.policy=delete"),
    Case("without copies, less local time", {"remote_log_copy_disable": True,
                                             "local_retention_ms": 5}, "the only copy"),
    Case("without copies, the same time", {"remote_log_copy_disable": True,
                                           "local_retention_ms": 1000}, ""),
    Case("without copies, the default", {"remote_log_copy_disable": True}, ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_settings_that_go_together(case: Case) -> None:
    """R13, K5: refused with INVALID_CONFIG and what to do; without a tier none of it matters."""
    settings = replace(TIERED, **case.changes)
    check_tiering(replace(settings, remote_storage_enable=False), is_available=True)
    if not case.message:
        check_tiering(settings, is_available=True)
        return
    with pytest.raises(SettingError) as refused:
        check_tiering(settings, is_available=True)
    assert case.message in str(refused.value)
    assert refused.value.code is Code.INVALID_CONFIG


def test_a_tier_must_be_there_to_be_switched_on() -> None:
    """R13: but a topic that has one can be changed on a broker that has lost its tier."""
    with pytest.raises(SettingError, match=r"remote\.log\.storage\.system\.enable=true"):
        check_tiering(TIERED, is_available=False)
    check_tiering(replace(TIERED, retention_ms=2000), TIERED, is_available=False)


def test_switching_it_off_deletes_and_must_be_confirmed() -> None:
    """R13: remote.log.delete.on.disable says that the records may go."""
    off = replace(TIERED, remote_storage_enable=False)
    with pytest.raises(SettingError, match=r"remote\.log\.delete\.on\.disable=true"):
        check_tiering(off, TIERED, is_available=True)
    check_tiering(replace(off, remote_log_delete_on_disable=True), TIERED, is_available=True)
    check_tiering(off, off, is_available=True)


def test_the_limit_of_local_segments_is_the_stricter_one() -> None:
    """R13: whatever a broker's defaults have become since."""
    assert [local_limit(local, total, copies=True) for local, total in (
        (-2, 7), (-2, -1), (-1, 7), (-1, -1), (5, 7), (9, 7), (5, -1))] == [
        7, -1, 7, -1, 5, 7, 5]
    assert local_limit(5, 7, copies=False) == 7


def test_names_and_defaults_are_kafka_s() -> None:
    """R13: local limits are those of the whole unless a broker or a topic says otherwise."""
    assert set(TOPIC) >= TIERING
    default = topic_settings({}, BrokerSettings())
    assert (default.remote_storage_enable, default.local_retention_ms,
            default.local_retention_bytes) == (False, -2, -2)
    own = topic_settings({"local.retention.ms": "5"}, BrokerSettings(log_local_retention_bytes=9))
    assert (own.local_retention_ms, own.local_retention_bytes) == (5, 9)
    assert {name: BROKER[name].default for name in (
        "remote.log.manager.task.interval.ms", "remote.log.reader.threads",
        "remote.fetch.max.wait.ms", "remote.list.offsets.request.timeout.ms",
        "remote.log.metadata.custom.metadata.max.bytes")} == {
        "remote.log.manager.task.interval.ms": 30_000, "remote.log.reader.threads": 10,
        "remote.fetch.max.wait.ms": 500, "remote.list.offsets.request.timeout.ms": 30_000,
        "remote.log.metadata.custom.metadata.max.bytes": 128}


def test_a_broker_s_tier_must_be_somewhere() -> None:
    """R13: a node alone has a directory, nodes of a cluster need a store; back-offs must grow."""
    on = "remote.log.storage.system.enable=true"
    peers = "peer.listener=127.0.0.1:1"
    with pytest.raises(SettingError, match=r"set remote\.log\.storage\.url"):
        broker_settings(from_assignments([on, peers]))
    for words in ([on], [on, peers, "remote.log.storage.url=s3://b/p"]):
        assert broker_settings(from_assignments(words)).remote_log_storage_system_enable
    with pytest.raises(SettingError, match=r"is more than"):
        broker_settings(from_assignments(["remote.log.manager.task.retry.backoff.ms=60000"]))


@pytest.mark.parametrize("name", [
    "remote.log.manager.copy.max.bytes.per.second", "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.reader.threads", "remote.log.reader.max.pending.tasks",
    "remote.log.manager.copier.thread.pool.size", "remote.log.manager.task.interval.ms",
    "remote.log.chunk.cache.bytes"])
def test_limits_of_a_broker_are_positive(name: str) -> None:
    """R13: 0 would stop the tier for ever, without a word."""
    for wrong in ("0", "-1", str(2**63), "1.5", ""):
        with pytest.raises(SettingError, match="must be"):
            broker_settings(from_assignments([f"{name}={wrong}"]))
