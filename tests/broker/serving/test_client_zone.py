"""The zone of a client: what its id says, what its listener says, and what nobody can make up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.broker.serving.client_zone import client_zone, known_zone, said_zone
from quipu.controller.members import BrokerState
from quipu.controller.racks import UNKNOWN_RACK
from quipu.model.errors import SettingError
from quipu.model.ids import NodeId
from quipu.model.listeners import ListenerZone
from quipu.model.settings import BROKER, BrokerSettings, parse
from quipu.model.settings_sources import broker_settings, from_assignments, from_properties
from quipu.model.settings_types import render

CLIENT_ID_SIZE_MAX = 32_767  # bytes, as the length of a header's string has 16 bits with a sign

SAID = [
    ("at the start", "diskless_az=az1", "az1"),
    ("after a comma", "app,diskless_az=az1", "az1"),
    ("after a space", "app diskless_az=az1", "az1"),
    ("after a bar", "app|diskless_az=az1", "az1"),
    ("before a comma", "diskless_az=az1,app", "az1"),
    ("before a bar", "diskless_az=az1|app=x", "az1"),
    ("before a space", "diskless_az=az1 app", "az1"),
    ("up to an equals sign", "diskless_az=az1=az2", "az1"),
    ("the first of two", "diskless_az=az1,diskless_az=az2", "az1"),
    ("the first, though it is empty", "diskless_az=,diskless_az=az2", ""),
    ("within a word it is no key", "my_diskless_az=az1", ""),
    ("after a dash it is no key", "app-diskless_az=az1", ""),
    ("the second, if the first is no key", "xdiskless_az=az1,diskless_az=az2", "az2"),
    ("another name of the key", "inkless_az=az1", ""),
    ("case matters", "Diskless_AZ=az1", ""),
    ("a line break does not begin an id", "app\ndiskless_az=az1", ""),
    ("any characters", "diskless_az=zürich:1/a", "zürich:1/a"),
    ("nothing", "", ""),
    ("no id", None, ""),
]


@pytest.mark.parametrize(("client_id", "want"), [case[1:] for case in SAID],
                         ids=[case[0] for case in SAID])
def test_a_client_id_says_a_zone(client_id: str | None, want: str) -> None:
    """D22: by the pattern that clients of Inkless use."""
    assert said_zone(client_id) == want


RACKS = ("az1", "az1-b", "us-east-1", "unknown")
KNOWN = [
    ("the very zone", "az1", "az1"),
    ("a suffix of Connect", "us-east-1-configs", "us-east-1"),
    ("two suffixes", "us-east-1-offsets-0", "us-east-1"),
    ("a suffix with many dashes", "az1-3f0c-11-22-aa", "az1"),
    ("the longest zone", "az1-b-7", "az1-b"),
    ("a trailing dash", "az1-", "az1"),
    ("brokers without a rack", "unknown-1", "unknown"),
    ("a beginning is no zone", "az12", None),
    ("a longer word is no suffix", "az1b-7", None),
    ("a part is no zone", "us-east", None),
    ("a dash in front", "-az1", None),
    ("no such zone", "az9", None),
]


@pytest.mark.parametrize(("said", "want"), [case[1:] for case in KNOWN],
                         ids=[case[0] for case in KNOWN])
def test_only_known_zones_count(said: str, want: str | None) -> None:
    """D22, broker.serving.Z1: what was appended to an id is dropped; no zone is made up."""
    assert known_zone(said, RACKS) == want


def stripped(said: str, known: set[str]) -> str | None:
    """The definition: drop the last dash and what follows it, until the rest is known."""
    while said and said not in known:
        said = said.rpartition("-")[0]
    return said or None


words = st.text("ab-", max_size=8)


@given(said=words, known=st.sets(words.filter(bool), max_size=6))
def test_suffixes_are_dropped_one_by_one(said: str, known: set[str]) -> None:
    """D22: the same as the rule, whatever the zones are called."""
    assert known_zone(said, known) == stripped(said, known)


def a_broker(node_id: int, rack: str | None) -> BrokerState:
    return BrokerState(node_id=NodeId(node_id), host="h", port=1, rack=rack)


BROKERS = [a_broker(1, "az1"), a_broker(2, "az2"), a_broker(3, None)]
BY_LISTENER = {"INSIDE": "az2", "FAR": "az7"}
CASES = [
    ("the client id comes first", "diskless_az=az1", "INSIDE", "az1"),
    ("the listener, without a client id", None, "INSIDE", "az2"),
    ("the listener, if the id says nothing", "app", "INSIDE", "az2"),
    ("the listener, if the id says an unknown zone", "diskless_az=az9", "INSIDE", "az2"),
    ("the listener, if the id says an empty one", "diskless_az=", "INSIDE", "az2"),
    ("a zone of the map alone", "diskless_az=az7-x", "OTHER", "az7"),
    ("brokers without a rack have a zone", "diskless_az=unknown", "OTHER", UNKNOWN_RACK),
    ("neither", "app", "OTHER", None),
    ("neither is known", "diskless_az=az9", "OTHER", None),
]


@pytest.mark.parametrize(("client_id", "listener", "want"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])
def test_the_client_id_comes_before_the_listener(
    client_id: str | None, listener: str, want: str | None
) -> None:
    """D22: both are ways to say it; a known zone in the id wins."""
    assert client_zone(client_id, listener, BY_LISTENER, BROKERS) == want


class CountedText(str):
    """Counts how many pieces are cut out of it."""

    __slots__ = ()
    cuts = 0

    def __getitem__(self, key: object) -> str:
        CountedText.cuts += 1
        return str.__getitem__(self, key)  # type: ignore[index]


HOSTILE = [
    "diskless_az=" + "-" * CLIENT_ID_SIZE_MAX,
    "diskless_az=" + "az1-" * 8000,
    "diskless_az=" * 2700,
    " diskless_az" * 2700,
    "," * CLIENT_ID_SIZE_MAX,
    "diskless_az=" + "a" * CLIENT_ID_SIZE_MAX,
    "\0diskless_az=\0",
    "diskless_az=\ud800",
]


@pytest.mark.parametrize("client_id", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_client_ids_cost_little(client_id: str) -> None:
    """D22, broker.serving.Z2: one cut for each known zone, however many dashes there are."""
    said = CountedText(said_zone(client_id))
    CountedText.cuts = 0
    found = known_zone(said, RACKS)
    assert found in (None, "az1")
    assert CountedText.cuts <= len(RACKS)
    assert client_zone(client_id, "OTHER", BY_LISTENER, BROKERS) in (None, "az1")


def test_listeners_are_mapped_to_zones_by_a_setting() -> None:
    """D22: as Kafka writes its maps, or as Inkless does, under either name."""
    wanted = (ListenerZone("INSIDE", "az1"), ListenerZone("OUT_2", "eu:2=b"))
    ours = broker_settings(from_assignments(
        ["diskless.client.az.listener.map=inside:az1, OUT_2:eu:2=b"]))
    theirs = broker_settings(from_properties(
        "inkless.client.az.listener.map=INSIDE=az1,OUT_2=eu:2=b\n", "file"))
    assert ours.diskless_client_az_listener_map == wanted
    assert theirs.diskless_client_az_listener_map == wanted
    assert render(wanted) == "INSIDE:az1,OUT_2:eu:2=b"
    assert BrokerSettings().diskless_client_az_listener_map == ()


@pytest.mark.parametrize("value", [
    "INSIDE", "INSIDE:", ":az1", "A:x,A:y", "A:x,,B:y", "A b:x", "A:\x01", f"A:{'z' * 256}",
    ",".join(f"L{number}:az1" for number in range(17))])
def test_bad_maps_are_refused(value: str) -> None:
    """D22: with what is allowed."""
    with pytest.raises(SettingError, match="LISTENER:ZONE, each listener once"):
        parse(BROKER, "diskless.client.az.listener.map", value)
