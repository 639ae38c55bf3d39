"""A log for worlds of chains: batches without bodies, in memory, which a crash may shorten.

A batch has a number that no other batch has, so that two logs can be compared; it takes one to
three log offsets, and as many client offsets if it is data.  Checkpoints stand where segments
begin: retention and a copy of a whole log start there.

Not here: real logs (storage), which the worlds of nodes run on.
"""

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from quipu.chain.messages import BEGIN, Mark
from quipu.model.batch_types import CHECKPOINT, DATA
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset

_BATCH: Final = Struct(">qqiiBq")


class Batch(NamedTuple):
    """One batch; `number` tells it from all others."""

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


class ModelLog:
    """See the module.  `is_durable`: acknowledgements wait for the disk."""

    def __init__(self, *, is_durable: bool, clamps_epochs: bool) -> None:
        self.is_durable = is_durable
        self._clamps_epochs = clamps_epochs  # does retention forget where an epoch began?
        self.batches: list[Batch] = []
        self._starts: list[int] = []
        self._flushed = 0  # batches, counted from the first of `batches`
        self._epochs: list[tuple[Epoch, LogOffset]] = []
        self.log_end = LogOffset(0)
        self.end_offset = Offset(0)
        self.last_epoch = NO_EPOCH

    # --- as replication sees it -------------------------------------------------------------

    @property
    def log_start(self) -> LogOffset:
        return LogOffset(self._starts[0]) if self._starts else LogOffset(0)

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
        self._find_end()

    def restart(self, batch: Batch) -> None:
        """Drop everything, and begin with a checkpoint."""
        assert batch.batch_type == CHECKPOINT, batch
        self.wipe()
        self._push(batch)

    def wipe(self) -> None:
        self.batches, self._starts, self._epochs, self._flushed = [], [], [], 0
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
        """A crash: the last `count` batches, none of them flushed, are gone."""
        assert count <= self.unflushed_count, (count, self.unflushed_count)
        if count:
            self.cut(self.batches[-count].log_offset)
        self.flush()

    # --- reading ----------------------------------------------------------------------------

    def ending_at(self, log_end: int) -> Batch | None:
        """The batch that ends there."""
        index = bisect_left(self._starts, log_end) - 1
        if index < 0 or self.batches[index].next_log != log_end:
            return None
        return self.batches[index]

    def holds(self, batch: Batch) -> bool:
        """Is `batch` here, or was it before retention took it?"""
        return batch.next_log <= self.log_start or self.ending_at(batch.next_log) == batch

    def read_entries(self, start_log: int, size_max: int) -> list[Entry]:
        """Entries from `start_log` on: at least one batch; a checkpoint stands alone."""
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
