"""Every setting of Kafka 4.2 is known: honoured, without effect, or refused, with a reason."""

import pytest

from quipu.model.broker_settings import BrokerSettings
from quipu.model.errors import SettingError
from quipu.model.kafka_settings import EARLIER_BROKER, KAFKA_BROKER, KAFKA_TOPIC
from quipu.model.kafka_settings.rows import KafkaSetting, SettingVerdict, UpdateMode
from quipu.model.settings import (
    ALIASES,
    BROKER,
    OWN_BROKER,
    OWN_TOPIC,
    TOPIC,
    names_without_effect,
    parse,
    topic_settings,
    value_of,
    with_dynamic,
)
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.model.settings_types import Setting, render

TABLES = [*((BROKER, row) for row in (*KAFKA_BROKER.values(), *EARLIER_BROKER.values())),
          *((TOPIC, row) for row in KAFKA_TOPIC.values())]
IDS = [row.name for _, row in TABLES]
FOREIGN = [row for row in (*KAFKA_BROKER.values(), *EARLIER_BROKER.values())
           if row.verdict is not SettingVerdict.HONOURED]


def test_kafka_has_so_many() -> None:
    """K5: a row that is lost is noticed here; a test beside a real Kafka compares them."""
    assert (len(KAFKA_BROKER), len(KAFKA_TOPIC)) == (341, 34)
    assert {row.verdict for row in KAFKA_BROKER.values()} == set(SettingVerdict)


@pytest.mark.parametrize(("table", "row"), TABLES, ids=IDS)
def test_kafka_s_default_is_always_accepted(table: dict[str, Setting], row: KafkaSetting) -> None:
    """K1, K5: model.C6: a file or a tool that writes down every default does no harm."""
    name = ALIASES.get(row.name, row.name)
    if row.default is not None and row.name not in ALIASES:
        parse(table, name, row.default)
    assert name in table
    assert table[name].kind.type is row.type or row.name in ALIASES


@pytest.mark.parametrize("row", KAFKA_BROKER.values(), ids=lambda row: row.name)
def test_what_is_honoured_has_a_row_of_its_own_and_the_rest_a_reason(row: KafkaSetting) -> None:
    """K5: model.C1."""
    is_own = ALIASES.get(row.name, row.name) in OWN_BROKER
    assert is_own == (row.verdict is SettingVerdict.HONOURED)
    assert is_own != bool(row.why)
    assert not row.why.endswith("."), "it continues a sentence"


@pytest.mark.parametrize("row", [row for row in FOREIGN if row.verdict is SettingVerdict.REFUSED],
                         ids=lambda row: row.name)
def test_what_would_be_relied_on_is_refused_with_the_reason(row: KafkaSetting) -> None:
    """K5, K8: nobody believes to have TLS; the value, which may be a secret, is not repeated."""
    with pytest.raises(SettingError) as caught:
        parse(BROKER, row.name, "hunter2", "server.properties line 7")

    assert row.why in str(caught.value)
    assert "server.properties line 7" in str(caught.value)
    assert ("hunter2" in str(caught.value)) != BROKER[row.name].is_sensitive
    parse(BROKER, row.name, "", "an empty value is none")


@pytest.mark.parametrize(("name", "value"), [
    ("num.io.threads", "0"), ("num.io.threads", "many"), ("log.preallocate", "maybe"),
    ("sasl.kerberos.ticket.renew.jitter", "1e999"), ("quota.window.num", "3000000000"),
    ("ssl.protocol", "T" * (2 << 20)), ("metric.reporters", "a\nb"),
])
def test_a_setting_without_effect_still_has_a_type(name: str, value: str) -> None:
    """K5: model.C3: what Kafka would refuse is refused, with what is allowed."""
    with pytest.raises(SettingError, match="must be"):
        parse(BROKER, name, value)


def test_what_has_no_effect_is_kept_shown_and_named() -> None:
    """K5: for descriptions, and for the one warning."""
    settings = broker_settings(from_assignments([
        "num.io.threads=16", "log.segment.bytes=1048576", "zookeeper.connect=h:2181",
        "log.segment.delete.delay.ms=5", "listener.name.inside.max.connections=3"]))

    assert value_of(settings, "num.io.threads") == 16
    assert value_of(settings, "num.network.threads") == 3
    assert topic_settings({}, settings).file_delete_delay_ms == 5
    assert names_without_effect(BROKER, settings.explicit) == [
        "listener.name.inside.max.connections", "log.segment.delete.delay.ms", "num.io.threads",
        "zookeeper.connect"]
    assert value_of(with_dynamic(settings, {"num.io.threads": "4"}), "num.io.threads") == 4


@pytest.mark.parametrize(("name", "said"), [
    ("listener.name.inside.ssl.keystore.location", "is refused: this version has no TLS"),
    ("listener.name.inside.scram-sha-256.sasl.jaas.config", "does not authenticate clients"),
    ("config.providers.file.class", "classes of Java do not run here"),
    ("listener.name.inside.no.such.setting", "unknown setting"),
    ("listener.name.inside", "unknown setting"),
    ("rlmm.config.metadata.storage.urll", "did you mean rlmm.config.metadata.storage.url"),
])
def test_names_with_a_prefix_are_treated_as_the_name_behind_it(name: str, said: str) -> None:
    """K5: model.C2."""
    with pytest.raises(SettingError, match=said):
        parse(BROKER, name, "hunter2")


@pytest.mark.parametrize("name", [
    "listener.name.inside.ssl.protocol", "metrics.jmx.include",
    "rlmm.config.remote.log.metadata.producer.acks"])
def test_names_with_a_prefix_may_have_no_effect(name: str) -> None:
    """K5: accepted as Kafka accepts them."""
    assert parse(BROKER, name, "x") == "x"


@pytest.mark.parametrize(("name", "value", "means"), [
    ("max.connections", "2147483647", 10_000), ("queued.max.request.bytes", "-1", 256 << 20),
    ("group.max.size", "2147483647", 1000), ("max.connections.per.ip", "2147483647", None)])
def test_no_limit_means_our_limit(name: str, value: str, means: int | None) -> None:
    """K5, K8: model.C6: Kafka's default may be no limit; ours never is."""
    settings = broker_settings(from_assignments([f"{name}={value}"]))

    assert value_of(settings, name) == means
    assert settings == BrokerSettings()


def test_update_modes_are_kafka_s() -> None:
    """K5: what Kafka lets a broker change, it may change here, too; per broker where Kafka says."""
    for name, row in KAFKA_BROKER.items():
        if row.verdict is not SettingVerdict.HONOURED:
            assert BROKER[name].dynamic == (row.mode is not UpdateMode.READ_ONLY)
            assert BROKER[name].is_per_broker == (row.mode is UpdateMode.PER_BROKER)
    kept_static = {name for name, row in KAFKA_BROKER.items()
                   if row.verdict is SettingVerdict.HONOURED
                   and row.mode is not UpdateMode.READ_ONLY and not BROKER[name].dynamic}
    assert kept_static == {"listeners", "listener.security.protocol.map"}


def test_every_topic_setting_of_kafka_has_a_row() -> None:
    """K5: and those that are honoured are fields, which code reads."""
    assert KAFKA_TOPIC.keys() <= TOPIC.keys()
    assert {name for name, row in KAFKA_TOPIC.items()
            if row.verdict is SettingVerdict.HONOURED} <= OWN_TOPIC.keys()
    assert render(TOPIC["compression.lz4.level"].default) == KAFKA_TOPIC[
        "compression.lz4.level"].default
