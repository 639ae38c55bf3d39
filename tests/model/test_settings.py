"""The tables: names, inheritance from broker to topic, errors that help."""

import dataclasses

import pytest

from quipu.model.errors import Code, SettingError
from quipu.model.settings import (
    BROKER,
    OWN_BROKER,
    TOPIC,
    BrokerSettings,
    check,
    find,
    parse,
    topic_settings,
    with_dynamic,
)
from quipu.model.settings_types import Setting, SettingType, Value, attribute_name

INHERITED = [
    ("nothing given: Kafka's seven days", BrokerSettings(), "retention_ms", 604_800_000),
    ("hours become milliseconds", BrokerSettings(log_retention_hours=1), "retention_ms", 3_600_000),
    ("minutes beat hours", BrokerSettings(log_retention_minutes=2, log_retention_hours=1),
     "retention_ms", 120_000),
    ("milliseconds beat minutes", BrokerSettings(log_retention_ms=5, log_retention_minutes=2),
     "retention_ms", 5),
    ("-1 hours is for ever, not minus an hour", BrokerSettings(log_retention_hours=-1),
     "retention_ms", -1),
    ("the same for rolling", BrokerSettings(log_roll_hours=2), "segment_ms", 7_200_000),
    ("a plain size", BrokerSettings(log_segment_bytes=4096), "segment_bytes", 4096),
    ("a list", BrokerSettings(log_cleanup_policy=("compact",)), "cleanup_policy", ("compact",)),
]


@pytest.mark.parametrize(("why", "broker", "name", "value"), INHERITED,
                         ids=[case[0] for case in INHERITED])
def test_a_topic_inherits(why: str, broker: BrokerSettings, name: str, value: object) -> None:
    """K5: what a topic does not say, its broker says."""
    assert getattr(topic_settings({}, broker), name) == value


def test_a_topic_overrides_its_broker() -> None:
    """K5: a topic's own setting wins."""
    broker = BrokerSettings(log_retention_ms=1000, message_max_bytes=2000)
    settings = topic_settings({"retention.ms": "5", "cleanup.policy": "compact,delete"}, broker)

    assert settings.retention_ms == 5
    assert settings.cleanup_policy == ("compact", "delete")
    assert settings.max_message_bytes == 2000


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """K5: model.C2: a slip of the finger is not accepted in silence."""
    with pytest.raises(SettingError, match=r"retention\.mss; did you mean retention\.ms\?"):
        check(TOPIC, {"retention.mss": "5"})
    with pytest.raises(SettingError, match=r"did you mean log\.segment\.bytes"):
        find(BROKER, "log.segement.bytes")
    with pytest.raises(SettingError) as caught:
        find(BROKER, "q" * 10_000)

    assert len(str(caught.value)) < 200
    assert caught.value.code is Code.INVALID_CONFIG


def test_a_bad_value_is_answered_with_what_is_allowed() -> None:
    """model.C3."""
    with pytest.raises(SettingError) as caught:
        parse(TOPIC, "segment.bytes", "big", "somewhere")

    assert str(caught.value) == (
        "segment.bytes=big (somewhere): must be an integer from 16384 to 2147483647")


@pytest.mark.parametrize("rows", [TOPIC, BROKER])
def test_values_that_are_kept_are_short(rows: dict[str, Setting]) -> None:
    """K8: no spaces, repetitions or zeros make a value that fills the cluster's metadata."""
    for name, row in rows.items():
        kept = "delete" if row.kind.type is SettingType.LIST else "1"
        for long in (" " * 10_000 + kept, kept + "\t" * 10_000, ",".join([kept] * 5_000),
                     "0" * 3000 + kept, kept * 3000):
            with pytest.raises(SettingError) as caught:
                check(rows, {name: long})
            assert len(str(caught.value)) < 420
    check(TOPIC, {"cleanup.policy": "compact,delete", "retention.ms": str(2**63 - 1)})


@pytest.mark.parametrize("name", ["retention.ms", "no.such\nsetting\x1b[2J"])
def test_an_error_is_one_line_that_no_terminal_acts_on(name: str) -> None:
    """K8: whatever a client has sent as a name or a value."""
    with pytest.raises(SettingError) as caught:
        parse(TOPIC, name, "7\n2026 ERROR forged\x1b[31m\u202e" + "x" * 5000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_dynamic_values_replace_static_ones() -> None:
    changed = with_dynamic(BrokerSettings(log_retention_ms=5), {"log.retention.ms": "7"})

    assert changed.log_retention_ms == 7
    assert topic_settings({}, changed).retention_ms == 7


STORED = [
    ("below what is allowed now", {"segment.bytes": "14"}, "segment_bytes", 16_384),
    ("above it", {"min.insync.replicas": "2147483647"}, "min_insync_replicas", 100),
    ("of another kind: as if it was not set", {"segment.bytes": "big"}, "segment_bytes", 1 << 30),
    ("digits of another script", {"retention.ms": "\uff11"}, "retention_ms", 604_800_000),
    ("a choice that is gone", {"compression.type": "brotli"}, "compression_type", "producer"),
    ("a name that nobody knows", {"retention.parsecs": "12"}, "retention_ms", 604_800_000),
]


@pytest.mark.parametrize(("why", "overrides", "name", "value"), STORED,
                         ids=[case[0] for case in STORED])
def test_what_an_earlier_version_stored_can_be_read(
    why: str, overrides: dict[str, str], name: str, value: object
) -> None:
    """K5: bounds may become narrower; a topic from before still opens."""
    assert getattr(topic_settings(overrides, BrokerSettings()), name) == value


def test_what_an_earlier_version_stored_for_a_broker_can_be_read() -> None:
    """K5: model.C4: the same for settings that were changed while a node ran."""
    changed = with_dynamic(BrokerSettings(), {
        "num.partitions": "2147483647", "log.flush.interval.ms": "soon", "no.such": "1"})

    assert changed == BrokerSettings(num_partitions=10_000)


SENSITIVE = [row.name for row in OWN_BROKER.values() if row.is_sensitive]


@pytest.mark.parametrize("name", SENSITIVE)
def test_a_secret_is_in_no_repr_and_no_error(name: str) -> None:
    """K8: model.C5: a log line or an error shows that there is a secret, and no more."""
    settings = BrokerSettings(**{attribute_name(name): "hunter2"})  # type: ignore[arg-type]

    assert "hunter2" not in repr(settings)
    with pytest.raises(SettingError) as caught:
        parse({name: refusing(BROKER[name])}, name, "hunter2", "somewhere")
    assert "hunter2" not in str(caught.value)


def refusing(row: Setting) -> Setting:
    """`row`, but no value of it is allowed."""
    def refuse(value: str) -> Value:
        raise ValueError(value)

    return dataclasses.replace(row, kind=row.kind._replace(parse=refuse))


def test_there_are_secrets() -> None:
    assert "peer.secret" in SENSITIVE


def test_what_has_no_effect_says_so() -> None:
    """K5: a setting that is only accepted says why it changes nothing."""
    assert "files are removed at once" in TOPIC["file.delete.delay.ms"].documentation
    assert "last record of each key" in TOPIC["cleanup.policy"].documentation


def test_lags_of_compaction_that_contradict_each_other_are_refused() -> None:
    """K5: as in Kafka, the least lag must not exceed the longest."""
    check(TOPIC, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(SettingError, match="must be at most max"):
        check(TOPIC, {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
