"""Checkers of tiered storage in a world of nodes.

    fenced         metadata is changed only by the leader whose header is stored; the epoch of
                   headers never falls
    once           of finished segments with records of one leader epoch, no two have an offset in
                   common
    has-object     a finished segment has its object; none is deleted while it is finished
    stored-first   what a leader of a partition knows of its metadata was committed before
    readable       every record that has left the disk of a serving member, and every record that
                   its log says is in the tier, is in a finished segment, from the log start on
    log-start      the log starts at 0, or where DeleteRecords or retention.bytes allow it
    settled        in the end, objects and finished segments are the same, and nothing else is
                   stored of them

The truth is the metadata topic itself: `MetadataReplay` applies each of its commands once, when it
is first seen to be committed.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from quipu.broker.metadata_topic.codec import decode_command
from quipu.model.batch_types import REMOTE_METADATA
from quipu.model.ids import LogOffset
from quipu.model.topics import REMOTE_LOG_METADATA
from quipu.remote.metadata.errors import ExpectationFailed, KeyExists, KeyNotFound
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from quipu.remote.metadata.serde import KafkaSerde, PartitionHeader
from quipu.remote.metadata.states import COPY_FINISHED, RemoteLogSegmentState
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    ExpectValue,
    Operation,
    RemoveKey,
    UpdateKey,
)
from quipu.remote.metadata.storage.entry_table import EntryTable
from quipu.remote.segments.names import SegmentName, find_name
from quipu.sim.twins.objects import SimBucket
from quipu.sim.world import Machine, Violation
from quipu.sim.worlds.node_checkers import PartitionView
from quipu.wire.record_batch import decode_records

RECORDS_SIZE_MAX: Final = 1 << 24
LOOK_SECONDS: Final = 0.01  # between two looks at what one machine knows
T = TypeVar("T")

# The managers of a machine's process, and the partitions that each leads.
LedPartitions = Callable[[Machine], Sequence[tuple[RemoteLogMetadataManager, TopicIdPartition]]]


class MetadataReplay:
    """The metadata of remote segments that is committed, and checks of its changes."""

    def __init__(self, bucket: SimBucket) -> None:
        self.segments: dict[UUID, RemoteLogSegmentMetadata] = {}  # in any state
        self.ever: set[tuple[UUID, RemoteLogSegmentState]] = set()  # that was ever committed
        self._bucket = bucket
        self._serde = KafkaSerde()
        self._headers: dict[TopicIdPartition, PartitionHeader] = {}
        self._tables: dict[str, EntryTable] = {}  # by partition of the topic
        self._ends: dict[str, int] = {}  # log offsets up to which they are applied

    def finished(self, name: str) -> list[RemoteLogSegmentMetadata]:
        """The finished segments of a partition, by start offset."""
        return sorted((each for each in self.segments.values()
                       if each.state is COPY_FINISHED and name_of(each) == name),
                      key=lambda each: each.order)

    def read(self, view: PartitionView) -> bool:
        """Apply the commands that are newly committed; returns whether there are any."""
        end = self._ends.get(view.name, 0)
        if view.committed <= end:
            return False
        if view.log.first_log > end:
            raise Violation(f"{view.name}: commands before {view.log.first_log} were dropped "
                            f"before they were known to be committed beyond {end}")
        is_changed = False
        for stored in view.log.read_stored(LogOffset(end)):
            header = stored.header
            if header.next_log_offset > view.committed:
                break
            end = header.next_log_offset
            if header.batch_type == REMOTE_METADATA:
                for record in decode_records(stored.batch, size_max=RECORDS_SIZE_MAX):
                    is_changed |= self._apply(view.name, record.value or b"")
        self._ends[view.name] = end
        return is_changed

    def _apply(self, name: str, command: bytes) -> bool:
        """Apply one command; returns whether it had an effect."""
        operations = decode_command(command)
        try:
            self._tables.setdefault(name, EntryTable()).apply(operations)
        except (ExpectationFailed, KeyExists, KeyNotFound):
            return False
        written = [self._serde.deserialize(each.value) for each in operations
                   if isinstance(each, CreateKey | UpdateKey)]
        for value in written:
            if isinstance(value, PartitionHeader):
                self._lead(value)
        for value in written:
            if isinstance(value, RemoteLogSegmentMetadata):
                self._store(value)
        self._remove(operations)
        return any(not isinstance(each, ExpectValue) for each in operations)

    def _lead(self, header: PartitionHeader) -> None:
        last = self._headers.get(header.partition)
        if last is not None and (header.leader_epoch, header.broker_id) != (
                last.leader_epoch, last.broker_id) and header.leader_epoch <= last.leader_epoch:
            raise Violation(f"fenced: {header} replaces {last}")
        self._headers[header.partition] = header

    def _store(self, segment: RemoteLogSegmentMetadata) -> None:
        header = self._headers.get(segment.segment_id.partition)
        if header is None or header.broker_id != segment.broker_id:
            raise Violation(f"fenced: node {segment.broker_id} stored {segment.segment_id} as "
                            f"{segment.state.name}; the leader is {header}")
        self.segments[segment.segment_id.id] = segment
        self.ever.add((segment.segment_id.id, segment.state))
        if segment.state is COPY_FINISHED:
            self._check_once(segment)
            if object_key(segment) not in keys_of(self._bucket):
                raise Violation(f"has-object: {segment.segment_id} is finished, and has none")

    def _remove(self, operations: Sequence[Operation]) -> None:
        for each in operations:
            if isinstance(each, RemoveKey) and "/segments/" in each.key:
                self.segments.pop(UUID(each.key.rpartition("/")[2]), None)

    def _check_once(self, segment: RemoteLogSegmentMetadata) -> None:
        ranges = list(segment.epoch_ranges())
        for other in self.finished(name_of(segment)):
            if other.segment_id != segment.segment_id and any(
                    one.epoch == two.epoch and one.start <= two.end and two.start <= one.end
                    for one in ranges for two in other.epoch_ranges()):
                raise Violation(f"once: {segment.segment_id}, {ranges}, and {other.segment_id}, "
                                f"{list(other.epoch_ranges())}, are both finished")


class TierChecker:
    """Compares logs, metadata and objects of one world."""

    def __init__(
        self, bucket: SimBucket, led: LedPartitions, now: Callable[[], float],
        may_start: Callable[[PartitionView, int], bool],
    ) -> None:
        """`may_start` tells whether the log of a view may start at an offset above 0."""
        self.metadata = MetadataReplay(bucket)
        self.log_starts: dict[str, int] = {}  # the highest that a leader had
        self.most_tiered: dict[str, int] = {}  # offsets below must be in the tier
        self._bucket = bucket
        self._led = led
        self._now = now
        self._may_start = may_start
        self._looked: dict[str, float] = {}  # when, by machine
        self._wrong: Violation | None = None
        bucket.on_delete = self._deleted

    # -- after each step

    def look(self, machine: Machine | None) -> None:
        if self._wrong is not None:
            raise self._wrong
        if machine is None or machine.is_dead:
            return
        if self._now() - self._looked.get(machine.name, -1.0) >= LOOK_SECONDS:
            self._looked[machine.name] = self._now()
            for manager, partition in self._led(machine):
                self._check_known(machine, manager, partition)

    def _check_known(
        self, machine: Machine, manager: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        segments = at_once(manager.list_remote_log_segments(partition))
        for each in segments or ():
            if (each.segment_id.id, each.state) not in self.metadata.ever:
                raise Violation(f"stored-first: {machine.name} knows {each.segment_id} as "
                                f"{each.state.name}, which is not committed")

    def changed(self, view: PartitionView) -> None:
        """A partition of some machine has changed."""
        if view.name.startswith(REMOTE_LOG_METADATA):
            if self.metadata.read(view):
                for name in self.most_tiered:
                    self._check_readable(name)
        elif view.log.config.is_tiered and view.is_serving:
            self._check_log(view)

    def _check_log(self, view: PartitionView) -> None:
        log, name = view.log, view.name
        start = int(log.log_start_offset)
        if start > self.log_starts.get(name, 0):
            if not self._may_start(view, start):
                raise Violation(f"log-start: {name} starts at {start}, which was not asked for")
            self.log_starts[name] = start
        tiered = max(log.local_start_offset, log.tiered.end_offset)
        if tiered > self.most_tiered.get(name, 0):
            self.most_tiered[name] = int(tiered)
            self._check_readable(name)

    def _check_readable(self, name: str) -> None:
        end = self.log_starts.get(name, 0)
        for segment in self.metadata.finished(name):
            if segment.start_offset <= end:
                end = max(end, segment.end_offset + 1)
        if end < self.most_tiered[name]:
            raise Violation(f"readable: {name}: no finished segment has {end}; what is before "
                            f"{self.most_tiered[name]} is only in the tier, or said to be there")

    def _deleted(self, keys: Sequence[str]) -> None:
        """The store is about to delete objects: called outside of any checker."""
        for key in keys:
            name = find_name(key)
            found = None if name is None else self.metadata.segments.get(name.segment_id)
            if found is not None and found.state is COPY_FINISHED:
                self._wrong = self._wrong or Violation(
                    f"has-object: {key} is deleted, and the metadata refers to it")

    # -- in the end

    def unsettled(self) -> str:
        """How objects and metadata differ, for people; empty if they do not."""
        segments = self.metadata.segments.values()
        for each in segments:
            if each.state is not COPY_FINISHED:
                return f"{each.segment_id} is {each.state.name}"
        differing = keys_of(self._bucket) ^ {object_key(each) for each in segments}
        if differing:
            return f"objects and metadata differ: {sorted(differing)}"
        return ""


def keys_of(bucket: SimBucket) -> set[str]:
    """The keys of all objects that are segments."""
    found: set[str] = set()
    after: str | None = ""
    while after is not None:
        page = bucket.objects.list("", after=after or None)
        found |= {info.key for info in page.objects if find_name(info.key) is not None}
        after = page.after
    return found


def object_key(segment: RemoteLogSegmentMetadata) -> str:
    """The key of a segment's object."""
    partition = segment.segment_id.partition
    return SegmentName(partition.topic_id, partition.partition, segment.start_offset,
                       segment.segment_id.id).key


def name_of(segment: RemoteLogSegmentMetadata) -> str:
    """The partition of a segment, as views name it."""
    partition = segment.segment_id.partition
    return f"{partition.topic}-{partition.partition}"


def at_once(work: Coroutine[Any, Any, T]) -> T | None:
    """The result of a coroutine that waits for nothing; None if it would wait."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    with suppress(RuntimeError):
        work.close()
    return None
