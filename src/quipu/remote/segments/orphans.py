"""Finds objects that no metadata refers to: left by copies that failed or were repeated.

Pure: the caller lists the store and the metadata, in this order.  An object of a copy that is under
way has no finished metadata yet, so only objects older than a grace period are orphans; it must be
longer than any copy may take, plus the difference between the store's clock and this one.

Invariant
    remote.segments.O1  an object is an orphan only if its key is that of a segment, no metadata in
                        any state has its id, and it is older than the grace period by the store's
                        own time
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple
from uuid import UUID

from quipu.remote.segments.names import SegmentName, find_name
from quipu.runtime.objects.store import NO_TIME, ObjectInfo


class OrphanObject(NamedTuple):
    """An object that may be deleted."""

    name: SegmentName
    info: ObjectInfo


def find_orphans(
    objects: Iterable[ObjectInfo], known: AbstractSet[UUID], *, now_ms: int, grace_ms: int
) -> list[OrphanObject]:
    """Which of `objects` are orphans, given the segment ids that metadata has in any state."""
    assert grace_ms >= 0, grace_ms
    found = []
    for info in objects:
        name = find_name(info.key)
        if name is None or name.segment_id in known:  # remote.segments.O1
            continue
        if info.modified_ms != NO_TIME and info.modified_ms < now_ms - grace_ms:
            found.append(OrphanObject(name, info))
    return found
