"""Leader epochs of logs that were on disks, after their control plane was lost."""

from uuid import UUID

import pytest

from quipu.diskless.rebuild_lineage import lineage_of_segments
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)

TOPIC = TopicIdPartition(UUID(int=1), 0, "t")


def segment(start: int, end: int, **epochs: int) -> RemoteLogSegmentMetadata:
    """Offsets `start` to `end`, both inclusive; `e3=10`: epoch 3 begins at 10."""
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(TOPIC, UUID(int=start << 8 | end)), start_offset=start,
        end_offset=end, max_timestamp_ms=0, broker_id=1, event_timestamp_ms=0,
        segment_size_bytes=1, txn_index_empty=True,
        segment_leader_epochs={int(name[1:]): offset for name, offset in epochs.items()})


@pytest.mark.parametrize(("segments", "epoch", "want"), [
    ([segment(0, 9, e0=0)], 0, None),
    ([], 7, ((7, 0),)),
    ([segment(0, 9, e1=0), segment(10, 29, e1=10, e4=15)], 7, ((1, 0), (4, 15), (7, 30))),
    ([segment(0, 9, e1=0), segment(10, 19, e7=10)], 7, ((1, 0), (7, 10))),
    ([segment(10, 19, e7=10)], 7, ((7, 10),)),
    ([segment(0, 9, e1=0), segment(10, 30, e2=10), segment(10, 19, e3=10)], 7,
     ((1, 0), (3, 10), (7, 31))),
], ids=["born diskless", "nothing left", "two epochs", "and objects moved since", "past expired",
        "a history that was cut away"])
def test_the_epochs_that_segments_have(
    segments: list[RemoteLogSegmentMetadata], epoch: int,
    want: tuple[tuple[int, int], ...] | None,
) -> None:
    """D37, D30: old records are found again by their own epochs."""
    assert lineage_of_segments(segments, epoch) == want
