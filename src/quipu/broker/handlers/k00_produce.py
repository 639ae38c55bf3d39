"""Produce — API key 0, versions 3-13; 0-2 are advertised and refused.

Behaviour
    * one batch per partition; the broker gives it its offsets and stores it as it came
    * a batch whose records are not what its header says is refused, and the answer names them;
      large compressed ones are looked at in a thread, and what comes behind them waits
    * one bad partition does not fail the others
    * a request of many batches, or of many bytes, takes turns with others: large_produce.py
    * acks=0 wants no answer: where a batch is refused, the connection is closed instead, so that
      the client notices
    * with flush.messages=1 the answer waits until the batch is on disk, together with all others
      that came meanwhile
    * acks=all waits for every node of the chain, at most the request's timeout; others do not
    * only the head of a chain takes batches, and only if enough nodes serve; others say who leads

Versions
    v0-2  some clients take their absence for that of compression, so they are advertised; the
          answer says UNSUPPORTED_VERSION
    v5    log start offset        v8  error messages        v9  flexible encoding
    v10   who leads, where this node does not     v13  topics by id
"""

from struct import Struct
from typing import Final

from quipu.broker import large_produce
from quipu.broker.context import Broker
from quipu.broker.producing import (
    NOT_LEADER,
    Call,
    OneCall,
    Result,
    append,
    by_topic,
    why_refused,
)
from quipu.broker.record_checks import Seen, heavy_parts, look, no_room, reserve
from quipu.broker.reply import Reply
from quipu.model.errors import Code, MalformedBytes
from quipu.runtime.spawn import spawn
from quipu.wire.fast import Part, encode_one_part, parse_produce
from quipu.wire.produce_codec import ProducedPart, body_position, encode_produce_response
from quipu.wire.record_batch import CODEC_POSITION, COMPRESSION_MASK, HEADER_SIZE

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
PARTS_MAX: Final = 128  # batches of a request that is served as it comes, in one go ...
SIZE_MAX: Final = 4 << 20  # ... and their bytes, if they are several

_Call = tuple[int, int, int, int]  # version, correlation id, acks, timeout

_HEAD: Final = Struct(">hhi")
_NO_TRANSACTION: Final = b"\xff\xff"


def produce(broker: Broker, reply: Reply, frame: memoryview) -> None:
    """Append the request's batches and answer, now or once they are kept."""
    _, version, correlation_id = _HEAD.unpack_from(frame)
    if not VERSION_MIN <= version <= VERSION_MAX:
        _refuse_version(reply, frame, version, correlation_id)
        return
    transactional_id, acks, timeout_ms, parts = parse_produce(frame, -1, version, PARTS_MAX)
    if not parts or (len(frame) > SIZE_MAX and len(parts) > 1):
        large_produce.begin(broker, reply, frame, version=version, correlation_id=correlation_id)
        return
    if not -1 <= acks <= 1 or transactional_id is not None:
        code = why_refused(transactional_id, acks)
        results = [Result(part[0], ProducedPart(part[1], code)) for part in parts]
        Call(broker, reply, (version, correlation_id, acks), results).start()
        return
    wait_ms = min(timeout_ms, broker.settings.request_max_wait_ms)
    call = version, correlation_id, acks, wait_ms
    if len(parts) == 1:  # nearly always: then nothing is called to learn that all is plain
        _, _, start, end = parts[0]
        if end - start <= HEADER_SIZE or not frame[start + CODEC_POSITION] & COMPRESSION_MASK:
            _carry_out(broker, reply, frame, parts, call)
            return
    heavy = heavy_parts(broker, frame, parts)
    if heavy:
        _look_first(broker, reply, frame, parts, call, heavy=heavy)
    else:
        _carry_out(broker, reply, frame, parts, call)


def _look_first(
    broker: Broker, reply: Reply, frame: memoryview, parts: list[Part], call: _Call,
    *, heavy: list[int],
) -> None:
    """Carry the request out when threads have looked at its large batches."""
    size = len(frame)
    if not reserve(broker, size):
        _carry_out(broker, reply, frame, parts, call,
                   seen=dict.fromkeys(heavy, no_room(broker)))
        return
    kept = reply.hold(frame)  # it is borrowed
    lost: list[bool] = []
    if call[2] != 0:  # who wants no answer may go before its records are taken
        reply.when_lost(lambda: lost.append(True))

    async def look_and_go_on() -> None:
        try:
            seen = await look(broker, kept, parts, heavy, lambda: not lost)
            if seen is not None:
                _carry_out(broker, reply, kept, parts, call, seen=seen)
        except Exception as error:
            reply.close(f"produce failed: {error!r}")
            raise
        finally:
            broker.stats.checking_bytes -= size
            reply.go_on()

    spawn(look_and_go_on(), "check of records")


def _carry_out(
    broker: Broker, reply: Reply, frame: memoryview, parts: list[Part], call: _Call,
    *, seen: Seen | None = None,
) -> None:
    """Append the batches, of which some were looked at already, and answer."""
    version, correlation_id, acks, timeout_ms = call
    stamps = broker.clock.now_ms(), acks, timeout_ms
    if len(parts) == 1 and acks != 0:  # by far the most common, and the short way for it
        topic, index, start, end = parts[0]
        result = append(broker, topic, index, frame[start:end] if start >= 0 else None, stamps,
                        seen=None if seen is None else seen.get(0))
        if result.waits is not None:
            result.waits(OneCall(broker, reply, (version, correlation_id, acks), result))
            return
        if result.part.error_code != NOT_LEADER:
            reply.send([encode_one_part(correlation_id, version, topic, result.part)])
            return
        results = [result]
    else:
        results = [
            append(broker, topic, index, frame[start:end] if start >= 0 else None, stamps,
                   seen=None if seen is None else seen.get(number))
            for number, (topic, index, start, end) in enumerate(parts)
        ]
    Call(broker, reply, (version, correlation_id, acks), results).start()


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
    topics = by_topic([
        Result(part[0], ProducedPart(part[1], Code.UNSUPPORTED_VERSION)) for part in parts])
    reply.send([encode_produce_response(correlation_id, version, topics)])
