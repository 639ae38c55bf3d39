"""Appends one batch of a Produce request, and responds when the outcome of all batches is known.

The offset or error of a batch may be known at once, or only after other nodes, a disk or an object
store have acknowledged it.

Not here: what a request asks for (handlers/k00_produce.py); what an outcome promises
(model/partition_log.py).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker
from quipu.broker.serving.reply import Reply
from quipu.broker.serving.routing import endpoints, find_leaders, why_absent
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import TimestampMs
from quipu.model.partition_log import NO_OFFSET, AppendResult, PendingAppend
from quipu.wire.compression import Compression
from quipu.wire.fast import Part, encode_one_part
from quipu.wire.produce_codec import ProducedPart, encode_produce_response
from quipu.wire.record_batch import (
    CODEC_POSITION,
    COMPRESSION_MASK,
    HEADER_SIZE,
    NotOneBatch,
    check_one_batch,
)
from quipu.wire.record_check import InvalidRecords
from quipu.wire.records import RecordsSeen

NOT_LEADER: Final = int(Code.NOT_LEADER_OR_FOLLOWER)
ZSTD_VERSION_MIN: Final = 7  # of Produce
VERSION_LEADERS: Final = 10  # from this version on, responses name the leader

_NOT_OF_LOG: Final = frozenset({
    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER, Code.MESSAGE_TOO_LARGE,
    Code.CORRUPT_MESSAGE, Code.KAFKA_STORAGE_ERROR, Code.INVALID_TOPIC_EXCEPTION})

Topics = list[tuple[str | bytes, list[ProducedPart]]]


class ProducedBatch(NamedTuple):
    """One batch of a request: its outcome, or the append that is not complete yet."""

    topic: str | bytes
    part: "ProducedPart | PendingPart"


def last_of_each(parts: Sequence[Part]) -> list[Part]:
    """The batches of a request without those that a later one for the same partition replaces."""
    return list({(part[0], part[1]): part for part in parts}.values())


def refuse_acks(
    broker: Broker, frame: memoryview, parts: Sequence[Part], version: int
) -> list[ProducedBatch]:
    """The batches of a request whose `acks` do not exist, refused."""
    return [ProducedBatch(part[0], refuse_for_acks(broker, frame, part, version))
            for part in parts]


def refuse_for_acks(broker: Broker, frame: memoryview, part: Part, version: int) -> ProducedPart:
    """The response to a batch of a request whose `acks` do not exist; other faults come first."""
    topic, index, start, end = part
    if broker.partitions.find_for_wire(topic, index) is None:
        return ProducedPart(index, why_absent(broker, topic, index))
    error = why_not_one_batch(frame[start:end] if start >= 0 else None, version)
    if error is not None:
        return ProducedPart(index, error.code, error_message=str(error))
    return ProducedPart(index, Code.INVALID_REQUIRED_ACKS)


def why_not_one_batch(batch: memoryview | None, version: int) -> RequestError | None:
    """Why a Produce request of a version may not have this for a partition, or None."""
    if batch is None:
        return NotOneBatch("no records: send one batch")
    try:
        check_one_batch(batch)
    except RequestError as error:
        return error
    return zstd_too_early(batch) if version < ZSTD_VERSION_MIN else None


def zstd_too_early(batch: memoryview) -> RequestError | None:
    """The error of a batch that is compressed by zstd, in a version that does not have it.

    What is not one whole batch has a fault that comes first.
    """
    if len(batch) < HEADER_SIZE or batch[CODEC_POSITION] & COMPRESSION_MASK != Compression.ZSTD:
        return None
    try:
        check_one_batch(batch)
    except RequestError:
        return None
    return NotOneBatch(f"zstd needs Produce v{ZSTD_VERSION_MIN} or later",
                       code=Code.UNSUPPORTED_COMPRESSION_TYPE)


def zstd_outcomes(frame: memoryview, parts: Sequence[Part]) -> dict[int, RequestError]:
    """The errors of `zstd_too_early`, by the numbers of the parts."""
    found = {number: zstd_too_early(frame[start:end])
             for number, (_, _, start, end) in enumerate(parts) if start >= 0}
    return {number: error for number, error in found.items() if error is not None}


class PendingPart:
    """A batch that is appended, and whose outcome is not known yet."""

    __slots__ = ("_broker", "_size", "append", "partition")

    def __init__(
        self, broker: Broker, partition: int, append: PendingAppend, size: int
    ) -> None:
        self.partition = partition
        self.append = append
        self._broker = broker
        self._size = size

    def when_done(self, done: Callable[[ProducedPart], None]) -> None:
        """Call `done` with the batch's part of the response, once the outcome is known."""
        self.append.when_done(lambda outcome: done(self.completed(outcome)))

    def completed(self, outcome: AppendResult | QuipuError) -> ProducedPart:
        """Count the batch, whose outcome is known; return its part of the response."""
        if isinstance(outcome, QuipuError):
            return refused(self._broker, self.partition, outcome)
        base_offset, last_offset, log_start_offset, log_append_time, duplicate = outcome
        stats = self._broker.stats
        if duplicate:
            stats.duplicate_batches += 1
        else:
            stats.produced_batches += 1
            stats.produced_records += last_offset - base_offset + 1
            stats.produced_bytes += self._size
        return ProducedPart(self.partition, 0, base_offset, log_append_time, log_start_offset)


def append(
    broker: Broker,
    topic: str | bytes,
    index: int,
    batch: memoryview | None,
    arrival: tuple[TimestampMs, int, int],
    *,
    checked: RecordsSeen | QuipuError | None,
) -> ProducedPart | PendingPart:
    """Append a batch; `arrival` is when it came, the request's acks, and its timeout in ms.

    `checked` is the result of the check of its records, if they were checked before.
    """
    partition = broker.partitions.find_for_wire(topic, index)
    if partition is None:
        return ProducedPart(index, why_absent(broker, topic, index))
    if batch is None:
        return refused(broker, index, NotOneBatch("no records: send one batch"))
    now_ms, acks, timeout_ms = arrival
    try:
        result = partition.append(batch, now_ms, acks, timeout_ms, checked)
    except QuipuError as error:
        return refused(broker, index, error, partition.log_start_offset)
    if not isinstance(result, AppendResult):
        return PendingPart(broker, index, result, len(batch))
    # As in `PendingPart.completed`, which is not called to save a call: this is the usual case.
    base_offset, last_offset, log_start_offset, log_append_time, duplicate = result
    stats = broker.stats
    if duplicate:
        stats.duplicate_batches += 1
    else:
        stats.produced_batches += 1
        stats.produced_records += last_offset - base_offset + 1
        stats.produced_bytes += len(batch)
    return ProducedPart(index, 0, base_offset, log_append_time, log_start_offset)


def refused(
    broker: Broker, index: int, error: QuipuError, log_start_offset: int = NO_OFFSET
) -> ProducedPart:
    """Count a batch that failed with `error`; return its part of the response.

    As in Kafka, a batch that the partition's log refuses is told where that log begins.
    """
    code = code_of(error)
    broker.stats.request_errors[0, code] += 1
    is_of_log = code not in _NOT_OF_LOG and not isinstance(error, NotOneBatch)
    return ProducedPart(
        index, code, error_message=str(error),
        log_start_offset=log_start_offset if is_of_log else NO_OFFSET,
        record_errors=error.record_errors if isinstance(error, InvalidRecords) else ())


class PendingSingleProduce:
    """A request of one batch, which it responds to when called with the batch's outcome."""

    __slots__ = ("_broker", "_head", "_part", "_reply", "_topic")

    def __init__(
        self, broker: Broker, reply: Reply, head: tuple[int, int, int], topic: str | bytes,
        part: PendingPart,
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._head = head  # version, correlation id, acks
        self._topic = topic
        self._part = part

    def __call__(self, outcome: AppendResult | QuipuError) -> None:
        part = self._part.completed(outcome)
        if part.error_code == 0:
            version, correlation_id, _ = self._head
            self._reply.send([encode_one_part(correlation_id, version, self._topic, part)])
        else:
            batch = ProducedBatch(self._topic, part)
            PendingProduce(self._broker, self._reply, self._head, [batch]).start()


class PendingProduce:
    """A request whose batches were given to their partitions, until all outcomes are known."""

    __slots__ = ("_batches", "_broker", "_head", "_reply", "_waiting")

    def __init__(
        self, broker: Broker, reply: Reply, head: tuple[int, int, int],
        batches: list[ProducedBatch],
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._head = head  # version, correlation id, acks
        self._batches = batches
        self._waiting = 1  # batches whose outcome is not known, and 1 until `start` has ended

    def start(self) -> None:
        """Respond as soon as the outcome of every batch is known."""
        for number, batch in enumerate(self._batches):
            if isinstance(batch.part, PendingPart):
                self._waiting += 1
                batch.part.when_done(partial(self._done, number))
        self._waiting -= 1
        if self._waiting == 0:
            self._respond()

    def _done(self, number: int, part: ProducedPart) -> None:
        self._batches[number] = ProducedBatch(self._batches[number].topic, part)
        self._waiting -= 1
        if self._waiting == 0:
            self._respond()

    def _respond(self) -> None:
        batches = self._batches
        version, correlation_id, acks = self._head
        if acks == 0:
            failed = [batch.part for batch in batches if outcome(batch.part).error_code]
            if failed:
                self._reply.close(f"produce with acks=0 was refused: {failed[0]}")
            else:
                self._reply.send([])
            return
        moved = [(batch.topic, batch.part.partition) for batch in batches
                 if outcome(batch.part).error_code == NOT_LEADER and version >= VERSION_LEADERS]
        if len(batches) == 1 and not moved:
            self._reply.send([encode_one_part(
                correlation_id, version, batches[0].topic, outcome(batches[0].part))])
        else:
            leaders = find_leaders(self._broker, moved)
            self._reply.send([encode_produce_response(
                correlation_id, version, by_topic(
                    [batch.topic for batch in batches], [batch.part for batch in batches]),
                leaders=leaders,
                endpoints=endpoints(self._broker, leaders.values(), self._reply.listener))])


def outcome(part: ProducedPart | PendingPart) -> ProducedPart:
    """The batch's part of the response; its outcome must be known."""
    assert isinstance(part, ProducedPart), f"the outcome of {part} is not known"
    return part


def by_topic(
    topics: Sequence[str | bytes], parts: Sequence[ProducedPart | PendingPart]
) -> Topics:
    """Group the outcomes by topic; `topics` has the topic of each part."""
    grouped: dict[str | bytes, list[ProducedPart]] = {}
    for topic, part in zip(topics, parts, strict=True):
        grouped.setdefault(topic, []).append(outcome(part))
    return list(grouped.items())
