"""A change of a partition as operations on keys, and a partition's cache from its entries.

One event costs one key for the segment, two for each leader epoch that it moves in, and one more
for an epoch whose highest offset grows; a replaced segment costs two, once.  None of it depends on
how many segments there are.

Invariant
    remote.L1  applying a change to a cache, or storing its operations and loading them, gives the
               same cache

Not here: carrying the operations out (leading.py).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.remote.metadata.epoch_state import EpochChange
from quipu.remote.metadata.errors import CorruptMetadata
from quipu.remote.metadata.partition_cache import PartitionCache, SegmentChange
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from quipu.remote.metadata.serde import (
    EpochHeader,
    EpochReference,
    MetadataSerde,
    PartitionHeader,
    UnreferencedSegment,
    read_value,
)
from quipu.remote.metadata.states import DELETE_FINISHED
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    KeyValue,
    MetadataStorageBackend,
    Operation,
    RemoveKey,
    UpdateKey,
    walk,
)
from quipu.remote.metadata.storage.keys import MetadataKeyFactory

WALK_TURN: Final = 100  # entries that are decoded before other tasks get the loop: 3 ms


class MetadataStorage(NamedTuple):
    """A backend, with its keys and the format of its values."""

    backend: MetadataStorageBackend
    keys: MetadataKeyFactory
    serde: MetadataSerde


def change_operations(
    storage: MetadataStorage, cache: PartitionCache, change: SegmentChange
) -> list[Operation]:
    """The operations that store `change`, which `cache` has planned and not applied yet."""
    partition, segment = cache.partition, change.after.segment_id.id
    key = storage.keys.segment_key(partition, segment)
    made: list[Operation]
    if change.after.state is DELETE_FINISHED:
        made = [RemoveKey(key)]
    elif change.before is None:
        made = [CreateKey(key, storage.serde.serialize(change.after))]
    else:
        made = [UpdateKey(key, storage.serde.serialize(change.after))]
    for epoch_change in change.epochs:
        made += _epoch_operations(storage, cache, epoch_change)
    return made


def _epoch_operations(
    storage: MetadataStorage, cache: PartitionCache, change: EpochChange
) -> list[Operation]:
    keys, serde, partition, epoch = storage.keys, storage.serde, cache.partition, change.epoch
    state = cache.epoch(epoch)
    made: list[Operation] = [
        RemoveKey(keys.reference_key(partition, epoch, start)) for start in change.removed_starts]
    made += [RemoveKey(keys.unreferenced_key(partition, epoch, segment))
             for segment in change.removed_unreferenced]
    made += [CreateKey(keys.unreferenced_key(partition, epoch, segment),
                       serde.serialize(UnreferencedSegment(epoch, segment)))
             for segment in change.added_unreferenced]
    if (reference := change.set_reference) is not None:
        is_replaced = state is not None and state.reference_at(reference.start) is not None
        made.append((UpdateKey if is_replaced else CreateKey)(
            keys.reference_key(partition, epoch, reference.start),
            serde.serialize(EpochReference(epoch, reference))))
    if change.highest is not None:
        is_known = state is not None and state.highest is not None
        made.append((UpdateKey if is_known else CreateKey)(
            keys.epoch_header_key(partition, epoch),
            serde.serialize(EpochHeader(epoch, change.highest))))
    return made


async def load_header(
    storage: MetadataStorage, partition: TopicIdPartition
) -> tuple[bytes, PartitionHeader] | None:
    """The header of a partition, and its bytes; None if there is none."""
    key = storage.keys.header_key(partition)
    stored = await storage.backend.get(key)
    if stored is None:
        return None
    header = read_value(storage.serde, PartitionHeader, key, stored)
    if header.partition != partition:
        raise CorruptMetadata(f"{key}: it is the header of {header.partition}; restore it")
    return stored, header


async def load_cache(storage: MetadataStorage, partition: TopicIdPartition) -> PartitionCache:
    """All that is stored of a partition (remote.L1); nobody may write meanwhile."""
    cache = PartitionCache(partition)
    async for each in walk_in_turns(storage, storage.keys.segments_key(partition)):
        cache.load_segment(read_segment(storage, partition, each))
    async for each in walk_in_turns(storage, storage.keys.epochs_key(partition)):
        _load_epoch_entry(storage, cache, each)
    cache.check_loaded()
    return cache


async def walk_in_turns(storage: MetadataStorage, parent: str) -> AsyncIterator[KeyValue]:
    """All entries below `parent`; other tasks get the loop after every few of them."""
    number = 0
    async for each in walk(storage.backend, parent):
        yield each
        number += 1
        if number % WALK_TURN == 0:
            await asyncio.sleep(0)


def read_segment(
    storage: MetadataStorage, partition: TopicIdPartition, stored: KeyValue
) -> RemoteLogSegmentMetadata:
    """A stored segment; raises if it is another one than its key says."""
    segment = read_value(storage.serde, RemoteLogSegmentMetadata, *stored)
    if segment.segment_id.partition != partition or (
            storage.keys.segment_key(partition, segment.segment_id.id) != stored.key):
        raise _misplaced(stored.key, segment.segment_id)
    return segment


def _load_epoch_entry(
    storage: MetadataStorage, cache: PartitionCache, stored: KeyValue
) -> None:
    """Take in an entry of a leader epoch; its value says which, and must belong to its key."""
    keys, partition = storage.keys, cache.partition
    try:
        value = storage.serde.deserialize(stored.value)
    except MalformedBytes as error:
        raise MalformedBytes(f"stored value of {stored.key!r}: {error}") from error
    match value:
        case EpochHeader(epoch, highest):
            expected = keys.epoch_header_key(partition, epoch)
            cache.load_highest(epoch, highest)
        case EpochReference(epoch, reference):
            expected = keys.reference_key(partition, epoch, reference.start)
            cache.load_reference(epoch, reference)
        case UnreferencedSegment(epoch, segment):
            expected = keys.unreferenced_key(partition, epoch, segment)
            cache.load_unreferenced(epoch, segment)
        case _:
            raise _misplaced(stored.key, type(value).__name__)
    if expected != stored.key:
        raise _misplaced(stored.key, value)


def _misplaced(key: str, value: object) -> CorruptMetadata:
    return CorruptMetadata(f"{key}: holds {value}, which belongs elsewhere; restore it from a "
                           "backup")
