"""Produce — API key 0, versions 3-13; 0-2 are advertised and refused.

Behaviour
    * one batch per partition, the last if it is named several times; the broker assigns its offsets
      and stores its bytes as they came, or compressed again if compression.type asks for that
    * a batch whose records do not match its header is refused, and the response names the records;
      large compressed batches are checked, and all are compressed again, in a thread, and later
      requests wait meanwhile
    * an error of one partition does not fail the others
    * a request of many batches, or of many bytes, takes turns with others: serving/large_produce.py
    * acks=0 wants no response: if a batch is refused, the connection is closed
    * with flush.messages=1 the response waits until the batch is on disk, in a shared flush
    * acks=all waits for every node that serves in the chain, at most for the request's timeout
    * any node takes a batch for a diskless topic, and responds once it is committed, whatever acks
      is; while too many bytes of such batches are on their way, requests wait
    * transactions are not served: batches of one get INVALID_TXN_STATE
    * only the head of a chain takes batches, and only if enough nodes serve; other nodes respond
      with NOT_LEADER_OR_FOLLOWER and the leader

Versions
    v0-2  some clients conclude from their absence that there is no compression, so they are
          advertised; the response is UNSUPPORTED_VERSION
    v5    log start offset        v7   zstd                     v8   error messages
    v9    flexible encoding       v10  the leader, elsewhere    v13  topics by id
"""

from struct import Struct
from typing import Final

from quipu.broker.serving import large_produce, record_checks
from quipu.broker.serving.context import Broker
from quipu.broker.serving.diskless_room import carry_out_when_room, must_wait, room
from quipu.broker.serving.producing import (
    NOT_LEADER,
    ZSTD_VERSION_MIN,
    PendingPart,
    PendingProduce,
    PendingSingleProduce,
    ProducedBatch,
    append,
    by_topic,
    last_of_each,
    refuse_acks,
    zstd_outcomes,
)
from quipu.broker.serving.record_checks import CheckOutcome, CheckOutcomes
from quipu.broker.serving.reply import Reply
from quipu.model.errors import Code, MalformedBytes
from quipu.runtime.spawn import spawn
from quipu.wire.fast import Part, encode_one_part, parse_produce
from quipu.wire.produce_codec import ProducedPart, body_position, encode_produce_response
from quipu.wire.record_batch import CODEC_POSITION, COMPRESSION_MASK, HEADER_SIZE

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
PARTS_MAX: Final = 128  # batches of a request that is carried out without pauses ...
SIZE_MAX: Final = 4 << 20  # ... and their bytes, if they are several

_ProduceHead = tuple[int, int, int, int]  # version, correlation id, acks, timeout in ms

_HEAD: Final = Struct(">hhi")
_NO_TRANSACTION: Final = b"\xff\xff"


def produce(broker: Broker, reply: Reply, frame: memoryview) -> None:
    """Append the request's batches and respond, at once or when they are kept."""
    _, version, correlation_id = _HEAD.unpack_from(frame)
    if not VERSION_MIN <= version <= VERSION_MAX:
        _refuse_version(reply, frame, version, correlation_id)
        return
    _, acks, timeout_ms, parts = parse_produce(frame, -1, version, PARTS_MAX)
    if not parts or (len(frame) > SIZE_MAX and len(parts) > 1):
        large_produce.begin(broker, reply, frame, version=version, correlation_id=correlation_id)
        return
    if len(parts) > 1:
        parts = last_of_each(parts)
    if not -1 <= acks <= 1:
        batches = refuse_acks(broker, frame, parts, version)
        PendingProduce(broker, reply, (version, correlation_id, acks), batches).start()
        return
    wait_ms = min(timeout_ms, broker.settings.request_max_wait_ms)
    head = version, correlation_id, acks, wait_ms
    if len(parts) == 1 and not broker.recompressed:  # nearly always: saves a call
        _, _, start, end = parts[0]
        if end - start <= HEADER_SIZE or not frame[start + CODEC_POSITION] & COMPRESSION_MASK:
            if broker.diskless is None or not broker.diskless.is_full:
                _carry_out(broker, reply, frame, parts, head)
            else:
                _carry_out_when_room(broker, reply, frame, parts, head)
            return
    heavy = record_checks.heavy_parts(broker, frame, parts)
    if heavy:
        _check_first(broker, reply, frame, parts, head, heavy=heavy)
    else:
        _carry_out_when_room(broker, reply, frame, parts, head)


def _carry_out_when_room(
    broker: Broker, reply: Reply, frame: memoryview, parts: list[Part], head: _ProduceHead
) -> None:
    """Carry out the request; if it is for diskless topics, once they have room for it."""
    if must_wait(broker, parts):
        carry_out_when_room(broker, reply, frame, acks=head[2], carry_out=lambda kept: _carry_out(
            broker, reply, kept, parts, head))
    else:
        _carry_out(broker, reply, frame, parts, head)


def _check_first(
    broker: Broker, reply: Reply, frame: memoryview, parts: list[Part], head: _ProduceHead,
    *, heavy: list[int],
) -> None:
    """Carry out the request after threads have checked its large batches."""
    size = len(frame)
    if not record_checks.reserve(broker, size):
        _carry_out(broker, reply, frame, parts, head,
                   checked=dict.fromkeys(heavy, record_checks.no_room(broker)))
        return
    kept = reply.hold(frame)  # it is borrowed
    lost: list[bool] = []
    outcomes: list[CheckOutcome] = []
    if head[2] != 0:  # with acks=0 a client may disconnect before its batches are appended
        reply.when_lost(lambda: lost.append(True))

    async def check_and_carry_out() -> None:
        try:
            checked = await record_checks.check_heavy_parts(
                broker, kept, parts, heavy, lambda: not lost)
            if checked is not None:
                outcomes.extend(checked.values())
                await room(broker, parts)
                _carry_out(broker, reply, kept, parts, head, checked=checked)
        except Exception as error:
            reply.close(f"produce failed: {error!r}")
            raise
        finally:
            record_checks.release(broker, outcomes)
            broker.stats.checking_bytes -= size
            reply.go_on()

    spawn(check_and_carry_out(), "check of records")


def _carry_out(
    broker: Broker, reply: Reply, frame: memoryview, parts: list[Part], head: _ProduceHead,
    *, checked: CheckOutcomes | None = None,
) -> None:
    """Append the batches, some of which are `checked`, and respond."""
    version, correlation_id, acks, timeout_ms = head
    if version < ZSTD_VERSION_MIN and (early := zstd_outcomes(frame, parts)):
        checked = {**(checked or {}), **early}
    arrival = broker.clock.now_ms(), acks, timeout_ms
    if len(parts) == 1 and acks != 0:  # by far the most common: fewer calls
        topic, index, start, end = parts[0]
        if checked is None:
            part = append(broker, topic, index, frame[start:end] if start >= 0 else None, arrival,
                          checked=None)
        else:
            batch, seen = record_checks.appended(frame, parts[0], checked.get(0))
            part = append(broker, topic, index, batch, arrival, checked=seen)
        if isinstance(part, PendingPart):
            part.append.when_done(PendingSingleProduce(
                broker, reply, (version, correlation_id, acks), topic, part))
            return
        if part.error_code != NOT_LEADER:
            reply.send([encode_one_part(correlation_id, version, topic, part)])
            return
        batches = [ProducedBatch(topic, part)]
    else:
        batches = []
        for number, each in enumerate(parts):
            batch, seen = record_checks.appended(
                frame, each, None if checked is None else checked.get(number))
            batches.append(ProducedBatch(each[0], append(
                broker, each[0], each[1], batch, arrival, checked=seen)))
    PendingProduce(broker, reply, (version, correlation_id, acks), batches).start()


def _refuse_version(reply: Reply, frame: memoryview, version: int, correlation_id: int) -> None:
    """Respond to versions 0-2, whose bodies are those of v3 without the transactional id."""
    if not 0 <= version < VERSION_MIN:
        raise MalformedBytes(f"Produce v{version} is not served; v{VERSION_MIN} to "
                             f"v{VERSION_MAX} are")
    position = body_position(frame, flexible=False)
    body = memoryview(_NO_TRANSACTION + bytes(frame[position:]))
    _, acks, _, parts = parse_produce(body, 0, VERSION_MIN)
    if acks == 0:
        reply.close(f"Produce v{version} is not served")
        return
    topics = by_topic([part[0] for part in parts], [
        ProducedPart(part[1], Code.UNSUPPORTED_VERSION) for part in parts])
    reply.send([encode_produce_response(correlation_id, version, topics)])
