"""Kinds of settings: what each accepts, and that text and value go both ways."""

import pytest

from quipu.client.settings import CLIENT
from quipu.model.listeners import ListenerEndpoint, ListenerProtocol, SecurityProtocol
from quipu.model.settings import BROKER, TOPIC
from quipu.model.settings_types import (
    ADDRESS,
    Address,
    AddressLimit,
    Setting,
    SettingType,
    Value,
    Voter,
    attribute_name,
    render,
    setting_name,
)

ACCEPTED: list[tuple[str, str, Value]] = [
    ("log.segment.bytes", "1048576", 1_048_576),
    ("log.retention.ms", "-1", -1),
    ("log.flush.interval.messages", "9223372036854775807", 2**63 - 1),
    ("auto.create.topics.enable", "FALSE", False),
    ("log.cleanup.policy", "compact, delete", ("compact", "delete")),
    ("log.message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ("broker.rack", "eu-1a", "eu-1a"),
    ("broker.rack", "\u00e9" * 500, "\u00e9" * 500),
    ("log.dirs", "/data/\u00a0\u6f22", "/data/\u00a0\u6f22"),
    ("advertised.listeners", "h" * 255 + ":1", (ListenerEndpoint("PLAINTEXT", "h" * 255, 1),)),
    ("listeners", "PLAINTEXT://[::1]:0", (ListenerEndpoint("PLAINTEXT", "::1", 0),)),
    ("listeners", "client://a:1, B://:2,[::1]:0",
     (ListenerEndpoint("CLIENT", "a", 1), ListenerEndpoint("B", "", 2),
      ListenerEndpoint("PLAINTEXT", "::1", 0))),
    ("advertised.listeners", "A://h:9,B://h:9",
     (ListenerEndpoint("A", "h", 9), ListenerEndpoint("B", "h", 9))),
    ("advertised.listeners", "", ()),
    ("listener.security.protocol.map", "a:plaintext, INTERNAL:SASL_SSL",
     (ListenerProtocol("A", SecurityProtocol.PLAINTEXT),
      ListenerProtocol("INTERNAL", SecurityProtocol.SASL_SSL))),
    ("controller.quorum.voters", "1@a:1,2", (Voter(1, Address("a", 1)), Voter(2))),
    ("max.connections.per.ip.overrides", "10.0.0.1:5,::1:0",
     (AddressLimit("10.0.0.1", 5), AddressLimit("::1", 0))),
]
REFUSED = [
    ("more than 32 bits", "log.segment.bytes", "2147483648"),
    ("below the bound", "log.segment.bytes", "13"),
    ("no number", "log.segment.bytes", "1 GiB"),
    ("Python's digit groups are not Kafka's", "log.segment.bytes", "1_000_000"),
    ("a number that would take minutes to parse", "log.segment.bytes", "9" * 100_000),
    ("an empty number", "log.segment.bytes", ""),
    ("full-width digits", "log.segment.bytes", "\uff11\uff10\uff14\uff18\uff15\uff17\uff16"),
    ("spaces within a number", "log.segment.bytes", "1 048 576"),
    ("a file for every batch", "log.segment.bytes", "14"),
    ("a topic that fills the disk with empty logs", "num.partitions", "2147483647"),
    ("a timer that never fires", "connections.max.idle.ms", "9223372036854775807"),
    ("neither true nor false", "auto.create.topics.enable", "yes"),
    ("an unknown policy", "log.cleanup.policy", "delete,shred"),
    ("an empty list", "log.cleanup.policy", ""),
    ("wrong case", "log.message.timestamp.type", "logappendtime"),
    ("a codec that Kafka has not", "compression.type", "brotli"),
    ("a gzip level of 0", "compression.gzip.level", "0"),
    ("two directories", "log.dirs", "/a,/b"),
    ("an empty rack", "broker.rack", ""),
    ("a rack that no old client can be told", "broker.rack", "r" * 40_000),
    ("a rack longer than most", "broker.rack", "\u00e9" * 501),
    ("a rack of bytes that are no text", "broker.rack", "eu-\udcff"),
    ("a rack of two lines", "broker.rack", "eu\n1"),
    ("a secret of bytes that are no text", "peer.secret", "\udcff" * 20),
    ("a directory that cannot be shown", "log.dirs", "/data/\udcff"),
    ("a directory that cannot be opened", "log.dirs", "/data/\0"),
    ("a directory longer than any", "log.dirs", "d" * 4097),
    ("a host that no old client can be told", "advertised.listeners", "h" * 40_000 + ":1"),
    ("no listener at all", "listeners", ""),
    ("one name twice", "listeners", "A://h:1,a://h:2"),
    ("two without a name", "listeners", "h:1,h:2"),
    ("one port twice", "listeners", "A://h:1,B://g:1"),
    ("a name that is none", "listeners", "A B://h:1"),
    ("an empty name", "listeners", "://h:1"),
    ("a name that is too long", "listeners", "A" * 65 + "://h:1"),
    ("too many listeners", "listeners", ",".join(f"A{i}://h:{i}" for i in range(1, 18))),
    ("a list that ends in nothing", "listeners", "h:1,"),
    ("one name advertised twice", "advertised.listeners", "A://h:1,A://g:2"),
    ("an unknown protocol", "listener.security.protocol.map", "A:TLS"),
    ("a name without a protocol", "listener.security.protocol.map", "A"),
    ("one name mapped twice", "listener.security.protocol.map", "A:SSL,a:PLAINTEXT"),
    ("a host of bytes that are no text", "listeners", "h\udcff:1"),
    ("a voter's host longer than a name can be", "controller.quorum.voters",
     "1@" + "h" * 256 + ":1"),
    ("a voter without a place after its @", "controller.quorum.voters", "1@"),
    ("an address without a limit", "max.connections.per.ip.overrides", "10.0.0.1"),
    ("an address twice", "max.connections.per.ip.overrides", "10.0.0.1:1,10.0.0.1:2"),
    ("a limit without an address", "max.connections.per.ip.overrides", ":5"),
    ("fewer connections than none", "max.connections.per.ip.overrides", "10.0.0.1:-1"),
    ("a voter of eleven digits", "controller.quorum.voters", "12345678901"),
    ("a voter twice", "controller.quorum.voters", "1,1@a:1"),
    ("a voter without a number", "controller.quorum.voters", "1,,2"),
]
ADDRESSES_REFUSED = ["localhost", "9092", "host:", "a:0000001234567", "host:70000", "::1:9092",
                     "a:1,b:2", "SSL://a:1", "a:-1", "a:\N{SUPERSCRIPT TWO}", "a b:1",
                     ":999999999999999999999"]


@pytest.mark.parametrize(("name", "text", "value"), ACCEPTED)
def test_text_becomes_a_value(name: str, text: str, value: Value) -> None:
    parsed = BROKER[name].kind.parse(text)

    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("why", "name", "text"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_bad_value_is_refused(why: str, name: str, text: str) -> None:
    with pytest.raises(ValueError):
        BROKER[name].kind.parse(text)


@pytest.mark.parametrize("text", ADDRESSES_REFUSED)
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ADDRESS.parse(text)


def test_a_ratio_is_a_number_between_0_and_1() -> None:
    kind = TOPIC["min.cleanable.dirty.ratio"].kind

    assert kind.type is SettingType.DOUBLE
    assert kind.parse("0.25") == 0.25
    for bad in ("nan", "1.1", "-0.1", "half", "1e-1", "0_1", "\uff11"):
        with pytest.raises(ValueError):
            kind.parse(bad)


@pytest.mark.parametrize("row", [*BROKER.values(), *TOPIC.values()], ids=lambda row: row.name)
def test_a_default_is_what_its_own_text_says(row) -> None:  # noqa: ANN001 one of two tables
    """Docs and DescribeConfigs print defaults as text: the text must mean the default."""
    text = render(row.default)

    assert text is None or row.kind.parse(text) == row.default
    assert row.about.endswith(".")


INTEGERS = [row for row in (*BROKER.values(), *TOPIC.values(), *CLIENT.values())
            if row.kind.type in (SettingType.INT, SettingType.SHORT, SettingType.LONG)]


@pytest.mark.parametrize("row", INTEGERS, ids=lambda row: row.name)
def test_a_number_is_taken_within_its_bounds_alone(row: Setting) -> None:
    """K8: every number that can be set says how small and how large it may be."""
    low, high = row.kind.low, row.kind.high
    assert low is not None
    assert high is not None

    assert row.kind.parse(str(low)) == low
    assert row.kind.parse(str(high)) == high
    for bad in (low - 1, high + 1, 2**63, -(2**63) - 1):
        with pytest.raises(ValueError):
            row.kind.parse(str(bad))


@pytest.mark.parametrize("name", [*BROKER, *TOPIC])
def test_a_name_and_its_attribute_go_both_ways(name: str) -> None:
    assert setting_name(attribute_name(name)) == name


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address("::1", 9)) == "[::1]:9"
    assert str(Address("a", 9)) == "a:9"
