"""Every fuzz target, with a small budget: its seeds, mutations of them, and junk."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, seeds


@pytest.mark.parametrize("name", list(TARGETS))
def test_sound_inputs_pass(name: str) -> None:
    """K8: a target that refuses its own seeds would look at nothing."""
    for seed in seeds(name):
        TARGETS[name](seed)


@pytest.mark.parametrize("name", list(TARGETS))
@settings(max_examples=150)
@given(data=st.data())
def test_mutated_and_random_inputs_end_in_typed_errors(name: str, data: st.DataObject) -> None:
    """K8: whatever the bytes, a parser gives a value or an error of its own."""
    start = bytearray(data.draw(st.one_of(st.binary(max_size=200), st.sampled_from(seeds(name)))))
    for _ in range(data.draw(st.integers(0, 4))):
        if start:
            position = data.draw(st.integers(0, len(start) - 1))
            start[position] = data.draw(st.integers(0, 255))
    TARGETS[name](bytes(start))
