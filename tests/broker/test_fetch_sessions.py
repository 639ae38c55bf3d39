"""Incremental fetch sessions: what is remembered, in which order, and what is refused."""

import pytest

from quipu.broker.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_FIRST,
    IDLE_SECONDS,
    NO_SESSION,
    FetchSessions,
    FetchTarget,
)
from quipu.model.errors import Code, RequestError
from quipu.runtime.clock import ManualClock


def target(partition: int, offset: int = 0) -> FetchTarget:
    return FetchTarget("orders", partition, offset, 1000)


def offsets(session: object) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in session]  # type: ignore[attr-defined]


def test_a_session_remembers_and_takes_changes() -> None:
    """K2: later requests name only what changes; changed partitions go to the end."""
    sessions = FetchSessions(ManualClock(), slots=10)
    first = sessions.open(0, EPOCH_FIRST, [target(0), target(1), target(2)], [])
    assert first.id != NO_SESSION
    assert not first.incremental

    second = sessions.open(first.id, 1, [target(0, offset=5), target(3)], [("orders", 1)])

    assert second is first
    assert second.incremental
    assert offsets(second) == [(2, 0), (0, 5), (3, 0)]


def test_partitions_that_had_records_go_to_the_end() -> None:
    """K2: a busy partition does not starve the others of a limited answer."""
    sessions = FetchSessions(ManualClock(), slots=10)
    session = sessions.open(0, EPOCH_FIRST, [target(0), target(1)], [])
    session.served(("orders", 0))
    assert offsets(session) == [(1, 0), (0, 0)]


def test_a_final_request_ends_its_session_and_makes_none() -> None:
    """K2: epoch -1."""
    sessions = FetchSessions(ManualClock(), slots=10)
    session = sessions.open(0, EPOCH_FIRST, [target(0)], [])
    last = sessions.open(session.id, EPOCH_FINAL, [target(0)], [])
    assert last.id == NO_SESSION
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("session_offset", "epoch", "code"),
    [
        (1, 1, Code.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, Code.INVALID_FETCH_SESSION_EPOCH),
        (0, 0x7FFF_FFFF, Code.INVALID_FETCH_SESSION_EPOCH),
    ],
    ids=["another session", "an epoch left out", "an epoch from nowhere"],
)
def test_requests_out_of_turn_are_refused(session_offset: int, epoch: int, code: Code) -> None:
    """K2: F1; the client starts a new session."""
    sessions = FetchSessions(ManualClock(), slots=10)
    session = sessions.open(0, EPOCH_FIRST, [target(0)], [])
    with pytest.raises(RequestError) as caught:
        sessions.open(session.id + session_offset, epoch, [], [])
    assert caught.value.code == code


def test_sessions_are_bounded_and_idle_ones_make_room() -> None:
    """K8: F2; a client without a session is served all the same."""
    clock = ManualClock()
    sessions = FetchSessions(clock, slots=2)
    first = sessions.open(0, EPOCH_FIRST, [target(0)], [])
    clock.advance_ms(1000)
    second = sessions.open(0, EPOCH_FIRST, [target(0)], [])
    assert sessions.open(0, EPOCH_FIRST, [target(0)], []).id == NO_SESSION

    sessions.open(first.id, 1, [], [])  # now the second is the one unused longest
    clock.advance_ms(int(IDLE_SECONDS * 1000))
    third = sessions.open(0, EPOCH_FIRST, [target(0)], [])

    assert third.id != NO_SESSION
    assert len(sessions) == 2
    sessions.open(first.id, 2, [], [])
    with pytest.raises(RequestError):
        sessions.open(second.id, 1, [], [])
