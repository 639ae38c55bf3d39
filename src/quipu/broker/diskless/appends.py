"""Appends to a diskless partition: until they are committed, or until their log can be written to.

A topic is in the cluster's metadata a moment before the control plane knows its logs.  Batches that
come in between are kept, in order, and given to the writer once the log is known; if the control
plane cannot be asked, they fail with an error that clients retry.  Requests for offsets wait, too.

Invariants
    broker.diskless.A1  at most EARLY_SIZE_MAX bytes are kept for logs that are not known yet, of
                        all partitions together
    broker.diskless.A2  batches of a partition reach the writer in the order in which they came
    broker.diskless.A3  if an append runs out of time, so do all of its partition behind it: were
                        only some of a producer's batches acknowledged, it could send the others
                        again so late that the control plane has forgotten them
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from quipu.broker.diskless.deadlines import Deadlines, Waiting
from quipu.broker.partitions.partition_errors import OffsetNotAvailable
from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.values import LogKey
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import Offset, TopicPartition
from quipu.model.partition_log import AppendDone, AppendResult
from quipu.wire.record_batch import BatchHeader

EARLY_SIZE_MAX: Final = 16 << 20
KNOWN_SECONDS_MAX: Final = 5.0  # that a request for offsets waits for the control plane

_REASONS: Final = {
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: "its sequence numbers do not follow those of the producer's "
                                       "last batch",
    Code.INVALID_PRODUCER_EPOCH: "its producer has a newer epoch",
    Code.UNKNOWN_TOPIC_OR_PARTITION: "the topic is deleted",
}
_KINDS: Final = {Code.UNKNOWN_TOPIC_OR_PARTITION: ErrorKind.REFRESH}


class DisklessAppend:
    """A batch that the writer was given, until its outcome is known: a `PendingAppend`."""

    __slots__ = ("_append_time", "_behind", "_done", "_forget", "_is_late", "_name", "_outcome",
                 "_record_count")

    def __init__(self, name: TopicPartition, header: BatchHeader, append_time: int) -> None:
        self._name = name
        self._record_count = header.last_offset_delta + 1
        self._append_time = append_time
        self._is_late = False
        self._done: AppendDone | None = None
        self._outcome: AppendResult | QuipuError | None = None
        self._forget: Callable[[Waiting], object] | None = None  # its deadline
        self._behind: AppendQueue = {}  # those of its partition, itself too

    def end_by(self, deadlines: Deadlines, timeout_ms: int, queue: "AppendQueue") -> None:
        """Complete after `timeout_ms` if the outcome is not known by then (model.P2).

        `queue` has the appends of the partition with a deadline, in the order in which they came.
        """
        self._forget = deadlines.add(self, timeout_ms)
        self._behind = queue
        queue[self] = None

    def when_done(self, done: AppendDone) -> None:
        """Call `done` once with the result, or with the error of the append."""
        assert self._done is None, self._name
        self._done = done
        if self._outcome is not None:
            done(self._outcome)

    def complete(self, outcome: BatchOutcome | QuipuError) -> None:
        """Take the outcome of the commit, and pass it on (model.P1)."""
        if self._forget is not None:
            if self._is_late:
                return  # its producer was told that the outcome is unknown
            self._forget(self)
            self._behind.pop(self)
        assert self._outcome is None, self._name
        self._end(self._result(outcome))

    def time_over(self) -> None:
        """Its producer does not wait any longer; the writer goes on with the batch."""
        if self._outcome is not None:
            return
        queue = list(self._behind)
        for late in queue[queue.index(self):]:  # broker.diskless.A3
            late.end_late()

    def end_late(self) -> None:
        """Complete before the outcome is known."""
        assert self._forget is not None, self._name
        self._forget(self)
        self._behind.pop(self)
        self._is_late = True
        self._end(RequestError(
            f"{self._name}: the batch was not committed in time; whether it will be is not known",
            code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY))

    def _end(self, outcome: AppendResult | QuipuError) -> None:
        self._outcome = outcome
        if self._done is not None:
            self._done(outcome)

    def _result(self, outcome: BatchOutcome | QuipuError) -> AppendResult | QuipuError:
        if isinstance(outcome, QuipuError):
            return outcome
        code, base_offset, log_start_offset, is_duplicate = outcome
        if code is not Code.NONE:
            return RequestError(
                f"{self._name}: the batch was refused: {_REASONS.get(code, code.name)}",
                code=code, kind=_KINDS.get(code, ErrorKind.INVALID))
        return AppendResult(
            base_offset, Offset(base_offset + self._record_count - 1), log_start_offset,
            self._append_time, is_duplicate)


AppendQueue = dict[DisklessAppend, None]


class EarlyAppend(NamedTuple):
    """A batch for a log that the control plane does not know yet."""

    batch: bytes
    header: BatchHeader
    pending: DisklessAppend


class EarlyAppends:
    """The batches of one partition that wait until its log is known."""

    __slots__ = ("_known", "_log", "_waiting")

    def __init__(self, log: LogKey) -> None:
        self._log = log
        self._waiting: list[EarlyAppend] = []
        self._known: asyncio.Future[None] | None = None  # made for the first who waits for it

    def add(
        self, batch: memoryview, header: BatchHeader, pending: DisklessAppend, total: int
    ) -> int:
        """Keep a batch; raise if `total` bytes are kept already.  Returns its size."""
        if total + len(batch) > EARLY_SIZE_MAX:  # broker.diskless.A1
            raise RequestError(
                f"{self._log}: the control plane does not know this log yet; try again",
                code=Code.NOT_LEADER_OR_FOLLOWER, kind=ErrorKind.RETRY)
        self._waiting.append(EarlyAppend(bytes(batch), header, pending))
        return len(batch)

    def take(self, error: QuipuError | None = None) -> list[EarlyAppend]:
        """All batches that were kept; who waits in `known` returns, or gets `error`."""
        waiting, self._waiting = self._waiting, []
        known, self._known = self._known, None
        if known is None:
            return waiting
        if error is None:
            known.set_result(None)
        else:
            known.set_exception(error)
            known.exception()  # it is no error if nobody waits any more
        return waiting

    async def known(self) -> None:
        """Return once the control plane knows the log; raise if that takes too long.

        Some clients do not ask for offsets again, and a node that has just started, or a topic that
        has just been created, needs a moment.
        """
        if self._known is None:
            self._known = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(KNOWN_SECONDS_MAX):
                await asyncio.shield(self._known)
        except TimeoutError:
            raise OffsetNotAvailable(
                f"{self._log}: the control plane does not know this log yet: ask again") from None


def write(writer: DisklessWriter, log: LogKey, waiting: list[EarlyAppend]) -> None:
    """Give batches to the writer, in their order (broker.diskless.A2)."""
    for batch, header, pending in waiting:
        try:
            writer.append(log, memoryview(batch), header, pending.complete)
        except QuipuError as error:
            pending.complete(error)


def fail(writer: DisklessWriter, log: LogKey, waiting: list[EarlyAppend],
         error: QuipuError) -> None:
    """Refuse batches, so that their producers send them again in order (diskless.W4)."""
    for _, header, pending in waiting:
        writer.note_refused(log, header)
        pending.complete(error)
