"""Waiting for a commit: every callback is called once, in order, and in time."""

from quipu.broker.partitions.commit_waiters import FOREVER, CommitWaiters
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset


class Waits:
    """Some waits, and the calls of their callbacks."""

    def __init__(self) -> None:
        self.commit_waiters = CommitWaiters()
        self.called: list[tuple[str, Code | None]] = []

    def wait(self, name: str, end: int, deadline: float = FOREVER, *, log: bool = False) -> None:
        def done(error: Exception | None) -> None:
            self.called.append((name, error.code if isinstance(error, QuipuError) else None))

        if log:
            self.commit_waiters.wait_log(LogOffset(end), deadline, done)
        else:
            self.commit_waiters.wait(Offset(end), deadline, done)


def test_waits_end_when_the_commit_point_passes_them() -> None:
    """V12: broker.partitions.W2; in order, each once; both countings move together."""
    waits = Waits()
    waits.wait("a", 3)
    waits.wait("b", 5)
    waits.wait("log", 9, log=True)
    waits.commit_waiters.advance(LogOffset(8), Offset(4))
    assert waits.called == [("a", None)]
    waits.commit_waiters.advance(LogOffset(9), Offset(5))
    assert waits.called == [("a", None), ("b", None), ("log", None)]
    waits.wait("late", 5)
    assert waits.called[-1] == ("late", None)
    assert len(waits.commit_waiters) == 0


def test_impatient_waits_end_alone() -> None:
    """V12: broker.partitions.W1; the others go on waiting."""
    waits = Waits()
    waits.wait("patient", 1, deadline=20.0)
    waits.wait("impatient", 2, deadline=10.0)
    waits.commit_waiters.expire(9.9)
    assert waits.called == []
    waits.commit_waiters.expire(10.0)
    assert waits.called == [("impatient", Code.REQUEST_TIMED_OUT)]
    waits.commit_waiters.advance(LogOffset(2), Offset(2))
    assert waits.called[1:] == [("patient", None)]


def test_a_failure_ends_all_waits() -> None:
    """V15: and a callback may wait again."""
    waits = Waits()
    waits.wait("a", 1)
    waits.wait("log", 1, log=True)
    waits.commit_waiters.fail(RequestError("over", code=Code.NOT_LEADER_OR_FOLLOWER))
    assert waits.called == [("a", Code.NOT_LEADER_OR_FOLLOWER),
                          ("log", Code.NOT_LEADER_OR_FOLLOWER)]
    assert len(waits.commit_waiters) == 0
