"""Records that must be looked at: on the loop where they are few, in a thread where they are many.

Decompression costs far more than all else that is done with a batch.  A small one is looked at on
the loop, where it is appended; a large one would keep every other connection waiting.  Then the
whole request is copied, for frames are borrowed, the requests behind it on its connection wait,
and it is carried out as any other when the threads are done.  So batches of one connection are
appended in the order in which they came, whatever their sizes.  The same goes for a search by time,
which has to go through the records of one batch.

Invariants
    W1  what the loop decompresses at once is in proportion to the bytes that came for it
    W2  copies of requests that wait for threads take at most queued.max.request.bytes
    W3  searches by time never keep a batch that was produced from being looked at
    W4  a request has threads for log.message.records.check.max.ms and one batch, and only while
        its client is there

Not here: what is looked at (wire/record_check.py), the threads (runtime/workers.py).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from quipu.broker.context import Broker
from quipu.broker.rules import Rules
from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.storage.timestamps import Search, TimestampAndOffset
from quipu.wire.fast import Part, check_batch
from quipu.wire.record_batch import CODEC_POSITION, COMPRESSION_MASK, HEADER_SIZE
from quipu.wire.record_check import check_records, decompressed_size_max
from quipu.wire.records import RecordsSeen, TimeFound

LOOP_SIZE_MAX: Final = 256 << 10  # of records decompressed on the loop, if the batch is not small
LOOP_SIZE_SMALL: Final = 64 << 10  # the same, whatever the size of the batch
LOOP_RATIO_MAX: Final = 16

Seen = dict[int, RecordsSeen | QuipuError]  # by number of the part


def heavy_parts(broker: Broker, frame: memoryview, parts: list[Part]) -> list[int]:
    """Numbers of the parts whose batches are to be looked at in a thread; mostly none (W1)."""
    return [
        number for number, part in enumerate(parts)
        if part[3] - part[2] > HEADER_SIZE and part[2] >= 0  # as in `is_compressed`
        and frame[part[2] + CODEC_POSITION] & COMPRESSION_MASK
        and _is_heavy(broker, frame, part)
    ]


def is_compressed(frame: memoryview, part: Part) -> bool:
    """Do the records of a part have to be decompressed?"""
    _, _, start, end = part
    return (end - start > HEADER_SIZE and start >= 0
            and frame[start + CODEC_POSITION] & COMPRESSION_MASK != 0)


def _is_heavy(broker: Broker, frame: memoryview, part: Part) -> bool:
    topic, index, start, end = part
    batch = frame[start:end]
    partition = broker.partitions.find_for_wire(topic, index)
    if (partition is None or not partition.is_leading
            or not partition.rules.checks_compressed
            or len(batch) > partition.rules.batch_size_max):
        return False  # refused, or not looked at
    return is_heavy(len(batch), decompressed_size_max(batch))


def is_heavy(batch_size: int, size: int) -> bool:
    """Are `size` bytes of records, of a batch of `batch_size` bytes, too many for the loop (W1)?"""
    return size > max(LOOP_SIZE_SMALL, min(LOOP_SIZE_MAX, LOOP_RATIO_MAX * batch_size))


def reserve(broker: Broker, size: int) -> bool:
    """Is there room for a copy of a request of `size` bytes?  It is taken then (W2)."""
    if broker.stats.checking_bytes + size > broker.settings.queued_max_request_bytes:
        return False
    broker.stats.checking_bytes += size
    return True


def no_room(broker: Broker) -> RequestError:
    """What to answer if there is not."""
    return RequestError(
        "too many compressed batches wait to be checked (queued.max.request.bytes = "
        f"{broker.settings.queued_max_request_bytes}); send it again later",
        code=Code.REQUEST_TIMED_OUT, kind=Kind.RETRY)


async def find_record(
    broker: Broker, search: Search, size_max: int
) -> TimestampAndOffset | None:
    """What a search by time finds; its large looks are done in threads, and others have turns.

    What exceeds `size_max` bytes once decompressed is not looked into.
    """
    outcome: TimeFound | None = None
    while True:
        try:
            look = search.send(outcome)
        except StopIteration as stop:
            found: TimestampAndOffset | None = stop.value
            return found
        if look is not None and is_heavy(len(look.batch.data), look.size_max):
            outcome = await broker.workers.run_patiently(partial(look.run, size_max))
        else:
            outcome = None if look is None else look.run(size_max)
            await asyncio.sleep(0)


async def look(
    broker: Broker, frame: memoryview, parts: list[Part], heavy: list[int],
    is_wanted: Callable[[], bool],
) -> Seen | None:
    """What the records of the `heavy` parts are like, by number; `frame` stays as it is.

    None if the answer is not wanted any more (W4).
    """
    seen: Seen = {}
    looks = Looks(broker, frame)
    for number in heavy:
        found = await looks.at(parts[number])
        if found is not None:
            seen[number] = found
        if not is_wanted():
            return None
    return seen


class Looks:
    """The looks at compressed batches of one request, in threads, within the time for them (W4)."""

    __slots__ = ("_broker", "_frame", "_seconds")

    def __init__(self, broker: Broker, frame: memoryview) -> None:
        self._broker = broker
        self._frame = frame
        self._seconds = 0.0

    async def at_heavy(self, part: Part) -> RecordsSeen | QuipuError | None:
        """As `at`; None as well if the records can be looked at on the loop."""
        if is_compressed(self._frame, part) and _is_heavy(self._broker, self._frame, part):
            return await self.at(part)
        return None

    async def at(self, part: Part) -> RecordsSeen | QuipuError | None:
        """What the records of a part are like; None if its partition is not here.

        A part that is not reached in time is to be sent again.
        """
        broker, (topic, index, start, end) = self._broker, part
        partition = broker.partitions.find_for_wire(topic, index)
        if partition is None:
            return None
        limit_ms = broker.settings.log_message_records_check_max_ms
        if self._seconds > limit_ms / 1000:
            return _too_long(limit_ms)
        look = _Look(self._frame[start:end], partition.rules, broker.clock.monotonic)
        seen = await broker.workers.run(look.run, spent_seconds=self._seconds)
        self._seconds += look.seconds
        broker.stats.batches_checked_in_threads += 1
        return seen


class _Look:
    """A look at the records of one batch, for a thread, and how long it took."""

    def __init__(self, batch: memoryview, rules: Rules, monotonic: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._batch = batch
        self._rules = rules
        self._monotonic = monotonic

    def run(self) -> RecordsSeen | QuipuError:
        rules, began = self._rules, self._monotonic()
        try:
            header = check_batch(self._batch, size_max=rules.batch_size_max)
            return check_records(self._batch, header, keyed=rules.keyed,
                                 size_max=rules.decompressed_size_max, threaded=True)
        except QuipuError as error:
            return error
        finally:
            self.seconds = self._monotonic() - began


def _too_long(limit_ms: int) -> RequestError:
    return RequestError(
        "the compressed batches before it in this request took too long to check "
        f"(log.message.records.check.max.ms = {limit_ms}): send it again, with fewer others",
        code=Code.REQUEST_TIMED_OUT, kind=Kind.RETRY)
