"""Which topics may be diskless: one case each."""

from dataclasses import replace

import pytest

from quipu.model.diskless_rules import check_diskless, why_unavailable
from quipu.model.errors import Code, SettingError
from quipu.model.settings import ALIASES, BROKER, BrokerSettings, TopicSettings
from quipu.model.settings_sources import broker_settings, from_assignments, from_properties
from quipu.model.settings_types import Address

CLASSIC = TopicSettings()
DISKLESS = TopicSettings(diskless_enable=True)
CLUSTER = BrokerSettings(
    diskless_storage_system_enable=True, peer_listener=Address("127.0.0.1", 1),
    diskless_storage_url="s3://bucket", diskless_control_plane_url="postgresql://host/database")


def refusal(new: TopicSettings, old: TopicSettings | None = None,
            unavailable: str | None = None) -> str:
    with pytest.raises(SettingError) as refused:
        check_diskless(new, old, unavailable=unavailable)
    assert refused.value.code is Code.INVALID_CONFIG
    return str(refused.value)


def test_a_topic_becomes_diskless_only_when_it_is_created() -> None:
    """D1: every later change is refused, in both directions, with the reason."""
    check_diskless(DISKLESS, unavailable=None)
    assert "`quipu topic migrate NAME --to diskless` does that" in refusal(DISKLESS, CLASSIC)
    assert "only when a topic is created, and this one is diskless" in refusal(CLASSIC, DISKLESS)
    check_diskless(replace(DISKLESS, retention_ms=5), DISKLESS, unavailable="no store")
    check_diskless(CLASSIC, CLASSIC, unavailable="no store")


def test_a_compacted_topic_is_not_diskless() -> None:
    """D1: refused at creation, and as a change of a diskless topic."""
    both = replace(DISKLESS, cleanup_policy=("compact", "delete"))
    assert "set cleanup.policy=delete" in refusal(both)
    assert "cleanup.policy=compact,delete" in refusal(both, DISKLESS)
    check_diskless(replace(CLASSIC, cleanup_policy=("compact",)), CLASSIC, unavailable=None)


def test_settings_without_effect_are_accepted() -> None:
    """D1: what tools send of replicas, flushes and segments is stored, and changes nothing."""
    check_diskless(replace(DISKLESS, flush_messages=1, flush_ms=1, min_insync_replicas=2,
                           segment_bytes=1 << 20), unavailable=None)


@pytest.mark.parametrize(("settings", "reason"), [
    (BrokerSettings(), "diskless.storage.system.enable=true"),
    (BrokerSettings(diskless_storage_system_enable=True), None),
    (CLUSTER, None),
    (replace(CLUSTER, diskless_control_plane_url=None), "SQLite serves one node alone"),
    (replace(CLUSTER, diskless_control_plane_url="sqlite:///x"), "SQLite serves one node alone"),
    (replace(CLUSTER, diskless_storage_url=None), "diskless.storage.url"),
])
def test_brokers_need_a_store_and_a_control_plane(
    settings: BrokerSettings, reason: str | None
) -> None:
    """D2: a cluster needs ones that all of its nodes can reach."""
    why = why_unavailable(settings)
    if reason is None:
        assert why is None
    else:
        assert why is not None
        assert reason in why
        assert reason in refusal(DISKLESS, unavailable=why)


def test_names_of_inkless_are_accepted() -> None:
    """D1: each alias is another name of one setting, from every source."""
    names = [name for name in ALIASES if name.startswith("inkless.")]
    assert len(names) >= 9
    settings = broker_settings(
        from_properties("inkless.produce.commit.interval.ms=100\n", "file"),
        from_assignments(["inkless.file.cleaner.retention.period.ms=60000"]))
    assert settings.diskless_flush_interval_ms == 100
    assert settings.diskless_object_grace_ms == 60_000
    with pytest.raises(SettingError, match=r"given twice"):
        from_properties(
            "inkless.produce.commit.interval.ms=100\ndiskless.flush.interval.ms=200\n", "file")


def test_the_url_of_the_control_plane_is_a_secret() -> None:
    """D2: it may hold a password."""
    assert BROKER["diskless.control.plane.url"].is_sensitive
