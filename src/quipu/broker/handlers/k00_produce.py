"""Produce — API key 0, versions 3-13; 0-2 are advertised and refused.

Behaviour
    * one batch per partition; the broker gives it its offsets and stores it as it came
    * one bad partition does not fail the others
    * acks=0 wants no answer: where a batch is refused, the connection is closed instead, so that
      the client notices
    * with flush.messages=1 the answer waits until the batch is on disk, together with all others
      that came meanwhile
    * acks=1 and acks=all promise the same on a node without replicas

Versions
    v0-2  some clients take their absence for that of compression, so they are advertised; the
          answer says UNSUPPORTED_VERSION
    v5    log start offset        v8  error messages        v9  flexible encoding
    v13   topics by id
"""

from struct import Struct
from typing import Final

from quipu.broker.context import Broker
from quipu.broker.partition import Partition
from quipu.broker.reply import Reply
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.storage.log import Appended
from quipu.wire.fast import parse_produce
from quipu.wire.produce_codec import (
    VERSION_FLEXIBLE,
    ProducedPart,
    body_position,
    encode_produce_response,
)

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13

_HEAD: Final = Struct(">hhi")
_NO_TRANSACTION: Final = b"\xff\xff"

Topics = list[tuple[str | bytes, list[ProducedPart]]]


def produce(broker: Broker, reply: Reply, frame: memoryview) -> None:
    """Append the request's batches and answer, now or once they are kept."""
    _, version, correlation_id = _HEAD.unpack_from(frame)
    if not VERSION_MIN <= version <= VERSION_MAX:
        _refuse_version(reply, frame, version, correlation_id)
        return
    position = body_position(frame, flexible=version >= VERSION_FLEXIBLE)
    transactional_id, acks, _, parts = parse_produce(frame, position, version)
    if not -1 <= acks <= 1 or transactional_id is not None:
        code = (Code.INVALID_REQUIRED_ACKS if transactional_id is None
                else Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        topics = _by_topic([(part[0], ProducedPart(part[1], code)) for part in parts])
        reply.send([encode_produce_response(correlation_id, version, topics)])
        return
    call = _Call(broker, reply, version, correlation_id, acks)
    now_ms = broker.clock.now_ms()
    for topic, index, start, end in parts:
        call.append(topic, index, frame[start:end] if start >= 0 else None, now_ms)
    call.waiting -= 1  # the request itself: every batch has been looked at
    if call.waiting == 0:
        call.answer()


class _Call:
    """One request while its batches are appended and kept."""

    __slots__ = ("_acks", "_broker", "_correlation_id", "_reply", "_results", "_version", "waiting")

    def __init__(
        self, broker: Broker, reply: Reply, version: int, correlation_id: int, acks: int
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._version = version
        self._correlation_id = correlation_id
        self._acks = acks
        self._results: list[tuple[str | bytes, ProducedPart]] = []
        self.waiting = 1  # batches that are not kept yet, and the request itself

    def append(
        self, topic: str | bytes, index: int, batch: memoryview | None, now_ms: int
    ) -> None:
        partition = self._broker.partitions.find_for_wire(topic, index)
        if partition is None:
            code = (Code.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str)
                    else Code.UNKNOWN_TOPIC_ID)
            self._results.append((topic, ProducedPart(index, code)))
            return
        if batch is None:
            self._results.append((topic, ProducedPart(
                index, Code.INVALID_RECORD, error_message="no records: send one batch")))
            return
        try:
            appended = partition.append(batch, now_ms)
        except QuipuError as error:
            self._failed(topic, index, error)
            return
        self._results.append((topic, ProducedPart(
            index, 0, appended.base_offset, now_ms if partition.rules.append_time else -1,
            partition.log.log_start_offset)))
        stats = self._broker.stats
        if appended.duplicate:
            stats.duplicate_batches += 1
        else:
            stats.produced_batches += 1
            stats.produced_records += appended.last_offset - appended.base_offset + 1
            stats.produced_bytes += len(batch)
        if partition.acks_wait:
            self._wait(partition, appended, len(batch))

    def _wait(self, partition: Partition, appended: Appended, size: int) -> None:
        place = len(self._results) - 1
        self.waiting += 1

        def kept(error: Exception | None) -> None:
            if error is not None:
                topic, part = self._results[place]
                code = error.code if isinstance(error, QuipuError) else Code.KAFKA_STORAGE_ERROR
                self._results[place] = (
                    topic, ProducedPart(part.partition, code, error_message=str(error)))
            self.waiting -= 1
            if self.waiting == 0:
                self.answer()

        partition.when_kept(appended, size, kept)

    def _failed(self, topic: str | bytes, index: int, error: QuipuError) -> None:
        self._broker.stats.request_errors[0, error.code] += 1
        self._results.append(
            (topic, ProducedPart(index, error.code, error_message=str(error))))

    def answer(self) -> None:
        if self._acks == 0:
            refused = [part for _, part in self._results if part.error_code]
            if refused:
                self._reply.close(f"produce with acks=0 was refused: {refused[0]}")
            else:
                self._reply.send([])
            return
        self._reply.send([encode_produce_response(
            self._correlation_id, self._version, _by_topic(self._results))])


def _by_topic(results: list[tuple[str | bytes, ProducedPart]]) -> Topics:
    """Group answers as the request grouped its batches."""
    if len(results) == 1:
        return [(results[0][0], [results[0][1]])]
    topics: dict[str | bytes, list[ProducedPart]] = {}
    for topic, part in results:
        topics.setdefault(topic, []).append(part)
    return list(topics.items())


def _refuse_version(reply: Reply, frame: memoryview, version: int, correlation_id: int) -> None:
    """Answer versions 0-2, whose bodies are those of v3 but for the transactional id."""
    if not 0 <= version < VERSION_MIN:
        raise MalformedBytes(f"Produce v{version} is not served; v{VERSION_MIN} to "
                             f"v{VERSION_MAX} are")
    position = body_position(frame, flexible=False)
    body = memoryview(_NO_TRANSACTION + bytes(frame[position:]))
    _, acks, _, parts = parse_produce(body, 0, VERSION_MIN)
    if acks == 0:
        reply.close(f"Produce v{version} is not served")
        return
    topics = _by_topic([
        (part[0], ProducedPart(part[1], Code.UNSUPPORTED_VERSION)) for part in parts])
    reply.send([encode_produce_response(correlation_id, version, topics)])
