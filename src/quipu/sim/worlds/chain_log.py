"""A log for worlds of chains: batches without bodies, in memory, which a crash may shorten.

A batch has a unique number, so that two logs can be compared; it takes up one to three log offsets,
and as many client offsets if it is data.  A segment begins with a checkpoint: retention and a copy
of a whole log start there.  A tiered log (`TierMarks`) also has batches that say up to where a
remote tier has a copy of it.

Not here: real logs (storage), which the worlds of nodes run on.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from quipu.chain.messages import BEGIN, Mark
from quipu.model.batch_types import CHECKPOINT, DATA
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset

_BATCH: Final = Struct(">qqiiBq")


class Batch(NamedTuple):
    """One batch; `number` is unique."""

    log_offset: int
    offset: int
    width: int
    epoch: int
    batch_type: int
    number: int

    @property
    def next_log(self) -> LogOffset:
        return LogOffset(self.log_offset + self.width)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.offset + (self.width if self.batch_type == DATA else 0))


class Entry(NamedTuple):
    """Batches of one type, as bytes."""

    data: bytes
    next_log: LogOffset


class TierMarks:
    """What the tier has, by the batches that say it; shared by all logs of a world."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}  # by a batch's number: the tier has all below


class ModelLog:
    """See the module.  `is_durable`: acknowledgements wait for the disk."""

    def __init__(self, *, is_durable: bool, clamps_epochs: bool) -> None:
        self.is_durable = is_durable
        self.tier: TierMarks | None = None
        self._tiered: list[tuple[int, LogOffset]] = []  # what the tier has; after which batch
        self.committed_log: Callable[[], int] = lambda: 0
        self._clamps_epochs = clamps_epochs  # does retention forget where an epoch began?
        self.batches: list[Batch] = []
        self._starts: list[int] = []
        self._flushed = 0  # batches, counted from the first of `batches`
        self._epochs: list[tuple[Epoch, LogOffset]] = []
        self.log_end = LogOffset(0)
        self.end_offset = Offset(0)
        self.last_epoch = NO_EPOCH
        self.sync_floor = LogOffset(0)  # tests set it; the worlds' logs are not compacted

    # --- as replication sees it -------------------------------------------------------------

    @property
    def log_start(self) -> LogOffset:
        return LogOffset(self._starts[0]) if self._starts else LogOffset(0)

    @property
    def copy_start(self) -> LogOffset:
        """The last checkpoint before which the tier has everything, as far as committed."""
        end = self.tiered_end(self.committed_log())
        starts = [batch.log_offset for batch in self.batches
                  if batch.batch_type == CHECKPOINT and batch.log_offset <= end]
        return LogOffset(starts[-1]) if starts else self.log_start

    def tiered_end(self, log_end: int) -> int:
        """The end of what the tier has, by the batches below `log_end`."""
        return max((end for end, next_log in self._tiered if next_log <= log_end), default=0)

    @property
    def flushed_end(self) -> LogOffset:
        """The end of what a crash cannot take."""
        return self.batches[self._flushed - 1].next_log if self._flushed else LogOffset(0)

    @property
    def end(self) -> Mark:
        return Mark(self.log_end, self.end_offset)

    @property
    def durable(self) -> Mark:
        if not self.is_durable:
            return self.end
        if not self._flushed:
            return BEGIN
        last = self.batches[self._flushed - 1]
        return Mark(last.next_log, last.next_offset)

    def epochs(self) -> list[tuple[Epoch, LogOffset]]:
        return list(self._epochs)

    # --- writing ----------------------------------------------------------------------------

    def add(self, *, width: int, epoch: int, batch_type: int, number: int) -> Batch:
        """Append a new batch, as a head does."""
        batch = Batch(self.log_end, self.end_offset, width, epoch, batch_type, number)
        if batch_type == CHECKPOINT and self.tier is not None:
            self.tier.ends[number] = self.tiered_end(self.log_end)
        self.append(batch)
        return batch

    def append(self, batch: Batch) -> None:
        assert batch.log_offset == self.log_end, (batch, self.log_end)
        assert batch.offset == self.end_offset, (batch, self.end_offset)
        assert batch.epoch >= self.last_epoch, (batch, self.last_epoch)
        self._push(batch)

    def _push(self, batch: Batch) -> None:
        if batch.epoch > self.last_epoch:
            self._epochs.append((Epoch(batch.epoch), LogOffset(batch.log_offset)))
        self.batches.append(batch)
        self._starts.append(batch.log_offset)
        if self.tier is not None and batch.number in self.tier.ends:
            self._tiered.append((self.tier.ends[batch.number], batch.next_log))
        self._find_end()

    def _find_end(self) -> None:
        if self.batches:
            last = self.batches[-1]
            self.log_end, self.end_offset = last.next_log, last.next_offset
            self.last_epoch = Epoch(last.epoch)
        else:  # also if retention had taken what came before the batches that were lost
            self._epochs = []
            self.log_end, self.end_offset, self.last_epoch = LogOffset(0), Offset(0), NO_EPOCH

    def cut(self, log_end: int) -> None:
        """Drop everything at or after `log_end`."""
        count = bisect_left(self._starts, log_end)
        assert count == len(self._starts) or self._starts[count] == log_end, "within a batch"
        del self.batches[count:]
        del self._starts[count:]
        self._flushed = min(self._flushed, count)
        self._epochs = [entry for entry in self._epochs if entry[1] < log_end]
        self._tiered = [entry for entry in self._tiered if entry[1] <= log_end]
        self._find_end()

    def restart(self, batch: Batch) -> None:
        """Drop everything, and begin with a checkpoint."""
        assert batch.batch_type == CHECKPOINT, batch
        self.wipe()
        self._push(batch)

    def wipe(self) -> None:
        self.batches, self._starts, self._epochs, self._flushed = [], [], [], 0
        self._tiered = []
        self._find_end()

    def trim(self, log_start: int) -> None:
        """Retention: drop everything before `log_start`, where a segment begins."""
        count = bisect_left(self._starts, log_start)
        assert self.batches[count].batch_type == CHECKPOINT, self.batches[count]
        del self.batches[:count]
        del self._starts[:count]
        self._flushed = max(self._flushed - count, 0)
        while len(self._epochs) > 1 and self._epochs[1][1] <= log_start:
            del self._epochs[0]
        if self._clamps_epochs and self._epochs and self._epochs[0][1] < log_start:
            self._epochs[0] = (self._epochs[0][0], LogOffset(log_start))

    # --- the disk ---------------------------------------------------------------------------

    @property
    def is_flushed(self) -> bool:
        return self._flushed == len(self.batches)

    @property
    def unflushed_count(self) -> int:
        return len(self.batches) - self._flushed

    def flush(self) -> None:
        self._flushed = len(self.batches)

    def lose(self, count: int) -> None:
        """Lose the last `count` batches, none of them flushed, in a crash."""
        assert count <= self.unflushed_count, (count, self.unflushed_count)
        if count:
            self.cut(self.batches[-count].log_offset)
        self.flush()

    # --- reading ----------------------------------------------------------------------------

    def ending_at(self, log_end: int) -> Batch | None:
        """The batch that ends at `log_end`; None if none does."""
        index = bisect_left(self._starts, log_end) - 1
        if index < 0 or self.batches[index].next_log != log_end:
            return None
        return self.batches[index]

    def holds(self, batch: Batch) -> bool:
        """Whether the log has `batch`, or had it before retention removed it."""
        return batch.next_log <= self.log_start or self.ending_at(batch.next_log) == batch

    def read_entries(self, start_log: int, size_max: int) -> list[Entry]:
        """Entries from `start_log` on, at least one; each entry is one batch."""
        index = bisect_left(self._starts, start_log)
        assert index == len(self._starts) or self._starts[index] == start_log, start_log
        entries: list[Entry] = []
        size = 0
        for batch in self.batches[index:]:
            size += _BATCH.size
            if entries and size > size_max:
                break
            entries.append(Entry(_BATCH.pack(*batch), batch.next_log))
        return entries


def decode_batches(entry: bytes | memoryview) -> Iterator[Batch]:
    for fields in _BATCH.iter_unpack(entry):
        yield Batch(*fields)


BATCH_SIZE: Final = _BATCH.size
