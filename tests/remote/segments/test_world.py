"""Segments in the simulated world: a store that refuses, delays and loses responses, by a seed."""

from uuid import UUID

import pytest

from quipu.remote.segments.orphans import find_orphans
from quipu.remote.segments.writer import CopyOptions
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.store import ObjectStore
from quipu.sim.twins.objects import StoreFaults
from quipu.sim.world import World
from tests.contract.object_store.stores import Idle
from tests.remote.segments.builders import (
    MadeSegment,
    Spec,
    joined,
    make_segment,
    put,
    reader_of,
)

COPIES = 12
GRACE_MS = 60_000
ATTEMPTS_MAX = 200


def made_again(copy: int, attempt: int) -> MadeSegment:
    """The same segment under a new id, as a copy that is repeated."""
    specs = [Spec(record_count=1 + number % 3, value_size=50 * copy) for number in range(20)]
    name = make_segment([Spec()]).segment.name
    return make_segment(specs, name._replace(segment_id=UUID(int=copy * 1000 + attempt + 1)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_copies_and_reads_under_faults(seed: int) -> None:
    """R15: repeated until they succeed; all is read back; what failed is found as an orphan."""
    world = World(seed)
    machine = world.machine("n1", lambda _: Idle())
    machine.boot()
    world.bucket.faults = StoreFaults(
        slow=0.1, slow_seconds_max=20.0, refuse=0.3, lose_answer=0.2)
    done: list[bool] = []

    async def patiently(store: ObjectStore, copy: int) -> UUID:
        """Copy a segment, and read it from its first to its last offset."""
        for attempt in range(ATTEMPTS_MAX):
            made = made_again(copy, attempt)
            try:
                pointer = await put(store, made, CopyOptions(chunk_size=500))
                break
            except StoreUnavailable:
                continue  # it may be there, and is never used
        reader = reader_of(store, made, pointer, read_ahead=1)
        offset = made.segment.name.start_offset
        for _ in range(ATTEMPTS_MAX):
            try:
                found = joined(await reader.read(offset, 400, min_one=True))
            except StoreUnavailable:
                continue
            assert found == made.expected(offset, 400, min_one=True)
            offset = next(each.end_offset for each in made.data_batches
                          if made.expected(offset, 400, min_one=True).endswith(each.stored[16:]))
            if offset == made.segment.end_offset:
                return made.segment.name.segment_id
        raise AssertionError("never read")

    async def work() -> None:
        store = machine.objects
        known = {await patiently(store, copy) for copy in range(COPIES)}
        world.bucket.faults = StoreFaults()
        objects = (await store.list()).objects
        now_ms = max(each.modified_ms for each in objects) + GRACE_MS + 1
        orphans = find_orphans(objects, known, now_ms=now_ms, grace_ms=GRACE_MS)
        assert len(objects) == len(known) + len(orphans)
        assert orphans  # some responses were lost
        assert find_orphans(objects, known, now_ms=now_ms, grace_ms=1000 * GRACE_MS) == []
        await store.delete([each.info.key for each in orphans])
        assert len((await store.list()).objects) == COPIES
        done.append(True)

    world.run_on(machine, work, "test")
    world.run_until(lambda: bool(done), 36_000, "done")
    world.end()
