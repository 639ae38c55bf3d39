"""Checks the records of batches in a thread, and compresses them again where a topic wants that.

Decompression takes far longer than everything else that is done with a batch.  A small batch is
decompressed on the event loop, where it is appended; a large one would block every other
connection.  So the frame of a request with a large batch, which is borrowed, is kept; later
requests of its connection wait; and the request is carried out when the threads are done.  Batches
of one connection are therefore appended in the order in which they came, whatever their sizes.
Searches by timestamp, which decompress batches too, use the same threads.  A batch whose codec is
not the one of its topic's compression.type is decompressed, checked and compressed again in a
thread, whatever its size.

Invariants
    broker.serving.W1  the number of bytes that the loop decompresses at once is proportional to the
                       number of bytes received
    broker.serving.W2  requests that wait for threads hold at most queued.max.request.bytes
    broker.serving.W3  searches by timestamp never delay the check of a produced batch
    broker.serving.W4  a request may use threads for log.message.records.check.max.ms and one batch
                       more, and only while its client is connected
    broker.serving.W5  a batch that was compressed again is no larger than max.message.bytes, and
                       until it is appended it counts towards queued.max.request.bytes

Not here: what is checked (wire/record_check.py), the threads (runtime/workers.py).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quipu.broker.partitions.heavy_batches import is_heavy
from quipu.broker.serving.context import Broker
from quipu.model.batch_rules import AS_PRODUCED, BatchRules
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.wire.compression import Compression
from quipu.wire.fast import Part, check_batch
from quipu.wire.recompression import recompress
from quipu.wire.record_batch import CODEC_POSITION, COMPRESSION_MASK, HEADER_SIZE, BatchHeader
from quipu.wire.record_check import (
    check_decompressed,
    check_records,
    decompress_records,
    decompressed_size_max,
)
from quipu.wire.records import RecordsSeen


class Recompressed(NamedTuple):
    """A batch that was compressed again, to be appended instead of the one that was sent."""

    seen: RecordsSeen | None  # of the check of its records; None: the topic wants none
    batch: bytearray


CheckOutcome = RecordsSeen | Recompressed | QuipuError
CheckOutcomes = dict[int, CheckOutcome]  # by the index of the part in the request


def heavy_parts(broker: Broker, frame: memoryview, parts: list[Part]) -> list[int]:
    """Indexes of the parts that must be checked, or compressed again, in a thread; mostly none."""
    if broker.recompressed:
        return [number for number, part in enumerate(parts) if needs_thread(broker, frame, part)]
    # broker.serving.W1
    return [
        number for number, part in enumerate(parts)
        if part[3] - part[2] > HEADER_SIZE and part[2] >= 0  # the same as `is_compressed`
        and frame[part[2] + CODEC_POSITION] & COMPRESSION_MASK
        and _is_heavy(broker, frame, part)
    ]


def needs_thread(broker: Broker, frame: memoryview, part: Part) -> bool:
    """Must a part be checked, or compressed again, in a thread?"""
    return _must_recompress(broker, frame, part) or (
        is_compressed(frame, part) and _is_heavy(broker, frame, part))


def _must_recompress(broker: Broker, frame: memoryview, part: Part) -> bool:
    """Does the topic want another codec than the batch has?"""
    topic, index, start, end = part
    if not broker.recompressed or end - start <= HEADER_SIZE or start < 0:
        return False
    partition = broker.partitions.find_for_wire(topic, index)
    return (partition is not None and partition.is_leader
            and end - start <= partition.rules.batch_size_max
            and is_other_codec(frame[start:end], partition.rules))


def is_other_codec(batch: memoryview, rules: BatchRules) -> bool:
    """Is the batch compressed in another way than compression.type asks for?"""
    return rules.codec not in (AS_PRODUCED, batch[CODEC_POSITION] & COMPRESSION_MASK)


def appended(
    frame: memoryview, part: Part, outcome: CheckOutcome | None
) -> tuple[memoryview | None, RecordsSeen | QuipuError | None]:
    """The batch to append for a part, and the outcome of its check, if there was one."""
    if isinstance(outcome, Recompressed):
        return memoryview(outcome.batch), outcome.seen
    _, _, start, end = part
    return frame[start:end] if start >= 0 else None, outcome


def is_compressed(frame: memoryview, part: Part) -> bool:
    """Do the records of a part have to be decompressed?"""
    _, _, start, end = part
    return (end - start > HEADER_SIZE and start >= 0
            and frame[start + CODEC_POSITION] & COMPRESSION_MASK != 0)


def _is_heavy(broker: Broker, frame: memoryview, part: Part) -> bool:
    topic, index, start, end = part
    batch = frame[start:end]
    partition = broker.partitions.find_for_wire(topic, index)
    if (partition is None or not partition.is_leader
            or not partition.rules.checks_compressed
            or len(batch) > partition.rules.batch_size_max):
        return False  # it is refused, or its records are not checked
    return is_heavy(len(batch), decompressed_size_max(batch))


def reserve(broker: Broker, size: int) -> bool:
    """Reserve memory for a request of `size` bytes; False if there is not enough."""
    # broker.serving.W2
    if broker.stats.checking_bytes + size > broker.settings.queued_max_request_bytes:
        return False
    broker.stats.checking_bytes += size
    return True


def no_room(broker: Broker) -> RequestError:
    """The error for a batch if `reserve` returned False."""
    return RequestError(
        "too many compressed batches wait to be checked (queued.max.request.bytes = "
        f"{broker.settings.queued_max_request_bytes}); send it again later",
        code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY)


async def check_heavy_parts(
    broker: Broker, frame: memoryview, parts: list[Part], heavy: list[int],
    is_connected: Callable[[], bool],
) -> CheckOutcomes | None:
    """Check the records of the `heavy` parts; returns the outcomes by index.

    `frame` must not change meanwhile.  None if the client has disconnected (broker.serving.W4).
    The caller calls `release` with the outcomes when they are appended.
    """
    checked: CheckOutcomes = {}
    checks = HeavyBatchChecks(broker, frame)
    for number in heavy:
        found = await checks.check(parts[number])
        if found is not None:
            checked[number] = found
        if not is_connected():
            release(broker, checked.values())
            return None
    return checked


def release(broker: Broker, outcomes: Iterable[CheckOutcome | None]) -> None:
    """Free the memory that batches which were compressed again have taken (broker.serving.W5)."""
    for outcome in outcomes:
        if isinstance(outcome, Recompressed):
            broker.stats.checking_bytes -= len(outcome.batch)


class HeavyBatchChecks:
    """Checks compressed batches of one request in threads, up to a time limit per request."""

    # broker.serving.W4

    __slots__ = ("_broker", "_frame", "_seconds")

    def __init__(self, broker: Broker, frame: memoryview) -> None:
        self._broker = broker
        self._frame = frame
        self._seconds = 0.0

    async def check_if_heavy(self, part: Part) -> CheckOutcome | None:
        """As `check`; None also if the batch is small enough to be checked on the loop."""
        if needs_thread(self._broker, self._frame, part):
            return await self.check(part)
        return None

    async def check(self, part: Part) -> CheckOutcome | None:
        """Check the records of a part, and compress them again if their topic wants that.

        None if this node does not have its partition.  After the time limit, a part gets an error
        that says to send it again.
        """
        broker, (topic, index, start, end) = self._broker, part
        partition = broker.partitions.find_for_wire(topic, index)
        if partition is None:
            return None
        limit_ms = broker.settings.log_message_records_check_max_ms
        if self._seconds > limit_ms / 1000:
            return _too_long(limit_ms)
        check = _BatchCheck(self._frame[start:end], partition.rules, broker.clock.monotonic)
        checked = await broker.workers.run(check.run, spent_seconds=self._seconds)
        self._seconds += check.seconds
        broker.stats.batches_checked_in_threads += 1
        if isinstance(checked, Recompressed):
            if not reserve(broker, len(checked.batch)):  # broker.serving.W5
                return no_room(broker)
            broker.stats.batches_recompressed += 1
        return checked


class _BatchCheck:
    """The check of one batch's records, run in a thread, and how long it took."""

    def __init__(
        self, batch: memoryview, rules: BatchRules, monotonic: Callable[[], float]
    ) -> None:
        self.seconds = 0.0
        self._batch = batch
        self._rules = rules
        self._monotonic = monotonic

    def run(self) -> CheckOutcome:
        rules, began = self._rules, self._monotonic()
        try:
            header = check_batch(self._batch, size_max=rules.batch_size_max)
            if is_other_codec(self._batch, rules):
                return self._recompressed(header)
            return check_records(self._batch, header, keyed=rules.keyed,
                                 size_max=rules.decompressed_size_max, threaded=True)
        except QuipuError as error:
            return error
        finally:
            self.seconds = self._monotonic() - began

    def _recompressed(self, header: BatchHeader) -> Recompressed:
        rules, batch = self._rules, self._batch
        records = decompress_records(batch, rules.decompressed_size_max)
        wanted = rules.checks_plain if records is None else rules.checks_compressed
        seen = check_decompressed(
            batch, records, header, keyed=rules.keyed, threaded=True) if wanted else None
        return Recompressed(seen, recompress(
            batch, batch[HEADER_SIZE:] if records is None else records, Compression(rules.codec),
            rules.level, size_max=rules.batch_size_max))


def _too_long(limit_ms: int) -> RequestError:
    return RequestError(
        "the compressed batches before it in this request took too long to check "
        f"(log.message.records.check.max.ms = {limit_ms}): send it again, with fewer others",
        code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY)
