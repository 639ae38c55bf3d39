"""What Produce does with one batch, and requests whose batches were appended, until they are kept
and the client is told.

Not here: what a request asks for (handlers/k00_produce.py); when a batch is kept (partition.py).
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from quipu.broker.context import Broker
from quipu.broker.partition import ACKS_ALL
from quipu.broker.reply import Reply
from quipu.broker.routing import endpoints, find_leaders, why_absent
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import TimestampMs
from quipu.wire.fast import encode_one_part
from quipu.wire.produce_codec import ProducedPart, encode_produce_response
from quipu.wire.record_check import InvalidRecords
from quipu.wire.records import RecordsSeen

NOT_LEADER: Final = int(Code.NOT_LEADER_OR_FOLLOWER)
VERSION_LEADERS: Final = 10  # answers name the leader from here on

Kept = Callable[[Exception | None], None]
Topics = list[tuple[str | bytes, list[ProducedPart]]]


class Result(NamedTuple):
    """What became of one batch so far, and how to hear that it is kept if that must be awaited."""

    topic: str | bytes
    part: ProducedPart
    waits: Callable[[Kept], None] | None = None


def why_refused(transactional_id: str | None, acks: int) -> int:
    """Why nothing of a request is carried out; 0 if it is."""
    if transactional_id is not None:
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return 0 if -1 <= acks <= 1 else Code.INVALID_REQUIRED_ACKS


def append(
    broker: Broker,
    topic: str | bytes,
    index: int,
    batch: memoryview | None,
    stamps: tuple[TimestampMs, int, int],
    *,
    seen: RecordsSeen | QuipuError | None,
) -> Result:
    """Append a batch that came at a time with acks and timeout; final unless it `waits`.

    `seen` is what its records are like, if someone has looked at them already.
    """
    partition = broker.partitions.find_for_wire(topic, index)
    if partition is None:
        return Result(topic, ProducedPart(index, why_absent(broker, topic, index)))
    if batch is None:
        return Result(topic, ProducedPart(
            index, Code.INVALID_RECORD, error_message="no records: send one batch"))
    now_ms, acks, timeout_ms = stamps
    try:
        if isinstance(seen, QuipuError):
            partition.refused_before(seen)
            raise seen
        appended = partition.append(batch, now_ms, acks, seen)
    except QuipuError as error:
        broker.stats.request_errors[0, error.code] += 1
        return Result(topic, ProducedPart(
            index, error.code, error_message=str(error),
            record_errors=error.record_errors if isinstance(error, InvalidRecords) else ()))
    stats = broker.stats
    if appended.duplicate:
        stats.duplicate_batches += 1
    else:
        stats.produced_batches += 1
        stats.produced_records += appended.last_offset - appended.base_offset + 1
        stats.produced_bytes += len(batch)
    part = ProducedPart(
        index, 0, appended.base_offset, now_ms if partition.rules.append_time else -1,
        partition.log.log_start_offset)
    if not partition.acks_wait or (acks != ACKS_ALL and not partition.log.is_durable):
        return Result(topic, part)
    return Result(topic, part, partial(
        partition.when_kept, appended, len(batch), acks=acks, timeout_ms=timeout_ms))


class OneCall:
    """Answers a request of one batch, once that is kept."""

    __slots__ = ("_broker", "_head", "_reply", "_result")

    def __init__(
        self, broker: Broker, reply: Reply, head: tuple[int, int, int], result: Result
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._head = head  # version, correlation id, acks
        self._result = result

    def __call__(self, error: Exception | None) -> None:
        result = self._result
        if error is None:
            version, correlation_id, _ = self._head
            self._reply.send([
                encode_one_part(correlation_id, version, result.topic, result.part)])
        else:
            Call(self._broker, self._reply, self._head, [lost(result, error)]).start()


def lost(result: Result, error: Exception) -> Result:
    """What to answer for a batch that was appended, and is not kept."""
    code = error.code if isinstance(error, QuipuError) else Code.KAFKA_STORAGE_ERROR
    return Result(result.topic, ProducedPart(
        result.part.partition, code, error_message=str(error)))


class Call:
    """One request whose batches were appended, until all of them are kept."""

    __slots__ = ("_broker", "_head", "_reply", "_results", "_waiting")

    def __init__(
        self, broker: Broker, reply: Reply, head: tuple[int, int, int], results: list[Result]
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._head = head  # version, correlation id, acks
        self._results = results
        self._waiting = 1  # for `start`, and for every batch that is not kept yet

    def start(self) -> None:
        """Answer as soon as every batch is kept."""
        for place, result in enumerate(self._results):
            if result.waits is not None:
                self._wait(place, result.waits)
        self._waiting -= 1
        if self._waiting == 0:
            self._answer()

    def _done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._answer()

    def _wait(self, place: int, when_kept: Callable[[Kept], None]) -> None:
        def kept(error: Exception | None) -> None:
            if error is not None:
                self._results[place] = lost(self._results[place], error)
            self._done()

        self._waiting += 1
        when_kept(kept)

    def _answer(self) -> None:
        results = self._results
        version, correlation_id, acks = self._head
        if acks == 0:
            refused = [result.part for result in results if result.part.error_code]
            if refused:
                self._reply.close(f"produce with acks=0 was refused: {refused[0]}")
            else:
                self._reply.send([])
            return
        moved = [(result.topic, result.part.partition) for result in results
                 if result.part.error_code == NOT_LEADER and version >= VERSION_LEADERS]
        if len(results) == 1 and not moved:
            topic, part, _ = results[0]
            self._reply.send([encode_one_part(correlation_id, version, topic, part)])
        else:
            leaders = find_leaders(self._broker, moved)
            self._reply.send([encode_produce_response(
                correlation_id, version, by_topic(results), leaders=leaders,
                endpoints=endpoints(self._broker, leaders.values()))])


def by_topic(results: list[Result]) -> Topics:
    """Group answers as the request grouped its batches."""
    topics: dict[str | bytes, list[ProducedPart]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result.part)
    return list(topics.items())
