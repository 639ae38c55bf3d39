"""`DisklessWriter`: batches of many logs become objects, which are stored and then committed.

    append -> buffer -> flush -> upload (up to `uploads_max` at once) -> commit (one at a time, in
    the order of the flushes) -> `on_committed`, then `done` of each batch

Invariants
    diskless.W3  a batch is answered exactly once: with its outcome, after its object is stored and
                 committed, or with an error; objects are committed in the order of their flushes
    diskless.W4  after a batch of an idempotent producer has failed, none of its later batches in
                 that log is committed before that one is accepted again: those under way get
                 NOT_LEADER_OR_FOLLOWER, which clients retry in order
    diskless.W8  at most `buffer_bytes` + `overflow_bytes` bytes of batches are buffered or under
                 way at once; one more is refused with an error that clients retry

An object whose commit has an unknown outcome is left where it is: the control plane may know it.

Not here: what is in an object (objects/), attempts (attempts.py), which producers may go on
(producer_guard.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from quipu.diskless.control_plane.interface import BatchOutcome, ControlPlane
from quipu.diskless.objects.encoding import encode_object
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.receipts import LogNote, Receipt, encode_outcome
from quipu.diskless.values import LogKey, NewObject
from quipu.diskless.writing.attempts import Attempts, CommitUnknown
from quipu.diskless.writing.buffer import (
    BufferedBatch,
    BufferedLog,
    Done,
    Flush,
    ProducerKey,
    WriteBuffer,
)
from quipu.diskless.writing.encoding import EncodedFlush, encode_flush
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.producer_guard import ProducerGuard
from quipu.diskless.writing.receipts import UnsavedReceipts
from quipu.diskless.writing.stats import WriterStats
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import NodeId, Offset
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn
from quipu.wire.record_batch import BatchHeader

_log = logging.getLogger(__name__)
CLOSE_SECONDS_MAX: Final = 5.0  # for the last receipts, once everything is answered
_FINAL: Final = frozenset({  # after these answers the control plane judges later batches rightly
    Code.NONE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH})
_Answer = tuple[Done, BatchOutcome | QuipuError]

# An object that was committed, the outcomes of its batches, and the data of its logs, in order;
# who is called may keep the data and change it.
OnCommitted = Callable[[NewObject, Sequence[BatchOutcome], Sequence[BufferedLog]], None]


class _Flight:
    """An object on its way."""

    __slots__ = ("encoded", "ended", "flush", "is_sole", "name", "uploaded")

    def __init__(self, name: ObjectName, flush: Flush) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.flush = flush
        self.encoded: EncodedFlush | None = None
        self.uploaded: asyncio.Future[QuipuError | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.is_sole = False  # nothing else reads its data any more


class DisklessWriter:
    """The writer of one node; all calls come from its event loop."""

    def __init__(
        self, store: ObjectStore, plane: ControlPlane, clock: Clock, rng: Rng, *,
        node_id: NodeId, limits: WriterLimits, on_committed: OnCommitted | None = None,
        stats: WriterStats | None = None,
    ) -> None:
        self.stats = WriterStats() if stats is None else stats
        self._clock = clock
        self._limits = limits
        self._on_committed = on_committed
        self._attempts = Attempts(store, plane, clock, rng, limits=limits, stats=self.stats)
        self._buffer = WriteBuffer(limits)
        self._guard = ProducerGuard(clock.monotonic)
        self._receipts = UnsavedReceipts()
        self._node_id = node_id
        self._writer_id = rng.uuid()
        self._sequence = 0
        self._size = 0  # bytes of batches that are not answered yet
        self._size_max = limits.buffer_bytes + limits.overflow_bytes
        self._flights: deque[_Flight] = deque()  # in the order of their flushes
        self._waiting: deque[_Flight] = deque()  # of these, the ones whose upload has not begun
        self._uploads = 0
        self._timer: asyncio.TimerHandle | None = None
        self._receipts_timer: asyncio.TimerHandle | None = None
        self._committer: asyncio.Task[None] | None = None
        self._for_room: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._limited = LimitedLog(_log, clock.monotonic)

    # -- appending

    def append(
        self, log: LogKey, batch: memoryview, header: BatchHeader, done: Done
    ) -> None:
        """Copy a batch, and call `done` once with its outcome or error; raise if it is refused."""
        if self._is_closing:
            raise RequestError("this node stops; send the batch to another one",
                               code=Code.NOT_LEADER_OR_FOLLOWER, kind=ErrorKind.REFRESH)
        if header.producer_id >= 0 and self._guard.is_on and self._guard.forbids(log, header):
            raise _follower(log)  # diskless.W4
        size = len(batch)
        if self._size + size > self._size_max:  # diskless.W8
            self.stats.overflows += 1
            self._guard.failed(log, header)
            raise RequestError(f"{log}: {self._size} bytes wait to be written (diskless.buffer."
                               "bytes); try again", code=Code.KAFKA_STORAGE_ERROR,
                               kind=ErrorKind.RETRY)
        stats = self.stats
        stats.batches += 1
        stats.batch_bytes += size
        stats.buffered_now = self._size = self._size + size
        if self._buffer.add(log, batch, header, done, now=self._clock.monotonic()):
            self._seal()
        elif self._timer is None or self._buffer.size >= self._buffer.look_size:
            self._look()

    def note_refused(self, log: LogKey, header: BatchHeader) -> None:
        """Say that a batch was refused for a passing reason before it came here (diskless.W4)."""
        self._guard.failed(log, header)

    @property
    def is_full(self) -> bool:
        """Whether callers should stop reading from clients."""
        return self._size > self._limits.buffer_bytes

    def when_room(self, call: Callable[[], None]) -> None:
        """Call once, as soon as the writer is not full; at once if it is not."""
        if self.is_full:
            self._for_room.append(call)
        else:
            call()

    async def flush(self) -> None:
        """Write everything that was appended before; return when it is answered."""
        self._seal()
        if self._flights:
            await asyncio.shield(self._flights[-1].ended)

    async def close(self) -> None:
        """Accept nothing more; return when everything is answered and the receipts are stored."""
        self._is_closing = True
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()
        if self._receipts_timer is not None:
            self._receipts_timer.cancel()
        with suppress(TimeoutError):  # without them, a rebuild has to guess the last offsets
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._store_receipts()

    # -- flushes

    def _look(self) -> None:
        """Flush the buffer if it is time, else look again when it may be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = self._buffer.flush_in(self._clock.monotonic(), self._uploads)
        if seconds is None:
            return  # `append` or the end of an upload looks again
        if seconds <= 0:
            self._seal()
        else:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _seal(self) -> None:
        """Let the buffer become an object."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._buffer.count:
            return
        flight = _Flight(self._next_name(), self._buffer.take())
        self._flights.append(flight)
        self._waiting.append(flight)
        self._begin_uploads()
        if self._committer is None:
            self._committer = spawn(self._commit_all(), "commit objects")

    def _next_name(self) -> ObjectName:
        name = ObjectName(self._node_id, self._writer_id, self._sequence)
        self._sequence += 1
        return name

    # -- uploads

    def _begin_uploads(self) -> None:
        while self._waiting and self._uploads < self._limits.uploads_max:
            self._uploads += 1
            spawn(self._upload(self._waiting.popleft()), "store an object")
        self.stats.uploads_now = self._uploads

    async def _upload(self, flight: _Flight) -> None:
        taken = self._receipts.take()
        error: QuipuError | None = None
        try:
            began = self._clock.monotonic()
            encoded = encode_flush(flight.name, flight.flush, taken, self._clock.now_ms())
            flight.encoded = encoded
            new = encoded.new
            flight.is_sole = await self._attempts.put(new.key, encoded.buffers, new.size)
            self.stats.uploads.observe(self._clock.monotonic() - began)
        except QuipuError as failed:
            error = failed
        except BaseException as failed:
            error = RequestError(f"an object cannot be stored: {failed!r}",
                                 code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)
            raise
        finally:
            if error is not None:
                self._receipts.give_back(taken)
            self._uploads -= 1
            flight.uploaded.set_result(error)
            self._begin_uploads()
            if self._buffer.count:
                self._look()

    # -- commits

    async def _commit_all(self) -> None:
        """Commit objects in order until there is none left (diskless.W3)."""
        try:
            while self._flights:
                flight = self._flights[0]
                error = await flight.uploaded
                outcomes: Sequence[BatchOutcome] = ()
                if error is None:
                    try:
                        outcomes = await self._commit(flight)
                    except QuipuError as failed:
                        error = failed
                    except Exception as failed:  # noqa: BLE001 a bug must not stop the writer
                        _log.exception("the commit of %s failed", flight.name.key)
                        error = CommitUnknown(f"a commit failed: {failed!r}")
                self._flights.popleft()
                self._end(flight, outcomes, error)
        finally:
            self._committer = None
            if not self._flights:
                self._await_silence()

    async def _commit(self, flight: _Flight) -> Sequence[BatchOutcome]:
        """The outcomes of all batches of an object, of those that were refused before as well."""
        assert flight.encoded is not None, flight.name
        new, batches = flight.encoded.new, list(flight.flush.batches())
        refused = [batch.is_answered for batch in batches]
        if any(refused):  # diskless.W4
            new = new._replace(batches=[
                each for each, is_refused in zip(new.batches, refused, strict=True)
                if not is_refused])
        began = self._clock.monotonic()
        found = await self._attempts.commit(new)
        self.stats.commit_waits.observe(self._clock.monotonic() - began)
        self.stats.commits += 1
        if not any(refused):
            return found
        committed = iter(found)
        return [_REFUSED if is_refused else next(committed) for is_refused in refused]

    def _end(
        self, flight: _Flight, outcomes: Sequence[BatchOutcome], error: QuipuError | None
    ) -> None:
        """Answer the batches of an object, and those that must not follow them (diskless.W3)."""
        batches = list(flight.flush.batches())
        if error is None:
            self._keep(flight, outcomes)
            answers, failed = self._outcomes(batches, outcomes)
        else:
            self._limited.warning("lost", "%d batches were not written: %s", len(batches), error)
            self.stats.failed_objects += 1
            if not isinstance(error, CommitUnknown):  # diskless.W7
                self._receipts.add_failed(flight.name, len(batches))
            failed = [batch for batch in batches if not batch.is_answered]
            self.stats.failed_batches += len(failed)
            answers = [(_taken(batch), error) for batch in failed]
        if failed:
            answers += self._refuse_followers(failed)
        self._size -= flight.flush.size
        self.stats.buffered_now = self._size
        self.stats.flushes.observe(self._clock.monotonic() - flight.flush.first_at)
        _answer(answers)
        flight.ended.set_result(None)
        while self._for_room and not self.is_full:
            self._for_room.popleft()()

    def _keep(self, flight: _Flight, outcomes: Sequence[BatchOutcome]) -> None:
        """Hold the receipt of an object, and hand over its data."""
        assert flight.encoded is not None, flight.name
        new = flight.encoded.new
        self._receipts.add(Receipt(flight.name, tuple(map(encode_outcome, outcomes))),
                           _notes(flight.flush, outcomes))
        if self._on_committed is None:
            return
        logs = flight.flush.logs
        if not flight.is_sole:
            for log in logs:
                log.data = bytearray(log.data)
        try:
            self._on_committed(new, outcomes, logs)
        except Exception:  # noqa: BLE001 the batches are committed, whatever a listener does
            _log.exception("what was committed could not be handed over")

    def _outcomes(
        self, batches: Iterable[BufferedBatch], outcomes: Iterable[BatchOutcome]
    ) -> tuple[list[_Answer], list[BufferedBatch]]:
        """The answers of a committed object, and the batches that others must not follow."""
        answers: list[_Answer] = []
        failed: list[BufferedBatch] = []
        for batch, outcome in zip(batches, outcomes, strict=True):
            done, batch.done = batch.done, None
            if done is None:
                continue  # it was refused before
            answers.append((done, outcome))
            if outcome.is_duplicate:
                self.stats.duplicate_batches += 1
            elif outcome.code is not Code.NONE:
                self.stats.refused_batches += 1
                if outcome.code not in _FINAL:
                    failed.append(batch)
        return answers, failed

    def _refuse_followers(self, failed: Iterable[BufferedBatch]) -> list[_Answer]:
        """Refuse what the producers of failed batches have sent after them (diskless.W4)."""
        producers: set[ProducerKey] = set()
        for batch in failed:
            if batch.header.producer_id >= 0:
                self._guard.failed(batch.log, batch.header)
                producers.add(batch.producer)
        if not producers:
            return []
        refused = [batch for flight in self._flights for batch in flight.flush.batches()
                   if not batch.is_answered and batch.producer in producers]
        removed = self._buffer.remove(producers)
        self._size -= sum(batch.header.size for batch in removed)
        self.stats.followers_refused += len(refused) + len(removed)
        return [(_taken(batch), _follower(batch.log)) for batch in (*refused, *removed)]

    # -- receipts

    def _await_silence(self) -> None:
        """Store the receipts on their own, unless an object comes soon that can hold them."""
        if self._receipts and self._receipts_timer is None and not self._is_closing:
            self._receipts_timer = asyncio.get_running_loop().call_later(
                self._limits.receipts_ms / 1000, self._silent)

    def _silent(self) -> None:
        self._receipts_timer = None
        if not self._flights and not self._buffer.count:
            spawn(self._store_receipts(), "store receipts")
        # else the objects under way hold them, or `_commit_all` calls `_await_silence` again

    async def _store_receipts(self) -> None:
        if not self._receipts:
            return
        taken = self._receipts.take()
        encoded = encode_object(self._next_name(), (), created_ms=self._clock.now_ms(),
                                receipts=taken.receipts, notes=taken.notes)
        try:
            await self._attempts.put(encoded.key, encoded.buffers, encoded.size)
            self.stats.receipt_objects += 1
        except QuipuError as error:
            self._receipts.give_back(taken)
            self._limited.warning("receipts", "receipts were not stored: %s", error)
            self._await_silence()


_REFUSED: Final = BatchOutcome(Code.NOT_LEADER_OR_FOLLOWER)


def _notes(flush: Flush, outcomes: Sequence[BatchOutcome]) -> Iterator[LogNote]:
    """What the last outcome of each log says of its bounds."""
    end = 0
    for log in flush.logs:
        start, end = end, end + len(log.batches)
        for number in range(end - 1, start - 1, -1):
            outcome = outcomes[number]
            if outcome.code is Code.NONE and not outcome.is_duplicate:
                count = log.batches[number - start].header.last_offset_delta + 1
                yield LogNote(log.log, max(Offset(0), outcome.log_start_offset),
                              Offset(outcome.base_offset + count))
                break


def _taken(batch: BufferedBatch) -> Done:
    done, batch.done = batch.done, None
    assert done is not None, batch.log  # diskless.W3
    return done


def _follower(log: LogKey) -> RequestError:
    return RequestError(
        f"{log}: an earlier batch of this producer was not written; send it again first",
        code=Code.NOT_LEADER_OR_FOLLOWER, kind=ErrorKind.RETRY)


def _answer(answers: Iterable[_Answer]) -> None:
    for done, outcome in answers:
        try:
            done(outcome)
        except Exception:  # noqa: BLE001 the others get theirs
            _log.exception("an answer could not be given")
