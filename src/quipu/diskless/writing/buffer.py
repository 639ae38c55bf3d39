"""Which batches go into which object, and when: the pure core of a writer.

    buffer = WriteBuffer(limits)
    is_due = buffer.add(log, batch, header, done, now)
    seconds = buffer.flush_in(now, uploads)      until it should be written; None: not yet known
    flush = buffer.take()                        what one object will hold; the buffer is empty then

A buffer is written when it has `flush_bytes` or `flush_batches`, or `flush_interval_ms` after its
first batch.  It is written earlier if its producers seem to wait for answers: batches came in quick
succession, and then none.  Waiting longer would gain nothing then, and a single producer would be
slow.  The more uploads are under way, the more bytes that takes, so that few objects are small.

Invariants
    diskless.W1  every batch that is added is in exactly one flush, whole, or is removed; batches of
                 a log keep their order, and the logs of a flush are in the order of their keys
    diskless.W2  a flush has less than `flush_bytes` without its last batch, and at most
                 `flush_batches` and COMMIT_BATCHES_MAX batches

Not here: uploads and commits (writer.py).
"""

from collections.abc import Callable, Iterator
from typing import Final

from quipu.diskless.control_plane.interface import COMMIT_BATCHES_MAX, BatchOutcome
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import EARLY_BYTES, QUIET_SECONDS_MIN, WriterLimits
from quipu.model.errors import QuipuError
from quipu.wire.record_batch import BatchHeader

QUIET_GAPS: Final = 4  # times the usual time between two batches
LONE_GAP_SHARE: Final = 16  # a single batch waits for a part of the interval

Done = Callable[[BatchOutcome | QuipuError], None]
ProducerKey = tuple[LogKey, int, int]  # a log, and the id and epoch of a producer


class BufferedBatch:
    """A batch that waits for its outcome."""

    __slots__ = ("done", "header", "log", "position")

    def __init__(self, log: LogKey, header: BatchHeader, position: int, done: Done) -> None:
        self.log = log
        self.header = header
        self.position = position  # in the data of its log
        self.done: Done | None = done  # None once it was answered

    @property
    def producer(self) -> ProducerKey:
        """Whose batches it precedes and follows."""
        return self.log, self.header.producer_id, self.header.producer_epoch

    @property
    def is_answered(self) -> bool:
        """Whether it has its outcome: before its object is committed, it was refused."""
        return self.done is None


class BufferedLog:
    """Batches of one log, one after the other."""

    __slots__ = ("batches", "data", "log", "position")

    def __init__(self, log: LogKey) -> None:
        self.log = log
        self.position = 0  # of its first byte in the object, once there is one
        self.data = bytearray()
        self.batches: list[BufferedBatch] = []


class Flush:
    """What one object will hold."""

    __slots__ = ("count", "first_at", "logs", "size")

    def __init__(self, logs: list[BufferedLog], size: int, count: int, first_at: float) -> None:
        self.logs = logs  # by topic id and partition
        self.size = size
        self.count = count
        self.first_at = first_at  # monotonic seconds: when its first batch came

    def batches(self) -> Iterator[BufferedBatch]:
        """Yield all batches, in the order of the object."""
        for log in self.logs:
            yield from log.batches


class WriteBuffer:
    """The batches of the next object."""

    __slots__ = ("_first_at", "_flush_batches", "_flush_bytes", "_interval", "_last_at", "_logs",
                 "_uploads_max", "count", "look_size", "size")

    def __init__(self, limits: WriterLimits) -> None:
        self._flush_bytes = limits.flush_bytes
        self._flush_batches = min(limits.flush_batches, COMMIT_BATCHES_MAX)
        self._interval = limits.flush_interval_ms / 1000
        self._uploads_max = limits.uploads_max
        self._logs: dict[LogKey, BufferedLog] = {}
        self._first_at = self._last_at = 0.0
        self.size = 0
        self.count = 0
        self.look_size = 0  # with so many bytes, the result of `flush_in` may be another

    def add(
        self, log: LogKey, batch: memoryview, header: BatchHeader, done: Done, *, now: float
    ) -> bool:
        """Copy a batch; True if the buffer must be taken before the next one (diskless.W2)."""
        buffered = self._logs.get(log)
        if buffered is None:
            buffered = self._logs[log] = BufferedLog(log)
        data = buffered.data
        buffered.batches.append(BufferedBatch(log, header, len(data), done))
        data += batch
        if not self.count:
            self._first_at = now
        self._last_at = now
        self.count += 1
        self.size += len(batch)
        return self.size >= self._flush_bytes or self.count >= self._flush_batches

    def flush_in(self, now: float, uploads: int) -> float | None:
        """Seconds until the buffer should be taken, or looked at again; 0 if it should be now.

        None: when a batch is added, or when one of the uploads has ended.  Otherwise call it again
        also when the buffer has grown to `look_size`.
        """
        if not self.count or uploads >= self._uploads_max:
            return None
        left = self._first_at + self._interval - now
        if left <= 0 or self.size >= self._flush_bytes:
            return 0.0
        early_size = EARLY_BYTES << uploads
        if self.size < early_size:
            self.look_size = early_size
            return left
        self.look_size = self._flush_bytes
        gap = ((self._last_at - self._first_at) / (self.count - 1) if self.count > 1
               else self._interval / LONE_GAP_SHARE)
        quiet = self._last_at + max(QUIET_SECONDS_MIN, QUIET_GAPS * gap) - now
        return max(0.0, min(left, quiet))

    def take(self) -> Flush:
        """What was added since the last call; empty logs do not occur (diskless.W1)."""
        logs = sorted(self._logs.values(), key=_by_key)
        flush = Flush(logs, self.size, self.count, self._first_at)
        self._logs = {}
        self.size = self.count = 0
        return flush

    def remove(self, producers: set[ProducerKey]) -> list[BufferedBatch]:
        """Take out the batches of some producers."""
        removed: list[BufferedBatch] = []
        for log in {key[0] for key in producers} & self._logs.keys():
            old, new = self._logs[log], BufferedLog(log)
            for batch in old.batches:
                if batch.producer in producers:
                    removed.append(batch)
                    continue
                end = batch.position + batch.header.size
                position, batch.position = batch.position, len(new.data)
                new.data += memoryview(old.data)[position:end]
                new.batches.append(batch)
            if new.batches:
                self._logs[log] = new
            else:
                del self._logs[log]
        self.size -= sum(batch.header.size for batch in removed)
        self.count -= len(removed)
        return removed


def _by_key(buffered: BufferedLog) -> tuple[int, int]:
    return buffered.log.topic_id.int, buffered.log.partition
