"""Makes one segment: reads its runs, merges them, and stores the segment.

Whoever does it needs no right to: nothing refers to the object until its metadata says that the
copy is finished.  It may be done twice, also at the same time, because both make the same bytes
(diskless.G1).
"""

from functools import partial

from crc32c import crc32c

from quipu.diskless.run_bytes import read_runs
from quipu.diskless.tiering.merge import merge, segment_name, segment_to_copy
from quipu.diskless.tiering.plan import SegmentPlan
from quipu.model.errors import MalformedBytes
from quipu.model.partition_log import RunLong
from quipu.remote.segments.footer import decode_footer
from quipu.remote.segments.pointer import TRAILER_SIZE, decode_trailer
from quipu.remote.segments.remote_storage import RemoteStorage
from quipu.runtime.objects.errors import InvalidObjectRequest, ObjectNotFound
from quipu.runtime.objects.store import ByteRange, ObjectStore


async def copy_segment(
    plan: SegmentPlan, objects: ObjectStore, storage: RemoteStorage, run: RunLong
) -> bytes:
    """Store the segment of `plan`; returns its custom metadata.

    Raises `ObjectNotFound` if a run has moved since it was planned: plan again.
    """
    parts = await read_runs(objects, plan.runs)
    merged = await run(partial(merge, plan, parts))
    return await storage.copy_log_segment_data(segment_to_copy(plan, merged))


async def find_copy(store: ObjectStore, plan: SegmentPlan) -> bytes | None:
    """The custom metadata of a segment that is stored already; None if it is not there, or another.

    An object is visible whole or not at all (runtime.O1): so its end tells that all of it is there.
    """
    name = segment_name(plan)
    try:
        size = (await store.head(name.key)).size
        (end,) = await store.get_ranges(name.key, [ByteRange(max(0, size - TRAILER_SIZE), size)])
        pointer = decode_trailer(end)
        (data,) = await store.get_ranges(name.key, [ByteRange(
            pointer.footer_position, pointer.footer_position + pointer.footer_size)])
        footer = decode_footer(data, position=pointer.footer_position)
    except (ObjectNotFound, InvalidObjectRequest, MalformedBytes):
        return None
    is_whole = pointer.object_size == size and crc32c(data) == pointer.footer_crc
    is_same = (footer.name == name and footer.end_offset == plan.end_offset
               and footer.segment_size == plan.size)
    return pointer.encode() if is_whole and is_same else None
