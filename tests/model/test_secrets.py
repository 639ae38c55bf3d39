"""Secrets among the settings: required where others can connect, and shown nowhere."""

import re
from collections.abc import Callable, Mapping

import pytest

from quipu.model.errors import SettingError
from quipu.model.settings import BROKER
from quipu.model.settings_sources import (
    SECRET_SIZE_MIN,
    Given,
    broker_settings,
    from_assignments,
    from_environment,
    from_properties,
    is_loopback,
)

SENSITIVE = [row.name for row in BROKER.values() if row.is_sensitive]
VALUE = "hunter2"
LONG_ENOUGH = "x" * SECRET_SIZE_MIN


def variable(name: str) -> str:
    return f"QUIPU_{name.upper().replace('.', '_')}"


# Every way to get a setting wrong, by who reads it; each names a sensitive setting, or nearly.
MISTAKES: list[tuple[str, Callable[[str], Mapping[str, Given]]]] = [
    ("file: no equals sign", lambda name: from_properties(f"={VALUE}", "f")),
    ("file: nearly the name", lambda name: from_properties(f"{name}x={VALUE}", "f")),
    ("file: a blank in the name", lambda name: from_properties(f"my {name}={VALUE}", "f")),
    ("file: twice", lambda name: from_properties(f"{name}={VALUE}\n{name}=other{VALUE}", "f")),
    ("file: continued", lambda name: from_properties(f"{name}x=\\\n  {VALUE}", "f")),
    ("environment: nearly the name", lambda name: from_environment({variable(name) + "X": VALUE})),
    ("--set: no equals sign", lambda name: from_assignments([f"{name} {VALUE}"])),
    ("--set: a colon", lambda name: from_assignments([f"{name}:{VALUE}"])),
    ("--set: no name", lambda name: from_assignments([f"={VALUE}"])),
    ("--set: nearly the name", lambda name: from_assignments([f"{name}x={VALUE}"])),
]


@pytest.mark.parametrize("name", SENSITIVE)
@pytest.mark.parametrize(("why", "read"), MISTAKES, ids=[why for why, _ in MISTAKES])
def test_a_mistake_next_to_a_secret_does_not_show_it(
    why: str, read: Callable[[str], Mapping[str, Given]], name: str
) -> None:
    """K8, K9: the file, line or variable is named; what is written there is not."""
    with pytest.raises(SettingError) as caught:
        broker_settings(read(name))
    assert VALUE not in str(caught.value)
    assert str(caught.value)


@pytest.mark.parametrize("name", [name for name in SENSITIVE if not BROKER[name].refused])
def test_where_a_secret_was_given_does_not_tell_it(name: str) -> None:
    """K8: what is remembered for later errors holds no value."""
    for given in (from_properties(f"{name}={VALUE}", "f"), from_assignments([f"{name}={VALUE}"]),
                  from_environment({variable(name): VALUE})):
        assert given[name].value == VALUE
        assert VALUE not in given[name].where
        assert VALUE not in repr(broker_settings(given))


@pytest.mark.parametrize(("host", "expected"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
    ("LOCALHOST", True), ("10.0.0.1", False), ("0.0.0.0", False), ("::", False),
    ("example", False), ("localhost.example", False), ("128.0.0.1", False),
])
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    """K8: a name that may be any machine counts as another one."""
    assert is_loopback(host) is expected


@pytest.mark.parametrize("listener", [
    ["peer.listener=10.0.0.1:9094"], ["peer.listener=example:9094"], ["peer.listener=[fd00::1]:1"],
    ["peer.listener=0.0.0.0:1", "advertised.peer.listener=a.example:1"],
    ["peer.listener=127.0.0.1:1", "advertised.peer.listener=a.example:1"],
], ids=str)
@pytest.mark.parametrize("secret", [None, "short", "x" * (SECRET_SIZE_MIN - 1)])
def test_a_weak_secret_is_refused_where_other_machines_can_connect(
    listener: list[str], secret: str | None
) -> None:
    """K8: the error says what to write, and not what is written."""
    given = [*listener, *([f"peer.secret={secret}"] if secret else [])]
    with pytest.raises(SettingError) as caught:
        broker_settings(from_assignments(given))
    words = str(caught.value)
    assert re.search(r"peer\.secret (is not set|has fewer than 16 characters)", words)
    assert "Write peer.secret=TEXT" in words
    assert "QUIPU_PEER_SECRET" in words
    assert not secret or secret not in words

    strong = broker_settings(from_assignments([*listener, f"peer.secret={LONG_ENOUGH}"]))
    assert strong.peer_secret == LONG_ENOUGH


@pytest.mark.parametrize("listener", ["127.0.0.1:0", "localhost:9094", "[::1]:9094"])
def test_on_loopback_a_secret_may_be_missing(listener: str) -> None:
    """K8: a process that can connect there can usually read the files of the node's user, too."""
    settings = broker_settings(from_assignments([f"peer.listener={listener}"]))
    assert settings.peer_secret is None
