"""The quorum's log on disk: entries, votes and snapshots as typed batches of `__cluster-0`.

    CONTROLLER, CONFIGURATION   one entry each; every record's key is index i64 | term i64
    VOTE                        term i64 | whom it voted for i32 | is_blank u8
    SNAPSHOT                    begin · items · entries above · end: a snapshot, in its own segment

Nothing is ever changed in place.  An entry replaces all earlier entries in the log with its index
or a higher one; a snapshot replaces everything before it.  A snapshot contains the vote and the
entries above it, and is valid only when its end is in the log; until then everything before it is.

Invariants
    broker.quorum.W1  loading returns everything that was flushed, in the order of writing
    broker.quorum.W2  everything written before a durable item is durable: one log, one order
    broker.quorum.W3  segments before a snapshot are removed only after all of it is durable
    broker.quorum.W4  a snapshot is valid only if its end has the count and checksum of its contents

A log of the earlier single-node broker has entries without keys and snapshots without an index:
they are read as entries of term 0, in order, and the node alone is the quorum.

Not here: what to write, and when messages that promise it may be sent (driver.py).
"""

import logging
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quipu.model.batch_types import CONFIGURATION, CONTROLLER, SNAPSHOT, VOTE, BatchType
from quipu.model.errors import CorruptLog, MalformedBytes
from quipu.model.ids import Epoch, LogOffset, NodeId, RaftIndex, Term
from quipu.raft.codec import read_entry, write_entry
from quipu.raft.membership import Configuration
from quipu.raft.messages import HardState, RaftEntry, Snapshot
from quipu.raft.ready import StoredState
from quipu.runtime.clock import Clock
from quipu.storage.log import Log, StoredBatch
from quipu.wire.record_batch import Record, decode_records

_log = logging.getLogger(__name__)

BATCH_SIZE_MAX: Final = 512 << 10  # of a snapshot's batches, about
RECORDS_SIZE_MAX: Final = 1 << 30  # of one batch; they are written uncompressed, by ourselves
EPOCH: Final = Epoch(0)  # the log's own epochs are not used: entries have their terms

# What a record of a SNAPSHOT batch is, by its key.
BEGIN: Final = b"begin"
ITEM: Final = b"item"
ENTRY: Final = b"entry"
END: Final = b"end"

_KEY: Final = Struct(">qq")  # index, term
_VOTE: Final = Struct(">qi?")
_BEGIN: Final = Struct(">Bqqqi?")  # type of the commands, index, term, vote; then the configuration
_INDEX: Final = Struct(">q")
_END: Final = Struct(">QI")  # number of items and entries, CRC-32C over their values
_OLD_BEGIN_SIZE: Final = 1  # of the single-node broker: the type alone
_OLD_SNAPSHOT_INDEX: Final = RaftIndex(1)  # not 0, which means an empty log

WalItem = HardState | RaftEntry | Snapshot
Pair = tuple[bytes | None, bytes]


class Loaded(NamedTuple):
    """The contents of the log."""

    stored: StoredState
    items: tuple[bytes, ...] | None  # of the snapshot, if there is one


class Wal:
    """Writes items in order, and loads them after a restart."""

    def __init__(self, log: Log, node_id: NodeId, clock: Clock) -> None:
        if log.failure is not None:
            raise log.failure
        self.commands_size = 0  # bytes since the last snapshot; decides when the next is due
        self._log = log
        self._node_id = node_id
        self._clock = clock
        self._queue: deque[WalItem] = deque()  # not written yet
        self._hard_state = HardState()  # as written
        self._snapshot: tuple[LogOffset, LogOffset] | None = None  # the last one,
        # until the segments before it are removed

    @property
    def log_end(self) -> LogOffset:
        return self._log.log_end

    @property
    def is_written(self) -> bool:
        """Whether nothing is left to write."""
        return not self._queue

    @property
    def is_durable(self) -> bool:
        return self.is_written and not self._log.flusher.is_dirty

    # --- writing ----------------------------------------------------------------------------

    def add(self, items: Sequence[WalItem]) -> None:
        """Queue `items` to be written after all that was added before."""
        self._queue.extend(items)  # broker.quorum.W2: one order

    def push(self) -> None:
        """Write what was added.  If this raises, the next call writes what is left."""
        while self._queue:
            item = self._queue[0]
            match item:
                case RaftEntry():
                    self._write_entry(item)
                case HardState():
                    self._append(VOTE, [(None, _VOTE.pack(*item))])
                    self._hard_state = item
                case Snapshot():
                    self._write_snapshot(item, ())
            self._queue.popleft()

    def compact(self, snapshot: Snapshot, above: Sequence[RaftEntry]) -> None:
        """Write a snapshot of this node's state, and again the entries above it."""
        assert self.is_written, "a snapshot must not overtake what comes before it"
        self._write_snapshot(snapshot, above)

    def flushed(self) -> None:
        """Remove the segments before a snapshot, if it has become durable (broker.quorum.W3)."""
        if self._snapshot is None or self._log.flusher.flushed_log < self._snapshot[1]:
            return
        removed = self._log.drop_segments_before(self._snapshot[0])
        _log.info("%s: snapshot at log offset %d, %d segments removed",
                  self._log.name, self._snapshot[0], removed)
        self._snapshot = None

    def _write_entry(self, entry: RaftEntry) -> None:
        key = _KEY.pack(entry.index, entry.term)
        self._append(entry.batch_type, [(key, command) for command in entry.commands])
        self.commands_size += entry.size

    def _write_snapshot(self, snapshot: Snapshot, above: Sequence[RaftEntry]) -> None:
        self._log.roll(self._clock.now_ms())
        start = self._log.log_end
        begin = _BEGIN.pack(CONTROLLER, snapshot.index, snapshot.term, *self._hard_state)
        self._append(SNAPSHOT, [(BEGIN, begin + snapshot.configuration.encode())])
        tally, size, pairs = _SnapshotTally(), 0, list[Pair]()
        for key, value in _contents(snapshot, above):
            pairs.append((key, value))
            tally, size = tally.with_value(value), size + len(value)
            if size >= BATCH_SIZE_MAX:
                self._append(SNAPSHOT, pairs)
                size, pairs = 0, []
        self._append(SNAPSHOT, [*pairs, (END, _END.pack(*tally))])
        self._snapshot = start, self._log.log_end
        self.commands_size = sum(entry.size for entry in above)

    def _append(self, batch_type: BatchType, pairs: Sequence[Pair]) -> None:
        now_ms = self._clock.now_ms()
        records = [Record(key, value, (), now_ms) for key, value in pairs]
        self._log.append_records(batch_type, records, epoch=EPOCH, now_ms=now_ms)

    # --- reading ----------------------------------------------------------------------------

    def load(self) -> Loaded:
        """Return what was written last; raises `CorruptLog` if parts are gone."""
        start = self._newest_snapshot()
        if start is None and self._log.segments[0].base_log > 0:
            raise CorruptLog(
                f"{self._log.name}: its first segments are gone and no snapshot is complete; "
                "restore the directory from a copy, or look at it with `quipu log show`")
        replay = _Replay(is_in_snapshot=start is not None)
        try:
            for batch in self._log.read_stored(start or LogOffset(0)):
                replay.take(batch)
        except (MalformedBytes, struct.error) as error:
            raise CorruptLog(f"{self._log.name}: {error}") from error
        self._hard_state = replay.hard_state
        self.commands_size = sum(entry.size for entry in replay.entries)
        return Loaded(replay.stored(self._node_id), replay.items if start is not None else None)

    def _newest_snapshot(self) -> LogOffset | None:
        """Return where the newest complete snapshot begins (broker.quorum.W4)."""
        newest: LogOffset | None = None
        begun: LogOffset | None = None
        tally = _SnapshotTally()
        for batch in self._log.read_stored():
            if batch.header.batch_type in (CONTROLLER, CONFIGURATION, VOTE):
                begun = None  # a snapshot without an end: its writer died
            if batch.header.batch_type != SNAPSHOT:
                continue
            for key, value in _pairs(batch):
                if key == BEGIN:
                    begun, tally = LogOffset(batch.header.log_offset), _SnapshotTally()
                elif key in (ITEM, ENTRY):
                    tally = tally.with_value(value)
                elif key == END and begun is not None:
                    newest = begun if value == _END.pack(*tally) else newest
                    begun = None
        return newest


class _SnapshotTally(NamedTuple):
    """Count and checksum that the end of a snapshot must match (broker.quorum.W4)."""

    number: int = 0
    checksum: int = 0

    def with_value(self, value: bytes) -> "_SnapshotTally":
        return _SnapshotTally(self.number + 1, crc32c(value, self.checksum))


class _Replay:
    """The contents of the log, batch by batch (broker.quorum.W1)."""

    def __init__(self, *, is_in_snapshot: bool) -> None:
        self.hard_state = HardState()
        self.entries: list[RaftEntry] = []
        self.items: tuple[bytes, ...] = ()
        self._index, self._term = RaftIndex(0), Term(0)  # of the snapshot
        self._configuration: Configuration | None = None
        self._is_in_snapshot = is_in_snapshot
        self._items: list[bytes] = []

    def take(self, batch: StoredBatch) -> None:
        match batch.header.batch_type:
            case t if t in (CONTROLLER, CONFIGURATION):
                self._add(_entry(batch, self._last_index + 1))
            case t if t == VOTE:
                ((_, value),) = _pairs(batch)
                self.hard_state = _hard_state(*_VOTE.unpack(value))
            case t if t == SNAPSHOT and self._is_in_snapshot:
                for key, value in _pairs(batch):
                    self._take_part(key, value)

    def stored(self, node_id: NodeId) -> StoredState:
        configuration = self._configuration
        has_any = configuration or any(entry.batch_type == CONFIGURATION for entry in self.entries)
        if self._last_index > 0 and not has_any:
            configuration = Configuration.of([node_id])  # the single-node broker's
        return StoredState(
            hard_state=self.hard_state, snapshot_index=self._index, snapshot_term=self._term,
            configuration=configuration, entries=tuple(self.entries))

    @property
    def _last_index(self) -> int:
        return self._index + len(self.entries)

    def _add(self, entry: RaftEntry) -> None:
        place = entry.index - self._index - 1
        if not 0 <= place <= len(self.entries):
            raise MalformedBytes(f"entry {entry.index} after entry {self._last_index}")
        if place < len(self.entries):
            del self.entries[place:]
        self.entries.append(entry)

    def _take_part(self, key: bytes | None, value: bytes) -> None:
        if key == BEGIN and len(value) == _OLD_BEGIN_SIZE:
            self._index = _OLD_SNAPSHOT_INDEX
        elif key == BEGIN:
            _, index, term, *vote = _BEGIN.unpack_from(value)
            self._index, self._term = RaftIndex(index), Term(term)
            self.hard_state = _hard_state(*vote)
            self._configuration = Configuration.decode(value[_BEGIN.size :])
        elif key == ITEM:
            self._items.append(value)
        elif key == ENTRY:
            (index,) = _INDEX.unpack_from(value)
            self._add(read_entry(memoryview(value), _INDEX.size, RaftIndex(index))[0])
        elif key == END:
            self._is_in_snapshot, self.items = False, tuple(self._items)


def _contents(snapshot: Snapshot, above: Sequence[RaftEntry]) -> Iterator[Pair]:
    for item in snapshot.items:
        yield ITEM, item
    for entry in above:
        parts = [_INDEX.pack(entry.index)]
        write_entry(parts, entry)
        yield ENTRY, b"".join(parts)


def _hard_state(term: int, vote: int, is_blank: bool) -> HardState:  # noqa: FBT001 as unpacked
    return HardState(Term(term), NodeId(vote), is_blank)


def _entry(batch: StoredBatch, next_index: int) -> RaftEntry:
    """Return the entry that a batch holds; `next_index` is its index if it has no key."""
    pairs = list(_pairs(batch))
    key = pairs[0][0]
    index, term = (next_index, 0) if key is None else _KEY.unpack(key)
    return RaftEntry(RaftIndex(index), Term(term), BatchType(batch.header.batch_type),
                     tuple(value for _, value in pairs))


def _pairs(batch: StoredBatch) -> Iterator[Pair]:
    for record in decode_records(batch.batch, size_max=RECORDS_SIZE_MAX):
        yield record.key, record.value if record.value is not None else b""
