"""Waiting for committed: everyone is called once, in order, and nobody for ever."""

from quipu.broker.commits import FOREVER, Commits
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset


class Waits:
    """Some waits, and what they were told."""

    def __init__(self) -> None:
        self.commits = Commits()
        self.told: list[tuple[str, Code | None]] = []

    def wait(self, name: str, end: int, deadline: float = FOREVER, *, log: bool = False) -> None:
        def done(error: Exception | None) -> None:
            self.told.append((name, error.code if isinstance(error, QuipuError) else None))

        if log:
            self.commits.wait_log(LogOffset(end), deadline, done)
        else:
            self.commits.wait(Offset(end), deadline, done)


def test_waits_end_when_the_commit_point_passes_them() -> None:
    """V12: in order, each once; both countings move together."""
    waits = Waits()
    waits.wait("a", 3)
    waits.wait("b", 5)
    waits.wait("log", 9, log=True)
    waits.commits.advance(LogOffset(8), Offset(4))
    assert waits.told == [("a", None)]
    waits.commits.advance(LogOffset(9), Offset(5))
    assert waits.told == [("a", None), ("b", None), ("log", None)]
    waits.wait("late", 5)
    assert waits.told[-1] == ("late", None)
    assert len(waits.commits) == 0


def test_impatient_waits_end_alone() -> None:
    """V12: the others go on waiting."""
    waits = Waits()
    waits.wait("patient", 1, deadline=20.0)
    waits.wait("impatient", 2, deadline=10.0)
    waits.commits.expire(9.9)
    assert waits.told == []
    waits.commits.expire(10.0)
    assert waits.told == [("impatient", Code.REQUEST_TIMED_OUT)]
    waits.commits.advance(LogOffset(2), Offset(2))
    assert waits.told[1:] == [("patient", None)]


def test_a_lost_cause_is_told_to_all() -> None:
    """V15: and whoever is called may wait again."""
    waits = Waits()
    waits.wait("a", 1)
    waits.wait("log", 1, log=True)
    waits.commits.fail(RequestError("over", code=Code.NOT_LEADER_OR_FOLLOWER))
    assert waits.told == [("a", Code.NOT_LEADER_OR_FOLLOWER),
                          ("log", Code.NOT_LEADER_OR_FOLLOWER)]
    assert len(waits.commits) == 0
