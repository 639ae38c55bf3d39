"""What a reader knows of logs: right, whatever is learnt in which order, and bounded."""

from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.reading.coordinates import HOT_SECONDS, Coordinates
from quipu.diskless.values import BatchRun, LogBounds, LogKey
from quipu.model.ids import Offset, TimestampMs
from tests.diskless.nodes import LOG, TOPIC


def bounds(start: int = 0, end: int = 1000, *, diskless_start: int = 0, size: int = 0) -> LogBounds:
    return LogBounds(Offset(start), Offset(max(start, diskless_start)), Offset(end), size)


def run(start: int, end: int, key: str = "a", log: LogKey = LOG) -> BatchRun:
    return BatchRun(log, Offset(start), Offset(end), key, 10 * start, 10 * (end - start), 1,
                    TimestampMs(1))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(0, 2),
                          st.integers(0, 5)), max_size=60),
       st.integers(5, 40))
def test_an_offset_is_found_in_the_run_learnt_last(
    learnt: list[tuple[int, int, int, int]], runs_max: int
) -> None:
    """D5, diskless.R2, diskless.R3: or not at all, if it was forgotten."""
    coordinates = Coordinates(seconds_max=10, runs_max=runs_max)
    last: dict[tuple[LogKey, int], BatchRun] = {}
    for number, (start, size, partition, action) in enumerate(learnt):
        log = LogKey(TOPIC, partition)
        coordinates.learn_bounds(log, bounds(), 0)
        if action == 0:
            coordinates.forget_object(log, f"k{start % 3}")
            last = {key: each for key, each in last.items()
                    if key[0] != log or each.key != f"k{start % 3}"}
        elif action == 1 and start % 5 == 0:
            coordinates.forget_log(log)
            last = {key: each for key, each in last.items() if key[0] != log}
        else:
            new = run(start, start + size, f"k{number % 3}", log)
            coordinates.learn_runs(log, [new], 0)
            for offset in range(start, start + size):
                last[log, offset] = new
        coordinates.invariants()
        for known_log in coordinates.logs():
            known = coordinates.log(known_log)
            assert known is not None
            for offset in range(75):
                found = known.find(Offset(offset), 1)
                assert found in (None, last.get((known_log, offset)))


def test_runs_of_other_writers_leave_gaps_and_no_errors() -> None:
    """D5, diskless.R2: what is not known is not guessed."""
    coordinates = Coordinates(seconds_max=10)
    coordinates.learn_bounds(LOG, bounds(), 0)
    coordinates.learn_runs(LOG, [run(0, 5), run(9, 12, "b")], 0)
    known = coordinates.log(LOG)
    assert known is not None
    assert known.find(Offset(4), 1) == run(0, 5)
    assert known.find(Offset(5), 1) is None
    assert known.find(Offset(9), 1) == run(9, 12, "b")
    assert known.find(Offset(12), 1) is None


def test_runs_are_forgotten_before_their_object_may_go() -> None:
    """D5, diskless.R2: half of the grace period after they were learnt."""
    coordinates = Coordinates(seconds_max=10)
    coordinates.learn_bounds(LOG, bounds(), 0)
    coordinates.learn_runs(LOG, [run(0, 5)], 3)
    known = coordinates.log(LOG)
    assert known is not None
    assert known.find(Offset(0), 12.9) is not None
    assert known.find(Offset(0), 13.0) is None
    coordinates.learn_parts(LOG, run(0, 5), run(3, 5))
    assert known.find(Offset(0), 12.9) == run(0, 3)._replace(batch_count=0)
    assert known.find(Offset(3), 13.0) is None


def test_bounds_never_get_lower() -> None:
    """D5, diskless.R1: answers may arrive in another order than they were given."""
    coordinates = Coordinates(seconds_max=10)
    assert coordinates.learn_bounds(LOG, bounds(5, 100, diskless_start=7, size=9), 0)
    assert not coordinates.learn_bounds(LOG, bounds(3, 90, size=1), 0)
    assert coordinates.learn_bounds(LOG, bounds(6, 101, size=2), 0)
    known = coordinates.log(LOG)
    assert known is not None
    assert known.bounds == LogBounds(Offset(6), Offset(7), Offset(101), 2)


def test_recent_offsets_are_hot() -> None:
    """D5: those written in the last HOT_SECONDS at least; at first, none that were there."""
    coordinates = Coordinates(seconds_max=10)
    coordinates.learn_bounds(LOG, bounds(0, 100), 0)
    known = coordinates.log(LOG)
    assert known is not None
    assert not known.is_hot(Offset(99))
    assert known.is_hot(Offset(100))
    now = 0.0
    for end in range(110, 300, 10):
        now += HOT_SECONDS / 4
        coordinates.learn_bounds(LOG, bounds(0, end), now)
        assert known.is_hot(Offset(max(100, end - 40)))
    assert not known.is_hot(Offset(150))
