"""Named listeners, and principals: how they are written."""

import pytest

from quipu.model.listeners import (
    DEFAULT,
    NAME_SIZE_MAX,
    ListenerEndpoint,
    ListenerProtocol,
    SecurityProtocol,
    is_default,
    is_listener_name,
)
from quipu.model.principals import ANONYMOUS, Principal


@pytest.mark.parametrize(("endpoint", "text"), [
    (ListenerEndpoint("PLAINTEXT", "h", 1), "PLAINTEXT://h:1"),
    (ListenerEndpoint("PLAINTEXT", "::1", 1), "PLAINTEXT://[::1]:1"),
    (ListenerEndpoint("B", "::1", 1), "B://[::1]:1"),
])
def test_an_endpoint_is_written_as_it_is_read(endpoint: ListenerEndpoint, text: str) -> None:
    """What was given without a name is shown without one."""
    assert str(endpoint) == text


def test_names() -> None:
    """Upper case, and short."""
    assert all(map(is_listener_name, ("A", "PLAINTEXT", "IN_1.X-2", "A" * NAME_SIZE_MAX)))
    assert not any(map(is_listener_name, ("", "a", "A B", "_A", "A" * (NAME_SIZE_MAX + 1))))


def test_what_every_node_had_before_listeners_had_names() -> None:
    """One listener, PLAINTEXT."""
    own = ListenerEndpoint(DEFAULT.name, "h", 1)
    assert is_default([own])
    assert not is_default([own, ListenerEndpoint("B", "h", 2)])
    assert not is_default([ListenerEndpoint("B", "h", 2)])


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    """`User:ANONYMOUS` is a client without authentication."""
    assert (str(ANONYMOUS), str(Principal("User", "CN=a"))) == ("User:ANONYMOUS", "User:CN=a")
    assert str(ListenerProtocol("A", SecurityProtocol.SASL_SSL)) == "A:SASL_SSL"
