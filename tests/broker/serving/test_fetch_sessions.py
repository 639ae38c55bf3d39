"""Incremental fetch sessions: what is remembered, in which order, whose it is, what is refused."""

from itertools import pairwise

import pytest

from quipu.broker.observing.stats import Stats
from quipu.broker.serving.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_FIRST,
    IDLE_SECONDS,
    NO_SESSION,
    PARTITIONS,
    SESSIONS_PER_CLIENT_MAX,
    SLOTS,
    FetchClient,
    FetchSession,
    FetchSessions,
    FetchTarget,
    Referral,
)
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, NodeId, Offset
from quipu.runtime.clock import ManualClock
from quipu.runtime.rng import SeededRng


class Rig:
    """Sessions, and a client that has some."""

    def __init__(self, slots: int = 10, partitions_max: int = 1000) -> None:
        self.clock = ManualClock()
        self.stats = Stats()
        self.sessions = FetchSessions(
            self.clock, SeededRng(1), self.stats, slots=slots, partitions_max=partitions_max)
        self.client = FetchClient("10.0.0.1")

    def open(
        self, session_id: int, epoch: int, changed: list[FetchTarget] | None = None,
        forgotten: list[tuple[str | bytes, int]] | None = None, *,
        client: FetchClient | None = None,
    ) -> FetchSession:
        return self.sessions.open(
            client or self.client, session_id, epoch, (changed or [], forgotten or []))

    def begin(self, count: int = 1, *, client: FetchClient | None = None) -> FetchSession:
        return self.open(
            0, EPOCH_FIRST, [target(index) for index in range(count)], client=client)


def target(partition: int, offset: int = 0) -> FetchTarget:
    return FetchTarget("orders", partition, offset, 1000)


def offsets(session: FetchSession) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in session]


def test_a_large_request_is_taken_over_piece_by_piece() -> None:
    """K2, K8: the same as in one go; where there is no room it goes on without a session."""
    rig = Rig(partitions_max=100)
    session = rig.open(0, EPOCH_FIRST)
    for first in (0, 20):
        rig.sessions.update(
            rig.client, session, [target(index) for index in range(first, first + 20)], [])
    assert (len(session.targets), rig.stats.fetch_partitions) == (40, 40)
    assert rig.sessions.hold(rig.client, session)
    rig.sessions.update(rig.client, session, [target(index) for index in range(40, 60)], [])
    assert (session.id, session.incremental, len(session.targets)) == (NO_SESSION, False, 60)
    rig.sessions.update(rig.client, session, [target(index) for index in range(60, 80)], [])
    assert (len(session.targets), rig.stats.fetch_partitions) == (80, 0)
    rig.sessions.release(rig.client, session)  # the wait began while it was a session
    assert rig.stats.fetch_partitions == 0
    assert len(rig.sessions) == 0

    known = rig.begin(30)
    with pytest.raises(RequestError, match="grown too large"):
        rig.sessions.update(rig.client, rig.open(known.id, 1), [
            target(index) for index in range(30, 90)], [])
    assert (known.id, rig.stats.fetch_partitions) == (NO_SESSION, 0)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_session_names_topics_in_one_way(by_id: bool) -> None:
    """K2: broker.serving.F6; a client that changes the version in a session starts anew."""
    rig = Rig()
    session = rig.sessions.open(rig.client, 0, EPOCH_FIRST, ([target(0)], []), by_id=by_id)

    with pytest.raises(RequestError) as caught:
        rig.sessions.open(rig.client, session.id, 1, ([target(1)], []), by_id=not by_id)

    assert caught.value.code is Code.FETCH_SESSION_TOPIC_ID_ERROR
    same = rig.sessions.open(rig.client, session.id, 1, ([], []), by_id=by_id)
    assert offsets(same) == [(0, 0)]


def test_a_session_remembers_and_takes_changes() -> None:
    """K2: later requests name only what changes; changed partitions go to the end."""
    rig = Rig()
    first = rig.begin(3)
    assert first.id != NO_SESSION
    assert not first.incremental

    second = rig.open(first.id, 1, [target(0, offset=5), target(3)], [("orders", 1)])

    assert second is first
    assert second.incremental
    assert offsets(second) == [(2, 0), (0, 5), (3, 0)]
    assert rig.stats.fetch_partitions == 3


def test_partitions_that_had_records_go_to_the_end() -> None:
    """K2: a busy partition does not starve the others of a limited response."""
    session = Rig().begin(2)
    session.served(("orders", 0))
    assert offsets(session) == [(1, 0), (0, 0)]


def test_a_final_request_ends_its_session_and_makes_none() -> None:
    """K2: epoch -1."""
    rig = Rig()
    session = rig.begin()
    last = rig.open(session.id, EPOCH_FINAL, [target(0)])
    assert last.id == NO_SESSION
    assert len(rig.sessions) == 0


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
    """K2: broker.serving.F1; the client starts a new session."""
    rig = Rig()
    session = rig.begin()
    with pytest.raises(RequestError) as caught:
        rig.open(session.id + session_offset, epoch)
    assert caught.value.code == code


def test_sessions_are_bounded_and_idle_ones_make_room() -> None:
    """K8: broker.serving.F2; a client without a session is served all the same."""
    rig = Rig(slots=2)
    others = [FetchClient(f"10.0.1.{number}") for number in range(3)]
    first = rig.begin(client=others[0])
    rig.clock.advance_ms(1000)
    second = rig.begin(client=others[1])
    assert rig.begin(client=others[2]).id == NO_SESSION
    assert rig.stats.refusals[SLOTS] == 1

    rig.open(first.id, 1, client=others[0])  # now the second is the one unused longest
    rig.clock.advance_ms(int(IDLE_SECONDS * 1000))
    third = rig.begin(client=others[2])

    assert third.id != NO_SESSION
    assert len(rig.sessions) == 2
    rig.open(first.id, 2, client=others[0])
    with pytest.raises(RequestError):
        rig.open(second.id, 1, client=others[1])


def test_nobody_uses_or_ends_the_session_of_another() -> None:
    """K8: broker.serving.F3; an id that was guessed or seen is worth nothing elsewhere."""
    rig = Rig()
    session = rig.begin(2)
    stranger = FetchClient("10.0.0.1")  # of the same address, even

    for epoch in (1, 2, 77):
        with pytest.raises(RequestError) as caught:
            rig.open(session.id, epoch, client=stranger)
        assert caught.value.code == Code.FETCH_SESSION_ID_NOT_FOUND
    rig.open(session.id, EPOCH_FINAL, client=stranger)
    rig.open(session.id, EPOCH_FIRST, client=stranger)

    assert offsets(rig.open(session.id, 1)) == [(0, 0), (1, 0)]


def test_ids_do_not_follow_from_each_other() -> None:
    """K8: broker.serving.F3."""
    rig = Rig(slots=1000)
    ids = {rig.begin(client=FetchClient(f"10.0.0.{number}")).id for number in range(100)}

    assert len(ids) == 100
    assert all(0 < each < 1 << 31 for each in ids)
    gaps = sorted(ids)
    assert min(b - a for a, b in pairwise(gaps)) > 1


def test_a_connection_takes_its_sessions_with_it() -> None:
    """K8: broker.serving.F3, broker.serving.F4; what a client held is free when it is gone."""
    rig = Rig()
    for _ in range(SESSIONS_PER_CLIENT_MAX + 3):
        rig.begin(5)
    assert len(rig.sessions) == SESSIONS_PER_CLIENT_MAX

    rig.sessions.close(rig.client)

    assert len(rig.sessions) == 0
    assert rig.stats.fetch_partitions == 0
    assert rig.stats.fetch_sessions == 0


def test_one_address_leaves_half_of_the_sessions_to_others() -> None:
    """K8: broker.serving.F5."""
    rig = Rig(slots=10)
    crowd = [FetchClient("10.0.0.9") for _ in range(20)]
    given = [rig.begin(client=client).id != NO_SESSION for client in crowd]

    assert sum(given) == 5
    assert rig.begin().id != NO_SESSION


def test_partitions_are_bounded_over_all_sessions() -> None:
    """K8: broker.serving.F4; who would hold more names everything each time."""
    rig = Rig(slots=100, partitions_max=100)
    session = rig.begin(40)
    with pytest.raises(RequestError) as caught:
        rig.open(session.id, 1, [target(index) for index in range(40, 60)])

    assert caught.value.code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert rig.begin(60).id == NO_SESSION
    assert rig.stats.refusals[PARTITIONS] == 2
    assert rig.stats.fetch_partitions == 0
    assert rig.begin(50).id != NO_SESSION


def test_long_names_count_for_more() -> None:
    """K8: broker.serving.F4; memory is what is bounded, and names may have 32 KiB."""
    rig = Rig(partitions_max=200)
    names = [FetchTarget("x" * 32_000, index, 0, 1) for index in range(2)]
    assert rig.open(0, EPOCH_FIRST, names).id == NO_SESSION


def test_waiting_fetches_hold_partitions_too() -> None:
    """K8: broker.serving.B4, broker.serving.F4; a fetch that has no session and would hold too much
    does not wait.
    """
    rig = Rig(slots=0, partitions_max=100)
    first, second = rig.begin(50), rig.begin(1)
    other = FetchClient("10.0.0.2")

    assert rig.sessions.hold(rig.client, first)
    assert not rig.sessions.hold(rig.client, second)
    assert rig.sessions.hold(other, second)
    rig.sessions.release(rig.client, first)
    rig.sessions.release(other, second)

    assert rig.stats.fetch_partitions == 0


def test_what_is_remembered_of_readers_sent_elsewhere_counts() -> None:
    """K8: broker.serving.F4; the referrals of a connection are bounded, and end with
    it.
    """
    rig = Rig(partitions_max=100)
    referral = Referral(NodeId(3), 1.0, Epoch(1), Offset(7))
    for index in range(60):
        rig.sessions.refer(rig.client, ("orders", index), referral)
        rig.sessions.refer(rig.client, ("orders", 0), referral)  # again, which counts once

    assert len(rig.client.referrals) == rig.stats.fetch_partitions == 50
    assert rig.stats.refusals[PARTITIONS] == 10
    rig.sessions.close(rig.client)

    assert rig.client.referrals == {}
    assert rig.stats.fetch_partitions == 0
