"""Values cannot be made wrong, and an update makes a new one."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from quipu.remote.metadata.errors import InvalidMetadata
from quipu.remote.metadata.segment_metadata import (
    CUSTOM_METADATA_SIZE_MAX,
    EpochRange,
    RemoteLogSegmentId,
    TopicIdPartition,
)
from quipu.remote.metadata.states import COPY_FINISHED, COPY_STARTED, DELETE_STARTED
from tests.remote.metadata.segments import NOW_MS, deletion, fresh_partition, segment, update

PARTITION = fresh_partition()
GOOD = segment(PARTITION, 10, 100, {1: 10, 3: 50})

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("a negative start", {"start_offset": -1}),
    ("an end before the start", {"end_offset": 9}),
    ("an end that 64 bits do not hold", {"end_offset": 1 << 63}),
    ("no leader epoch", {"segment_leader_epochs": {}}),
    ("a negative leader epoch", {"segment_leader_epochs": {-1: 10}}),
    ("a negative offset of an epoch", {"segment_leader_epochs": {1: -1}}),
    ("epochs whose offsets descend", {"segment_leader_epochs": {1: 20, 2: 10}}),
    ("a negative size", {"segment_size_bytes": -1}),
    ("a size that 32 bits do not hold", {"segment_size_bytes": 1 << 31}),
    ("a negative time", {"event_timestamp_ms": -2}),
    ("too much custom metadata", {"custom_metadata": bytes(CUSTOM_METADATA_SIZE_MAX + 1)}),
]


@pytest.mark.parametrize("changed", [each[1] for each in WRONG], ids=[each[0] for each in WRONG])
def test_a_segment_that_cannot_be_is_refused(changed: dict[str, Any]) -> None:
    """R1, R14: remote.M2: Kafka's checks, and those that bytes need."""
    with pytest.raises(InvalidMetadata, match="must be from"):
        replace(GOOD, **changed)


def test_partitions_are_known_by_topic_id() -> None:
    """R1: the name is for people."""
    same = TopicIdPartition(PARTITION.topic_id, 0, "renamed")
    assert same == PARTITION
    assert len({same, PARTITION}) == 1
    with pytest.raises(InvalidMetadata):
        TopicIdPartition(UUID(int=1), -1, "foo")
    with pytest.raises(InvalidMetadata):
        TopicIdPartition(UUID(int=1), 0, "")


def test_an_update_makes_a_new_segment() -> None:
    """R14: remote.M3: state, broker, time and custom metadata change, the original does not."""
    before = replace(GOOD, custom_metadata=b"old")
    after = before.with_update(update(before, COPY_FINISHED, custom=b"new"))
    assert (after.state, after.broker_id, after.event_timestamp_ms, after.custom_metadata) == (
        COPY_FINISHED, 1, NOW_MS + 1, b"new")
    assert after.is_same_segment(before)
    assert before == replace(GOOD, custom_metadata=b"old")
    assert before.state is COPY_STARTED
    assert after.with_update(update(before, DELETE_STARTED)).custom_metadata is None
    assert not after.is_same_segment(replace(before, end_offset=101))


def test_an_update_of_another_segment_is_refused() -> None:
    """R14: by id."""
    other = segment(PARTITION, 10, 100)
    with pytest.raises(InvalidMetadata, match="is none of"):
        GOOD.with_update(update(other, COPY_FINISHED))


def test_leader_epochs_are_sorted_and_cannot_be_changed() -> None:
    """R14: whoever made the mapping."""
    given = {3: 50, 1: 10}
    made = replace(GOOD, segment_leader_epochs=given)
    given[9] = 99
    assert list(made.segment_leader_epochs.items()) == [(1, 10), (3, 50)]
    with pytest.raises(TypeError):
        made.segment_leader_epochs[5] = 1  # type: ignore[index]  # that is the point
    assert made == GOOD
    assert hash(made) == hash(GOOD)


def test_an_epoch_ends_where_the_next_begins() -> None:
    """R5: the last one ends with the segment; one without records is empty."""
    made = replace(GOOD, segment_leader_epochs={1: 10, 2: 50, 3: 50, 7: 200})
    assert list(made.epoch_ranges()) == [
        EpochRange(1, 10, 49), EpochRange(2, 50, 49), EpochRange(3, 50, 199),
        EpochRange(7, 200, 199)]


def test_names_for_people() -> None:
    """R1: errors say which segment."""
    name = str(RemoteLogSegmentId(PARTITION, UUID(int=5)))
    assert name == f"segment 00000000-0000-0000-0000-000000000005 of foo-0 ({PARTITION.topic_id})"
    assert deletion(PARTITION, 0).partition == PARTITION  # type: ignore[arg-type]  # its number
