"""Two logs, one fed with the other's entries, through everything that may happen to either."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, BatchType
from quipu.model.errors import MalformedBytes
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.log import Log
from quipu.storage.log_directory import NO_RECOVERY_POINT, LogDirectory, RecoveryPoint
from quipu.storage.phases import LogPhase
from quipu.storage.segments.index import decode_index
from quipu.wire.record_batch import Record
from tests.storage.builders import (
    DIRECTORY,
    NOW_MS,
    TOPIC_ID,
    append,
    data_disk,
    read_all,
    segment_names,
)

UNKNOWN = BatchType(200)


@dataclass(slots=True)
class Node:
    """One node: its disk, its log, and what it wrote down of it."""

    node_id: NodeId
    config: LogConfig
    disk: SimDisk
    log: Log
    recovery: RecoveryPoint = NO_RECOVERY_POINT

    def truncating(self, log: Log, log_end: LogOffset) -> None:
        """As the data directory does: forget durably, before anything is cut."""
        flushed = min(log_end, log.flusher.flushed_log)
        self.recovery = RecoveryPoint(flushed, committed_log=min(flushed, log.committed_log))

    def dirtied(self, log: Log) -> None: ...
    def flushed(self, log: Log) -> None: ...
    def committed(self, log: Log) -> None: ...

    def open(self, recovery: RecoveryPoint) -> None:
        directory = LogDirectory(disk=self.disk, path=DIRECTORY, name="t-0", topic_id=TOPIC_ID,
                      node_id=self.node_id)
        self.log = Log(directory, self.config, recovery=recovery, replica=True, now_ms=NOW_MS)
        assert self.log.failure is None, self.log.failure
        self.log.observe(self)


def new_node(number: int, config: LogConfig, *, is_deferred: bool) -> Node:
    disk = data_disk()
    disk.is_deferred = is_deferred
    directory = LogDirectory(disk=disk, path=DIRECTORY, name="t-0", topic_id=TOPIC_ID)
    node = Node(NodeId(number), config, disk, Log(directory, config, replica=True, now_ms=NOW_MS))
    node.open(NO_RECOVERY_POINT)
    return node


def sound_index(disk: SimDisk, path: str) -> bytes | None:
    """The index of a segment, unless a crash took it or a part of it."""
    path = path.removesuffix(".log") + ".index"
    data = disk.read(path) if disk.exists(path) else b""
    try:
        decode_index(memoryview(data))
    except MalformedBytes:
        return None
    return data


class ReplicaMachine(RuleBasedStateMachine):
    """T6, T11, V10, V13, V14, V22: a replica's files are its source's, as far as they go.

    `head` writes, `tail` is fed.  They change places, crash, stop in order, lose their fronts to
    retention; the one that comes back with too much is cut to what the other has.
    """

    @initialize(
        segment_bytes=st.sampled_from([500, 1500, 5000]),
        interval=st.sampled_from([1, 200, 4096]),
        flush_messages=st.sampled_from([1, 3, NEVER]),
        is_deferred=st.booleans(),
        ids=st.sampled_from([(1, 2), (-1, -1)]),
    )
    def begin(
        self,
        segment_bytes: int,
        interval: int,
        flush_messages: int,
        is_deferred: bool,
        ids: tuple[int, int],
    ) -> None:
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval,
                           flush_messages=flush_messages, retention_ms=-1)
        self.head, self.tail = (
            new_node(number, config, is_deferred=is_deferred) for number in ids)
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self._reign()

    def _reign(self) -> None:
        """A new epoch begins with a configuration, as in a chain."""
        self.epoch += 1
        self.head.log.append_records(
            CONFIGURATION, [Record(None, b"members")], epoch=Epoch(self.epoch), now_ms=NOW_MS)
        self.sequences = {info.producer_id: info.last_sequence + 1
                          for info in self.head.log.producers.infos()}

    # --- what the head writes

    @rule(values=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
          count=st.integers(1, 6))
    def append(self, values: list[bytes], count: int) -> None:
        for _ in range(count):
            append(self.head.log, values, epoch=self.epoch)

    @rule(producer_id=st.integers(0, 2), count=st.integers(1, 3))
    def append_idempotent(self, producer_id: int, count: int) -> None:
        for _ in range(count):
            sequence = self.sequences.get(producer_id, 0)
            append(self.head.log, [b"a", b"b"], producer=(producer_id, 0, sequence),
                   epoch=self.epoch)
            self.sequences[producer_id] = sequence + 2

    @rule(batch_type=st.sampled_from([CONFIGURATION, UNKNOWN]), count=st.integers(1, 3))
    def append_internal(self, batch_type: BatchType, count: int) -> None:
        self.head.log.append_records(batch_type, [Record(None, b"c")] * count,
                                     epoch=Epoch(self.epoch), now_ms=NOW_MS)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        log = self.head.log
        before = data.draw(st.integers(0, int(log.high_watermark)))
        log.delete_records(Offset(before), NOW_MS)

    @rule()
    def roll(self) -> None:
        self.head.log.roll(NOW_MS)

    # --- how it travels

    @rule(max_bytes=st.sampled_from([1, 300, 2000, 1 << 20]), turns=st.integers(1, 5))
    def copy(self, max_bytes: int, turns: int) -> None:
        head, tail = self.head.log, self.tail.log
        for _ in range(turns):
            if tail.log_end < head.first_log:
                first = head.read_entries(head.first_log, 1)[0]
                assert first.batch_type == CHECKPOINT
                tail.restart(memoryview(bytes(first.data)), NOW_MS,
                             log_start=head.first_log)
            for entry in head.read_entries(tail.log_end, max_bytes):
                borrowed = memoryview(bytearray(entry.data))
                tail.append_entry(borrowed, NOW_MS)
                borrowed.release()
                assert (tail.log_end, tail.end_offset) == (entry.next_log, entry.next_offset)
            tail.note_committed(tail.log_end)

    # --- what happens to nodes

    @rule(is_head=st.booleans())
    def flush(self, is_head: bool) -> None:
        (self.head if is_head else self.tail).log.flusher.flush_now()

    @rule(is_head=st.booleans())
    def syncs_end(self, is_head: bool) -> None:
        (self.head if is_head else self.tail).disk.run_pending()

    @rule(is_head=st.booleans())
    def remember(self, is_head: bool) -> None:
        node = self.head if is_head else self.tail
        flushed = node.log.flusher.flushed_log
        node.recovery = RecoveryPoint(
            flushed, committed_log=min(flushed, node.log.committed_log))

    @rule(is_head=st.booleans())
    def retain(self, is_head: bool) -> None:
        node = self.head if is_head else self.tail
        start = node.log.log_end
        node.log.apply_retention(NOW_MS, high_watermark=node.log.end_offset, may_roll=is_head)
        assert is_head or node.log.log_end == start

    @rule(is_head=st.booleans())
    def close_and_open(self, is_head: bool) -> None:
        node = self.head if is_head else self.tail
        ends = node.log.log_end, node.log.end_offset, node.log.log_start_offset
        clean = node.log.close()
        node.recovery = RecoveryPoint(clean.log_end if clean else 0)
        node.open(NO_RECOVERY_POINT if clean is None
                  else RecoveryPoint(clean.log_end, clean, is_current=True))
        assert (node.log.log_end, node.log.end_offset, node.log.log_start_offset) == ends
        if is_head:
            self._reign()

    @rule(is_head=st.booleans(), seed=st.integers(0, 2**32))
    def crash(self, is_head: bool, seed: int) -> None:
        node = self.head if is_head else self.tail
        flushed = node.log.flusher.flushed_log
        node.disk.crash(SeededRng(seed))
        node.open(node.recovery)
        assert node.log.log_end >= flushed
        assert node.log.committed_log <= node.log.log_end
        if is_head:
            self._resume()

    @rule()
    def change_places(self) -> None:
        """The head is gone, and comes back with records that only it had."""
        self.head, self.tail = self.tail, self.head
        self._resume()

    def _resume(self) -> None:
        """The head goes on from what it has; what the other has more of is cut, and kept."""
        head, tail = self.head.log, self.tail.log
        if tail.log_end > head.log_end:
            if head.log_end <= tail.first_log:
                self._empty_tail()
            else:
                cut = tail.truncate(head.log_end, NOW_MS)
                assert cut is not None
                assert cut.log_offset == head.log_end
                assert sum(self.tail.disk.size(path) for path in cut.kept) == cut.size_bytes
        self._reign()

    def _empty_tail(self) -> None:
        """Nothing is common: the disk is emptied."""
        fresh = new_node(self.tail.node_id, self.tail.config,
                         is_deferred=self.tail.disk.is_deferred)
        self.tail = fresh

    # --- what always holds

    @precondition(lambda self: hasattr(self, "head"))
    @invariant()
    def files_are_the_same_as_far_as_they_go(self) -> None:
        head, tail = self.head, self.tail
        names_head, names_tail = segment_names(head.disk), segment_names(tail.disk)
        first = f"{DIRECTORY}/{head.log.first_log:020d}.log"
        for name in names_tail:
            if name >= first:
                assert name in names_head
                assert head.disk.read(name).startswith(tail.disk.read(name)), name
        for name in set(names_head[:-1]) & set(names_tail[:-1]):
            index_head, index_tail = sound_index(head.disk, name), sound_index(tail.disk, name)
            assert index_head == index_tail or None in (index_head, index_tail), name

    @precondition(lambda self: hasattr(self, "head"))
    @invariant()
    def state_is_the_same_at_the_same_end(self) -> None:
        head, tail = self.head.log, self.tail.log
        if tail.log_end != head.log_end or tail.phase is LogPhase.EMPTY:
            return
        assert tail.end_offset == head.end_offset
        assert [(info.producer_id, info.last_sequence) for info in tail.producers.infos()] == [
            (info.producer_id, info.last_sequence) for info in head.producers.infos()]
        first = max(head.first_log, tail.first_log)
        assert [item for item in head.epochs.by_log_offset() if item[1] > first] == [
            item for item in tail.epochs.by_log_offset() if item[1] > first]
        assert head.leader_epoch == tail.leader_epoch == self.epoch
        start = max(head.log_start_offset, tail.log_start_offset)
        assert [item for item in read_all(head) if item[0] >= start] == [
            item for item in read_all(tail) if item[0] >= start]

    @precondition(lambda self: hasattr(self, "head"))
    @invariant()
    def offsets_are_translated(self) -> None:
        for node in (self.head, self.tail):
            for stored in node.log.read_stored():
                header = stored.header
                assert node.log.offset_at(LogOffset(header.log_offset)) == header.base_offset
            assert node.log.offset_at(node.log.log_end) == node.log.end_offset


TestReplicaMachine = ReplicaMachine.TestCase
TestReplicaMachine.settings = settings(max_examples=60, stateful_step_count=25)
