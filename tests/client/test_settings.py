"""Settings of the client: names, values, and what goes together."""

import re

import pytest

from quipu.client.settings import (
    ALIASES,
    CLIENT,
    REFUSED,
    ClientSettings,
    bootstrap,
    client_settings,
    parse_jaas,
)
from quipu.model.errors import SettingError
from quipu.model.settings_types import Address, attribute_name
from tests.harness.node import REPOSITORY

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_defaults_and_values() -> None:
    assert client_settings({}) == ClientSettings()
    settings = client_settings({
        "bootstrap.servers": "a:1, [::1]:2,SSL://b.c:3", "isolation.level": "read_committed",
        "fetch.max.bytes": "1000", "client.rack": "r1", "session.timeout.ms": "1"})
    assert bootstrap(settings) == [Address("a", 1), Address("::1", 2), Address("b.c", 3)]
    assert settings.read_committed
    assert (settings.fetch_max_bytes, settings.client_rack) == (1000, "r1")


def test_librdkafkas_names_mean_the_same() -> None:
    for alias, name in ALIASES.items():
        value = str(CLIENT[name].default or "x") if name != "bootstrap.servers" else "h:1"
        assert client_settings({alias: value}) == client_settings({name: value})
    with pytest.raises(SettingError, match=r"sasl.mechanism.* say the same"):
        client_settings({"sasl.mechanisms": "PLAIN", "sasl.mechanism": "PLAIN"})


@pytest.mark.parametrize(("given", "words"), [
    ({"fetch.max.byte": "1"}, "unknown setting fetch.max.byte; did you mean fetch.max.bytes?"),
    ({"zzz": "1"}, "unknown setting zzz$"),
    ({"fetch.max.bytes": "many"}, "must be an integer from 1 to"),
    ({"isolation.level": "some"}, "must be read_uncommitted or read_committed"),
    ({"bootstrap.servers": "host"}, "must be HOST:PORT"),
    ({"bootstrap.servers": "a:1,b:99999"}, "b:99999: must be HOST:PORT"),
    ({"bootstrap.servers": "a:00000199999"}, "a:00000199999: must be HOST:PORT"),
    ({"bootstrap.servers": ",".join(["a:1"] * 1001)}, "names 1001 brokers"),
    ({"security.protocol": "SASL_SSL"}, "needs sasl.username and sasl.password"),
    ({"ssl.truststore.type": "JKS"}, "only PEM is read here"),
    ({"security.protocol": "SASL_SSL", "sasl.username": "u",
      "sasl.jaas.config": f'{JAAS} username="u" password="p";'}, "give sasl.jaas.config, or"),
])
def test_what_cannot_be_is_refused(given: dict[str, str], words: str) -> None:
    """client.A2, among others: an unknown name, and the nearest known one."""
    with pytest.raises(SettingError, match=words):
        client_settings(given)


def test_what_spark_refuses_is_refused() -> None:
    """I12, client.A3: what it is about has another place, which the message names."""
    for name in ("auto.offset.reset", "key.deserializer", "value.deserializer",
                 "enable.auto.commit", "interceptor.classes", "key.serializer",
                 "value.serializer"):
        with pytest.raises(SettingError, match=f"{name} cannot be set: {REFUSED[name][:10]}"):
            client_settings({name: "x"})


def test_every_setting_is_read_or_says_why_not() -> None:
    """client.A1: by its attribute's name, somewhere in the source."""
    source = "".join(path.read_text() for room in ("client", "pipeline")
                     for path in (REPOSITORY / "src/quipu" / room).rglob("*.py"))
    for name, setting in CLIENT.items():
        reads = re.search(rf"(?:settings|self|client)\.{attribute_name(name)}\b", source)
        only_one = name in ("ssl.truststore.type", "ssl.keystore.type")  # others are refused
        assert bool(reads or only_one) != bool(setting.ignored), name


def test_jaas() -> None:
    assert parse_jaas(f'{JAAS} username="a b" password="p\\"q\\\\;";') == ("a b", 'p"q\\;')
    assert parse_jaas(f"\n{JAAS}\n  username=u\n  password=p ;\n") == ("u", "p")
    settings = client_settings({
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{JAAS} username="u" password="p";'})
    assert (settings.sasl_username, settings.sasl_password) == ("u", "p")
    for bad in ("", "x", f"{JAAS} username=u;", f'{JAAS} username="u password="p";',
                'com.sun.Krb5LoginModule required username="u" password="p";'):
        with pytest.raises(SettingError, match=r"sasl.jaas.config"):
            parse_jaas(bad)
