"""The life cycles: every pair of states."""

import itertools

import pytest

from quipu.remote.metadata.errors import InvalidTransition
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_NEXT,
    DELETE_STARTED,
    PARTITION_FINISHED,
    PARTITION_MARKED,
    PARTITION_STARTED,
    SEGMENT_NEXT,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    check_transition,
    is_valid_transition,
)

SEGMENT_STEPS = {(None, COPY_STARTED), (COPY_STARTED, COPY_FINISHED),
                 (COPY_STARTED, DELETE_STARTED), (COPY_FINISHED, DELETE_STARTED),
                 (DELETE_STARTED, DELETE_FINISHED)}
DELETE_STEPS = {(None, PARTITION_MARKED), (PARTITION_MARKED, PARTITION_STARTED),
                (PARTITION_STARTED, PARTITION_FINISHED)}


def test_a_segment_goes_only_along_its_table() -> None:
    """R10: remote.M1: all pairs; staying is a retry."""
    for source, to in itertools.product([None, *RemoteLogSegmentState], RemoteLogSegmentState):
        expected = source is to or (source, to) in SEGMENT_STEPS
        assert is_valid_transition(SEGMENT_NEXT, source, to) == expected, (source, to)


def test_a_deletion_goes_only_along_its_table() -> None:
    """R4, R10: remote.M1: all pairs; from marked there is no way around started."""
    for source, to in itertools.product(
            [None, *RemotePartitionDeleteState], RemotePartitionDeleteState):
        expected = source is to or (source, to) in DELETE_STEPS
        assert is_valid_transition(DELETE_NEXT, source, to) == expected, (source, to)


def test_a_refusal_says_what_may_follow() -> None:
    """R10: the error names both states, and the ones that are allowed."""
    with pytest.raises(InvalidTransition, match=r"it cannot go from COPY_SEGMENT_STARTED to "
                       "DELETE_SEGMENT_FINISHED; only COPY_SEGMENT_FINISHED or DELETE_SEGMENT_ST"):
        check_transition(SEGMENT_NEXT, COPY_STARTED, DELETE_FINISHED, "it")
    with pytest.raises(InvalidTransition, match="only nothing may follow"):
        check_transition(DELETE_NEXT, PARTITION_FINISHED, PARTITION_MARKED, "it")
    with pytest.raises(InvalidTransition, match="from no state to"):
        check_transition(DELETE_NEXT, None, PARTITION_FINISHED, "it")


def test_the_numbers_are_those_that_kafka_stores() -> None:
    """R1: they are in stored bytes."""
    assert [each.value for each in RemoteLogSegmentState] == [0, 1, 2, 3]
    assert [each.value for each in RemotePartitionDeleteState] == [0, 1, 2]
