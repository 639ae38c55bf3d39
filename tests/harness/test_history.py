"""The history checker finds each anomaly, and only where there is one."""

import pytest

from tests.harness.history import Outcome, Read, Sent, check

A = Sent("p", 0, "a", Outcome.OK, 0)
B = Sent("p", 0, "b", Outcome.OK, 1)
C = Sent("p", 0, "c", Outcome.UNKNOWN)
READ_A, READ_B, READ_C = Read(0, 0, "a"), Read(0, 1, "b"), Read(0, 2, "c")

FINE = [
    ("nothing", [], []),
    ("all is read", [A, B], [[READ_A, READ_B]]),
    ("two readers", [A, B], [[READ_A, READ_B], [READ_B]]),
    ("an unknown send was written", [A, B, C], [[READ_A, READ_B, READ_C]]),
    ("an unknown send was not written", [A, B, C], [[READ_A, READ_B]]),
    ("a failed send was not written", [A, Sent("p", 0, "x", Outcome.FAILED)], [[READ_A]]),
    ("partitions are apart", [A, Sent("p", 1, "a", Outcome.OK, 0)], [[READ_A, Read(1, 0, "a")]]),
]

BROKEN = [
    ("lost-write", [A, B], [[READ_B]]),
    ("unseen", [A, B], [[READ_A]]),
    ("duplicate", [A, B], [[READ_A, READ_B, Read(0, 2, "a")]]),
    ("inconsistent-offsets", [A, B], [[READ_A, READ_B], [Read(0, 0, "b")]]),
    ("nonmonotonic-send", [B, A], [[READ_A, READ_B]]),
    ("nonmonotonic-send", [B, C._replace(value="a")], [[READ_A, READ_B]]),
    ("nonmonotonic-poll", [A, B], [[READ_B, READ_A]]),
    ("nonmonotonic-poll", [A, B], [[READ_A, READ_A, READ_B]]),
    ("poll-skip", [A, B, C], [[READ_A, READ_C], [READ_B]]),
    ("aborted-read", [A, B._replace(outcome=Outcome.FAILED, offset=None)], [[READ_A, READ_B]]),
    ("phantom-read", [A], [[READ_A, READ_B]]),
]


@pytest.mark.parametrize(("sent", "readers"), [case[1:] for case in FINE], ids=[c[0] for c in FINE])
def test_a_sound_history_has_no_anomaly(sent: list[Sent], readers: list[list[Read]]) -> None:
    assert check(sent, readers) == []


@pytest.mark.parametrize(("name", "sent", "readers"), BROKEN)
def test_an_anomaly_is_found(name: str, sent: list[Sent], readers: list[list[Read]]) -> None:
    assert name in {anomaly.name for anomaly in check(sent, readers)}
