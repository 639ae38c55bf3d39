"""The leader epochs of a log that was on disks, from what its remote segments say.  Pure.

A control plane stores them (control_plane/adoption.py).  When it is lost, the metadata of the
remote segments still has the epochs of all records that are in the tier.
"""

from collections.abc import Iterable

from quipu.diskless.values import LEADER_EPOCH, Lineage
from quipu.model.ids import Offset
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata


def lineage_of_segments(
    segments: Iterable[RemoteLogSegmentMetadata], leader_epoch: int
) -> Lineage | None:
    """The epochs of a log whose objects have `leader_epoch`; None if it was never on disks.

    `segments` are those whose copies are finished.
    """
    if leader_epoch == LEADER_EPOCH:
        return None
    starts: dict[int, int] = {}
    sealed_at = 0
    for segment in segments:
        for epoch, start, end in segment.epoch_ranges():
            if end >= start:  # it has records
                starts[epoch] = min(start, starts.get(epoch, start))
                sealed_at = max(sealed_at, end + 1 if epoch < leader_epoch else 0)
    found = [(leader_epoch, Offset(starts.get(leader_epoch, sealed_at)))]
    for epoch in sorted((each for each in starts if each < leader_epoch), reverse=True):
        if starts[epoch] < found[0][1]:  # else it is of a history that was cut away
            found.insert(0, (epoch, Offset(starts[epoch])))
    return tuple(found)
