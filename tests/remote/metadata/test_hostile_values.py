"""Stored metadata that somebody has changed: it is loaded as it is, or refused; nothing breaks."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from quipu.model.errors import QuipuError
from quipu.remote.metadata.changes import MetadataStorage, load_cache, load_header
from quipu.remote.metadata.epoch_state import SegmentReference
from quipu.remote.metadata.errors import CorruptMetadata
from quipu.remote.metadata.partition_cache import PartitionCache
from quipu.remote.metadata.segment_metadata import INT32_MAX, INT64_MAX, TopicIdPartition
from quipu.remote.metadata.serde import EpochReference, KafkaSerde
from quipu.remote.metadata.states import COPY_FINISHED, DELETE_FINISHED
from quipu.remote.metadata.storage.keys import PathKeyFactory
from quipu.remote.metadata.storage.memory import MemoryBackend
from tests.looped import looped
from tests.remote.metadata.segments import fresh_partition, segment, update
from tests.remote.metadata.world import manager_of

SERDE, KEYS = KafkaSerde(), PathKeyFactory()


async def stored(partition: TopicIdPartition) -> dict[str, bytes]:
    """All keys of a partition with two leader epochs and three segments, one of them replaced."""
    backend = MemoryBackend()
    manager = await manager_of(backend)
    await manager.on_partition_leadership_changes({partition: 4}, ())
    for start, end, epochs in ((0, 9, {1: 0}), (0, 19, {1: 0, 2: 15}), (20, 29, {2: 20})):
        added = segment(partition, start, end, epochs)
        await manager.add_remote_log_segment_metadata(added)
        await manager.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
    return dict(await backend.get_like(KEYS.partition_key(partition)))


async def loaded(partition: TopicIdPartition, values: dict[str, bytes]) -> PartitionCache:
    backend = MemoryBackend()
    for key, value in values.items():
        await backend.create(key, value)
    storage = MetadataStorage(backend, KEYS, SERDE)
    assert await load_header(storage, partition) is not None
    return await load_cache(storage, partition)


def changed(value: bytes) -> Iterator[bytes]:
    """A value with each byte changed, each beginning of it, and more than it."""
    for at in range(len(value)):
        yield value[:at]
        for bit in (0x01, 0x02, 0x80, 0xFF):
            yield value[:at] + bytes([value[at] ^ bit]) + value[at + 1:]
    yield value + b"\0"
    yield bytes(1 << 20)


@looped
async def test_changed_bytes_are_refused_or_are_another_value() -> None:
    """R7, R15: remote.S1, remote.C2: whatever is loaded keeps the rules."""
    partition = fresh_partition()
    values = await stored(partition)
    refused = accepted = 0
    for key, value in values.items():
        for wrong in changed(value):
            try:
                cache = await loaded(partition, {**values, key: wrong})
            except QuipuError:
                refused += 1
            else:
                cache.invariants()
                accepted += 1
    assert refused > accepted > 0  # sizes and times may be others


@looped
async def test_entries_that_belong_elsewhere_or_lack_others() -> None:
    """R7: remote.C2: each key without the others, and with the values of others."""
    partition = fresh_partition()
    values = await stored(partition)
    for key in values.keys() - {KEYS.header_key(partition)}:
        with pytest.raises(QuipuError):
            await loaded(partition, {each: value for each, value in values.items() if each != key})
        for value in values.values():
            if value != values[key]:
                with pytest.raises(QuipuError):
                    await loaded(partition, {**values, key: value})


@looped
async def test_extreme_numbers() -> None:
    """R7: the largest that the format has are values as any; a finished deletion is none."""
    partition = fresh_partition()
    far = replace(
        segment(partition, INT64_MAX - 1, INT64_MAX - 1, {INT32_MAX: INT64_MAX - 1},
                size=INT32_MAX), state=COPY_FINISHED, max_timestamp_ms=INT64_MAX,
        event_timestamp_ms=INT64_MAX, broker_id=INT32_MAX)
    backend = MemoryBackend()
    manager = await manager_of(backend)
    await manager.on_partition_leadership_changes({partition: INT32_MAX}, ())
    await manager.add_remote_log_segment_metadata(
        segment(partition, far.start_offset, far.end_offset, {INT32_MAX: far.start_offset},
                id=far.segment_id.id, size=INT32_MAX))
    await manager.update_remote_log_segment_metadata(update(far, COPY_FINISHED))
    assert await manager.remote_log_size(partition, INT32_MAX) == INT32_MAX
    assert await manager.remote_log_segment_metadata(partition, INT32_MAX, INT64_MAX) is None
    found = await manager.remote_log_segment_metadata(partition, INT32_MAX, INT64_MAX - 1)
    assert found is not None
    for offset, epoch in ((-1, 0), (0, -1), (2**80, 0), (0, 2**80)):
        assert await manager.remote_log_segment_metadata(partition, epoch, offset) is None
    values = dict(await backend.get_like(KEYS.partition_key(partition)))
    key = KEYS.segment_key(partition, far.segment_id.id)
    with pytest.raises(CorruptMetadata):
        await loaded(partition, {
            **values, key: SERDE.serialize(replace(far, state=DELETE_FINISHED))})
    reference = SegmentReference(0, INT64_MAX, far.segment_id.id)
    with pytest.raises(CorruptMetadata):
        await loaded(partition, {**values, KEYS.reference_key(partition, 3, 0): SERDE.serialize(
            EpochReference(3, reference))})
