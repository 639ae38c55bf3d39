"""Runs become stored batches: dense, checked, and the same bytes however they were laid out."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.diskless.errors import CorruptObject
from quipu.diskless.tiering.executor import segment_storage
from quipu.diskless.tiering.merge import MergedSegment, merge, segment_to_copy
from quipu.diskless.tiering.plan import PlanRules, SegmentPlan, plan_segments
from quipu.model.ids import Offset
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.memory import MemoryStore
from quipu.storage.derived.producers import ProducerStates
from quipu.wire.record_batch import decode_records, parse_header
from quipu.wire.stored_batch import Fault, check_stored, kafka_batch, walk_headers
from tests.diskless.tiering.made import START, TOPIC, Layout, batches, laid_out

RULES = PlanRules(1 << 30, 1 << 62)


def planned(layout: Layout) -> SegmentPlan:
    (plan,) = plan_segments(layout.runs, RULES, topic=TOPIC, claim_epoch=1)
    return plan


def merged(layout: Layout) -> MergedSegment:
    plan = planned(layout)
    return merge(plan, layout.parts(plan.runs))


@given(batches(), st.lists(st.integers(0, 12)), st.lists(st.integers(0, 12)))
def test_any_split_into_objects_gives_the_same_bytes(
    made: list[bytes], cuts: list[int], others: list[int]
) -> None:
    """D8: the segment depends on batches and offsets alone (diskless.G1)."""
    first, second = laid_out(made, cuts), laid_out(made, others, padding=9)

    assert merged(first) == merged(second)
    assert planned(first)._replace(runs=()) == planned(second)._replace(runs=())


@given(batches(), st.lists(st.integers(0, 12)))
def test_the_batches_are_those_that_were_produced(made: list[bytes], cuts: list[int]) -> None:
    """D8: dense offsets, leader epoch 0, every checksum right, the same records (diskless.G2)."""
    data, newest, snapshot = merged(laid_out(made, cuts))

    offset = START
    for (position, found), given_ in zip(walk_headers(data), made, strict=True):
        assert not isinstance(found, Fault)
        assert check_stored(data, position) == found
        assert (found.base_offset, found.log_offset, found.leader_epoch) == (offset, offset, 0)
        stored = list(decode_records(kafka_batch(data, position, found), size_max=1 << 20))
        before = list(decode_records(memoryview(given_), size_max=1 << 20))
        assert [each[:4] for each in stored] == [each[:4] for each in before]
        assert [each.offset for each in stored] == list(range(offset, offset + len(before)))
        offset += len(before)
    assert newest == max(parse_header(memoryview(each)).max_timestamp for each in made)
    states = ProducerStates.decode(snapshot)
    assert states.encode() == snapshot  # the format of a log's checkpoint


@settings(max_examples=25)
@given(batches(), st.data())
def test_a_changed_byte_is_found(made: list[bytes], data: st.DataObject) -> None:
    """D8: damaged bytes do not reach the tier (diskless.G2)."""
    layout = laid_out(made, [])
    run = layout.runs[0]
    spared = {at + i for at in _starts(made) for i in (*range(8), *range(12, 16))}  # set anyway
    at = data.draw(st.sampled_from([i for i in range(run.size) if i not in spared]))
    broken = bytearray(layout.objects[run.key])
    broken[run.position + at] ^= 1 << data.draw(st.integers(0, 7))
    layout.objects[run.key] = bytes(broken)

    with pytest.raises(CorruptObject, match="objects/0-0"):
        merged(layout)


def _starts(made: list[bytes]) -> list[int]:
    return [sum(map(len, made[:count])) for count in range(len(made))]


@given(batches(), st.sampled_from(["short", "count", "end"]))
def test_a_run_that_is_not_what_the_control_plane_says_is_found(
    made: list[bytes], lie: str
) -> None:
    """D8: sizes, batches and offsets are compared with the run (diskless.G2)."""
    layout = laid_out(made, [])
    plan = planned(layout)
    parts = layout.parts(plan.runs)
    run = plan.runs[0]
    if lie == "short":
        parts = [parts[0][:-1]]
    elif lie == "count":
        plan = plan._replace(runs=(run._replace(batch_count=run.batch_count + 1),),
                             size=plan.size + 16)
    else:
        plan = plan._replace(runs=(run._replace(end_offset=Offset(run.end_offset + 1)),))

    with pytest.raises(CorruptObject):
        merge(plan, parts)


@settings(max_examples=10)
@given(batches(), st.lists(st.integers(0, 12)), st.booleans())
def test_the_object_of_a_segment_is_the_same_bytes(
    made: list[bytes], cuts: list[int], compress: bool
) -> None:
    """D8: two processes that make one segment store the same object."""

    async def stored(layout: Layout) -> bytes:
        store = MemoryStore(SystemClock().now_ms)
        plan = planned(layout)
        segment = segment_to_copy(plan, merge(plan, layout.parts(plan.runs)))
        storage = segment_storage(store, chunk_size=200, compress=compress)
        await storage.copy_log_segment_data(segment)
        return await store.get(segment.name.key)

    assert asyncio.run(stored(laid_out(made, cuts))) == asyncio.run(stored(laid_out(made, [])))
