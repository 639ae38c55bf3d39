"""Messages of chains as bytes: fixed layouts, big endian; several may follow each other.

    all               kind u8 | topic id 16 | partition i32 | epoch i32
    1 DescribeLog     nothing more
    2 LogDescription  reason u8 | session i64 | log start i64 | log end i64 | committed log i64 |
                      count u16, and per epoch: epoch i32 | start i64
    3 Replicate       version i32 | flags u8 | session i64 | prev end i64 | prev epoch i32 |
                      durable log i64, offset i64 | committed log i64, offset i64 |
                      sender end i64 | receiver end i64 | count u16, and per entry: size u32;
                      then the entries
    4 Ack             session i64 | acked log i64, offset i64 | end log i64 | committed log i64
    5 Fenced          nothing more

A message states its own size, so one frame may hold many: acknowledgements of many partitions cost
one write.  Entries are neither copied on the way out nor on the way in: what is decoded are views
of the frame.

Not here: what a message means (messages.py), whether an entry is a batch (storage checks it).
"""

import struct
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from quipu.chain.messages import (
    ENTRIES_MAX,
    EPOCHS_MAX,
    OPEN,
    REQUIRED,
    RESTART,
    TRUNCATE,
    Ack,
    Buffer,
    DescribeLog,
    DescribeReason,
    Fenced,
    LogDescription,
    Mark,
    Message,
    Replicate,
)
from quipu.model.bounds import EPOCH_MAX, OFFSET_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset

DESCRIBE, DESCRIBED, REPLICATE, ACK, FENCED = range(1, 6)

_PLAIN: Final = Struct(">B16sii")
_DESCRIBED: Final = Struct(">B16siiBqqqqH")
_REPLICATE: Final = Struct(">B16siiiBqqiqqqqqqH")
_ACK: Final = Struct(">B16siiqqqqq")
_EPOCH: Final = Struct(">iq")
_SIZE: Final = Struct(">I")

_new_tuple = tuple.__new__  # half the time of a named tuple's own constructor

_FLAGS_KNOWN: Final = OPEN | TRUNCATE | RESTART | REQUIRED
_HOW: Final = OPEN | TRUNCATE | RESTART
_HOW_ALLOWED: Final = frozenset({0, OPEN, OPEN | TRUNCATE, OPEN | RESTART})


class Addressed(NamedTuple):
    """A message, and the partition it is about."""

    topic_id: bytes  # 16 bytes
    partition: int
    message: Message


# --- writing ----------------------------------------------------------------------------------


def encode(topic_id: bytes, partition: int, message: Message) -> list[Buffer]:
    """Return the buffers to send: the fixed fields, then the entries as they are."""
    assert len(topic_id) == 16, topic_id
    if isinstance(message, Ack):  # the usual one
        epoch, session, acked, end_log, committed_log = message
        return [_ACK.pack(ACK, topic_id, partition, epoch, session, acked[0], acked[1],
                          end_log, committed_log)]
    match message:
        case Replicate():
            return encode_replicate(topic_id, partition, message, message.entries)
        case LogDescription():
            return [_encode_described(topic_id, partition, message)]
        case DescribeLog(epoch):
            return [_PLAIN.pack(DESCRIBE, topic_id, partition, epoch)]
        case Fenced(epoch):
            return [_PLAIN.pack(FENCED, topic_id, partition, epoch)]


def encode_replicate(
    topic_id: bytes, partition: int, message: Replicate, entries: Sequence[Buffer]
) -> list[Buffer]:
    """Return the buffers of `message` with `entries` in place of its own, as for `SendEntries`."""
    return encode_entries(topic_id, partition, message, list(map(len, entries)), entries)


def encode_entries(
    topic_id: bytes, partition: int, message: Replicate, sizes: Sequence[int],
    data: Sequence[Buffer],
) -> list[Buffer]:
    """Return the same for entries of these sizes; `data` has their bytes, in any buffers."""
    assert len(sizes) <= ENTRIES_MAX, len(sizes)
    (epoch, version, flags, session, prev_end, prev_epoch, durable, committed, sender_end,
     receiver_end, _) = message
    head = _REPLICATE.pack(
        REPLICATE, topic_id, partition, epoch, version, flags, session, prev_end, prev_epoch,
        durable[0], durable[1], committed[0], committed[1], sender_end, receiver_end,
        len(sizes))
    return [head + b"".join(map(_SIZE.pack, sizes)), *data]


def _encode_described(topic_id: bytes, partition: int, message: LogDescription) -> bytes:
    assert len(message.epochs) <= EPOCHS_MAX, len(message.epochs)
    head = _DESCRIBED.pack(
        DESCRIBED, topic_id, partition, message.epoch, message.reason, message.session,
        message.log_start, message.log_end, message.committed_log, len(message.epochs))
    return head + b"".join([_EPOCH.pack(*entry) for entry in message.epochs])


# --- reading ----------------------------------------------------------------------------------


def decode_all(frame: memoryview) -> Iterator[Addressed]:
    """Yield every message in `frame`; raises `MalformedBytes` at the first that is malformed."""
    position = 0
    while position < len(frame):
        addressed, position = decode(frame, position)
        yield addressed


def decode(frame: memoryview, position: int = 0) -> tuple[Addressed, int]:
    """Return the message at `position` and the position after it; raises `MalformedBytes`."""
    try:
        kind = frame[position]
        if kind == REPLICATE:
            return _decode_replicate(frame, position)
        if kind == ACK:
            return _decode_ack(frame, position)
        if kind == DESCRIBED:
            return _decode_described(frame, position)
        if kind in {DESCRIBE, FENCED}:
            _, topic_id, partition, epoch = _PLAIN.unpack_from(frame, position)
            _check_address(partition, epoch)
            message = (DescribeLog if kind == DESCRIBE else Fenced)(Epoch(epoch))
            return Addressed(topic_id, partition, message), position + _PLAIN.size
    except (IndexError, struct.error) as error:
        raise MalformedBytes(f"chain message at {position} is cut short: {error}") from error
    raise MalformedBytes(f"chain message of unknown kind {kind} at {position}")


def _decode_replicate(frame: memoryview, position: int) -> tuple[Addressed, int]:
    (_, topic_id, partition, epoch, version, flags, session, prev_end, prev_epoch, durable_log,
     durable_offset, committed_log, committed_offset, sender_end, receiver_end, count,
     ) = _REPLICATE.unpack_from(frame, position)
    _check_address(partition, epoch)
    if (session <= 0 or version < 0 or prev_epoch < NO_EPOCH
            or not 0 <= prev_end <= sender_end <= OFFSET_MAX
            or not 0 <= receiver_end <= OFFSET_MAX
            or not 0 <= durable_offset <= durable_log
            or not 0 <= committed_offset <= committed_log
            or flags & ~_FLAGS_KNOWN or flags & _HOW not in _HOW_ALLOWED):
        raise MalformedBytes(f"replicate with flags {flags}, session {session}, version "
                             f"{version}: numbers out of bounds")
    if (flags & TRUNCATE and count) or (flags & RESTART and not count):
        raise MalformedBytes(f"replicate with flags {flags} and {count} entries")
    entries, position = _decode_entries(frame, position + _REPLICATE.size, count)
    message = _new_tuple(Replicate, (
        epoch, version, flags, session, prev_end, prev_epoch,
        _new_tuple(Mark, (durable_log, durable_offset)),
        _new_tuple(Mark, (committed_log, committed_offset)),
        sender_end, receiver_end, entries))
    return _new_tuple(Addressed, (topic_id, partition, message)), position


def _decode_entries(
    frame: memoryview, position: int, count: int
) -> tuple[tuple[memoryview, ...], int]:
    if count == 0:
        return (), position
    if count > ENTRIES_MAX:
        raise MalformedBytes(f"replicate with {count} entries; at most {ENTRIES_MAX}")
    start = position + _SIZE.size * count
    entries = []
    for index in range(count):
        size, = _SIZE.unpack_from(frame, position + _SIZE.size * index)
        if not 0 < size <= len(frame) - start:
            raise MalformedBytes(f"entry of {size} bytes at {start}, "
                                 f"but {max(len(frame) - start, 0)} are left")
        entries.append(frame[start : start + size])
        start += size
    return tuple(entries), start


def _decode_ack(frame: memoryview, position: int) -> tuple[Addressed, int]:
    (_, topic_id, partition, epoch, session, acked_log, acked_offset, end_log, committed_log,
     ) = _ACK.unpack_from(frame, position)
    _check_address(partition, epoch)
    if (session <= 0 or not 0 <= acked_offset <= acked_log <= end_log <= OFFSET_MAX
            or committed_log < 0):
        raise MalformedBytes(f"ack of {acked_log} (offset {acked_offset}), end {end_log}, "
                             f"session {session}: numbers out of bounds")
    message = _new_tuple(Ack, (
        epoch, session, _new_tuple(Mark, (acked_log, acked_offset)), end_log, committed_log))
    return _new_tuple(Addressed, (topic_id, partition, message)), position + _ACK.size


def _decode_described(frame: memoryview, position: int) -> tuple[Addressed, int]:
    (_, topic_id, partition, epoch, reason, session, log_start, log_end, committed_log, count,
     ) = _DESCRIBED.unpack_from(frame, position)
    _check_address(partition, epoch)
    if (reason > max(DescribeReason) or session < 0 or not 0 <= log_start <= log_end <= OFFSET_MAX
            or committed_log < 0 or count > EPOCHS_MAX):
        raise MalformedBytes(f"described: reason {reason}, session {session}, log {log_start} to "
                             f"{log_end}, {count} epochs: numbers out of bounds")
    position += _DESCRIBED.size
    epochs = []
    previous = (int(NO_EPOCH), -1)
    for _ in range(count):
        entry, start = _EPOCH.unpack_from(frame, position)
        if not previous[0] < entry <= epoch or not previous[1] < start < log_end:
            raise MalformedBytes(f"epoch {entry} at {start} after {previous}, log end {log_end}")
        previous = (entry, start)
        epochs.append((Epoch(entry), LogOffset(start)))
        position += _EPOCH.size
    return Addressed(topic_id, partition, LogDescription(
        Epoch(epoch), DescribeReason(reason), session, LogOffset(log_start), LogOffset(log_end),
        LogOffset(committed_log), tuple(epochs))), position


def _check_address(partition: int, epoch: int) -> None:
    if partition < 0 or not 0 <= epoch <= EPOCH_MAX:
        raise MalformedBytes(f"chain message for partition {partition}, epoch {epoch}")
