"""Voters: majorities, and the steps from one set of voters to another."""

from collections.abc import Set as AbstractSet
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.model.ids import NodeId
from quipu.raft.membership import Configuration, configuration_steps

SETS = st.sets(st.integers(1, 8), min_size=1)


@given(ends=st.dictionaries(st.integers(1, 7), st.integers(0, 50), min_size=1))
def test_agreed_is_what_a_majority_has(ends: dict[NodeId, int]) -> None:
    """T7: compared with a slow version that tries every number."""
    configuration = Configuration.of(ends)
    slow = max(index for index in range(51)
               if sum(end >= index for end in ends.values()) > len(ends) / 2)

    assert configuration.majority_index(ends) == slow
    assert configuration.majority_index({}) == 0


@given(now=SETS, target=SETS)
def test_every_step_shares_a_majority_with_the_one_before(
    now: AbstractSet[int], target: AbstractSet[int]
) -> None:
    """T7: any majority of one and any of the next have a node in common."""
    before = Configuration.of(now)
    steps = configuration_steps(before, Configuration.of(target), NodeId(1))
    for step in steps:
        assert step.is_single_change_from(before)
        for one in combinations(before.voters, before.majority):
            assert not step.has_majority(set(step.voters) - set(one))
        before = step
    assert before == Configuration.of(target)


def test_who_asks_goes_last() -> None:
    steps = configuration_steps(Configuration.of([1, 2, 3]), Configuration.of([3, 4]), NodeId(1))
    assert [step.voters for step in steps] == [(1, 2, 3, 4), (1, 3, 4), (3, 4)]


@given(voters=SETS)
def test_a_configuration_is_read_as_it_was_written(voters: AbstractSet[int]) -> None:
    configuration = Configuration.of(voters)
    assert Configuration.decode(configuration.encode()) == configuration


@pytest.mark.parametrize("data", [
    b"", b"\x01", b"\x02\x00\x01\x00\x00\x00\x01", b"\x01\x00\x00", b"\x01\x00\x02\x00\x00\x00\x01",
    b"\x01\x00\x02\x00\x00\x00\x02\x00\x00\x00\x01", b"\x01\xff\xff" + bytes(4 * 0xFFFF)])
def test_a_configuration_that_cannot_be_is_refused(data: bytes) -> None:
    """K8: foreign bytes."""
    with pytest.raises(MalformedBytes):
        Configuration.decode(data)
