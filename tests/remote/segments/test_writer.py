"""What is copied can be read: the object is whole, and its footer one that readers accept."""

from collections.abc import AsyncIterable
from dataclasses import replace

import pytest

from quipu.model.errors import MalformedBytes
from quipu.remote.segments.errors import SegmentDamaged
from quipu.remote.segments.footer import SegmentEpoch
from quipu.runtime.objects.store import Buffer, ObjectInfo
from tests.looped import looped
from tests.remote.segments.builders import CountingStore, MadeSegment, Spec, make_segment, put


class ShortStore(CountingStore):
    """A store that loses the last part of an object, and says so."""

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        kept = [bytes(part) async for part in parts][:-1]
        return await self.put(key, kept)


@looped
async def test_an_object_of_another_size_is_no_copy() -> None:
    """R15, remote.segments.W2: whatever the store answers, its size is compared."""
    made = make_segment([Spec(record_count=3)] * 20)
    with pytest.raises(SegmentDamaged, match="copy the segment again"):
        await put(ShortStore(), made)
    await put(CountingStore(), made)


@looped
async def test_a_footer_that_no_reader_accepts_is_not_written() -> None:
    """R15, remote.segments.W3: epochs that descend are a bug of the caller, found in time."""
    made = make_segment([Spec(record_count=3)] * 20)
    start, log_start = made.segment.name.start_offset, made.segment.log_start
    store = CountingStore()
    for epochs in ((SegmentEpoch(2, start, log_start), SegmentEpoch(1, start + 1, log_start + 1)),
                   (SegmentEpoch(1, start + 2, log_start), SegmentEpoch(2, start, log_start + 1))):
        wrong = MadeSegment(replace(made.segment, epochs=epochs), made.batches, made.data)
        with pytest.raises(MalformedBytes):
            await put(store, wrong)
    assert (await store.list()).objects == ()
