"""The bucket of tokens that limits bytes per second."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.token_bucket import TokenBucket


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 3)), max_size=40),
       st.integers(1, 2000), st.integers(1, 2000))
def test_the_throttle(parts: list[tuple[int, float]], rate: int, burst: int) -> None:
    """model.T1: whatever asks when: in any interval, no more than the limit and one part
    begin.
    """
    throttle = TokenBucket(rate, burst)
    now, begun = 0.0, []
    for size, pause in parts:
        now += pause
        begun.append((now + throttle.take(size, now), size))
    for (before, _), (after, _) in pairwise(begun):
        assert after >= before - 1e-6  # in the order in which they asked
    for first in range(len(begun)):
        total = 0
        for time, size in begun[first:]:
            assert total <= burst + (time - begun[first][0]) * rate + 1e-3
            total += size


def test_a_clock_that_steps_back_gives_no_tokens() -> None:
    """model.T1: nor does it take any."""
    throttle = TokenBucket(100, 100)
    assert throttle.take(150, 10.0) == 0.0
    assert throttle.take(50, 5.0) == pytest.approx(0.5)
    assert throttle.take(0, 10.0) == pytest.approx(1.0)


def test_a_rate_of_nothing_lets_nothing_begin() -> None:
    """model.T1: not even what the bucket holds; another rate does, from then on."""
    bucket = TokenBucket(0, 100)
    assert bucket.wait(1.0) == inf
    bucket.change(100, 100, 1.0)
    assert bucket.wait(1.0) == 0.0
    assert bucket.take(200, 1.0) == 0.0
    assert bucket.wait(1.0) == pytest.approx(1.0)


def test_a_changed_rate_counts_from_the_change_on() -> None:
    """model.T1: what was taken before is paid back at the new rate, not the time before."""
    bucket = TokenBucket(100, 100)
    bucket.take(300, 0.0)
    bucket.change(1000, 50, 1.0)
    assert bucket.wait(1.0) == pytest.approx(0.1)
    assert bucket.wait(100.0) == 0.0
    bucket.take(100, 100.0)
    assert bucket.wait(100.0) == pytest.approx(0.05)
