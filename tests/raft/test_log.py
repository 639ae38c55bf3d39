"""The log of one node: what it refuses, and what it says of itself."""

import pytest

from quipu.model.batch_types import CONFIGURATION, CONTROLLER
from quipu.model.ids import RaftIndex, Term
from quipu.raft.log import RaftLog
from quipu.raft.membership import Configuration
from quipu.raft.messages import RaftEntry

VOTERS = Configuration.of([1, 2, 3])


def entry(index: int, term: int) -> RaftEntry:
    return RaftEntry(RaftIndex(index), Term(term), CONTROLLER, (b"x",))


def log_of(*terms: int) -> RaftLog:
    return RaftLog(0, 0, VOTERS, [entry(at, term) for at, term in enumerate(terms, start=1)])


def test_an_entry_that_does_not_follow_the_last_is_a_bug() -> None:
    """T7: raft.G1; neither a gap nor an index that is taken."""
    for index in (1, 2, 4):
        with pytest.raises(AssertionError):
            log_of(1, 1).append([entry(index, 1)])


def test_an_entry_of_an_earlier_term_is_a_bug() -> None:
    """T7: raft.G2; a leader's term is never below that of an entry in its log."""
    with pytest.raises(AssertionError):
        log_of(1, 3).append([entry(3, 2)])


def test_the_newest_configuration_is_in_force() -> None:
    """T7: raft.G5, raft.C1; that of the snapshot when every entry with one is truncated."""
    log = log_of(1)
    few = Configuration.of([1, 2])
    log.append([RaftEntry(RaftIndex(2), Term(1), CONFIGURATION, (few.encode(),))])
    assert (log.configuration, log.configuration_index) == (few, 2)
    log.truncate(2)
    assert (log.configuration, log.configuration_index) == (VOTERS, 0)


def test_the_steps_of_a_log_stay_in_order() -> None:
    """T7: raft.G6; nothing is compacted before it is applied, nor applied before committed."""
    log = log_of(1, 1, 1)
    with pytest.raises(AssertionError):
        log.compact(1)
    log.commit(2)
    assert [kept.index for kept in log.take_committed(10)] == [1, 2]
    log.compact(1)
    assert (log.snapshot_index, log.last_applied, log.commit_index, log.last_index) == (1, 2, 2, 3)
    log.invariants()
    log.commit_index = RaftIndex(4)
    with pytest.raises(AssertionError):
        log.invariants()


def test_a_snapshot_replaces_the_log_and_is_not_durable_at_once() -> None:
    """T7: raft.G4, raft.G6; writes that were under way no longer make anything durable."""
    log = log_of(1)
    log.append([entry(2, 1)])
    log.take_unwritten(1)
    log.reset_to_snapshot(9, 2, VOTERS)
    log.take_unwritten(2)
    log.persisted(1)
    assert (log.durable, log.written, log.last_index) == (0, 9, 9)
    log.persisted(2)
    assert log.durable == 9
    log.invariants()
