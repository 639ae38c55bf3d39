"""The state of a log that is not in its newest segment: what a CHECKPOINT batch holds.

Every segment begins with one, so the newest segment alone has the whole state of its log:
retention may drop any older segment and lose nothing, and truncation starts from the checkpoint
before the cut.  The records of the batch, by key:

    log        topic id 16 bytes | log start offset i64 | flushed log offset i64 | name, UTF-8
               header `writer`, i32: the node that wrote the checkpoint; replicas get it by value
    starts     per leader epoch: epoch i32 | start offset i64 | start log offset i64
    tiered     last offset that a remote tier has i64 | its leader epoch i32; left out if none
    producers  per producer: id i64 | epoch i16 | last seen ms i64 | batch count u8, and per batch:
               first sequence i32 | last sequence i32 | base offset i64
All big endian.  A key that this version does not know is skipped.  Before there were replicas
there was no `writer`, and `epochs` in place of `starts`: per leader epoch, epoch i32 | start
offset i64.

How far a log was flushed is known to the node that wrote the checkpoint and true for its own
files only:

    storage.C1  of a checkpoint of another node, the flushed mark is never believed

A LOG_START batch has one record: key `log_start`, value: the offset, i64.  A TIERED batch has one
as well: key `tiered`, value as above; offset -1 says that the tier has nothing any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.batch_types import DATA, LOG_START, TIERED
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_EPOCH, NO_NODE, ZERO_UUID, Epoch, LogOffset, NodeId, Offset
from quipu.storage.derived.epochs import EpochHistory
from quipu.storage.derived.producers import ProducerStates
from quipu.wire.record_batch import Record, decode_records
from quipu.wire.scan_run import Run
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader

STATE_SIZE_MAX: Final = 64 << 20  # decoded bytes of one checkpoint; far above PRODUCERS_MAX
LOG_BEGIN: Final = Offset(0)
_LOG: Final = Struct(">16sqq")
_OFFSET: Final = Struct(">q")
_WRITER: Final = Struct(">i")
_TIERED: Final = Struct(">qi")


class Tiered(NamedTuple):
    """Up to where a remote tier has a copy of the log."""

    offset: Offset  # the last one that it has; -1 if it has none
    epoch: Epoch  # of the record there
    log_end: LogOffset = LogOffset(0)  # all below must be committed before one may rely on it

    @property
    def end_offset(self) -> Offset:
        """The first offset that the tier does not have."""
        return Offset(self.offset + 1)


NOT_TIERED: Final = Tiered(Offset(-1), NO_EPOCH)


@dataclass(slots=True)
class DerivedState:
    """What a log derives from its batches, besides its offsets."""

    log_start_offset: Offset = LOG_BEGIN  # as batches say; segments may begin later
    epochs: EpochHistory = field(default_factory=EpochHistory)
    producers: ProducerStates = field(default_factory=ProducerStates)
    tiered: Tiered = NOT_TIERED

    def replay(self, header: StoredHeader, stored: memoryview, now_ms: int) -> None:
        """Take in one batch that is no checkpoint; `stored` is all of it."""
        self.epochs.note(header.leader_epoch, header.base_offset, header.log_offset)
        if header.batch_type == DATA:
            if header.producer_id >= 0:
                self.producers.note(header.batch, header.base_offset, now_ms)
        elif header.batch_type == LOG_START:
            self.log_start_offset = max(self.log_start_offset, decode_log_start(stored))
        elif header.batch_type == TIERED:
            self.tiered = decode_tiered(stored)._replace(
                log_end=LogOffset(header.next_log_offset))

    def replay_run(self, run: Run, now_ms: int) -> None:
        """Take in data batches of the epoch that was replayed last."""
        self.producers.note_run(run.producers, now_ms)


class Checkpoint(NamedTuple):
    """A decoded CHECKPOINT batch."""

    name: str
    topic_id: UUID
    flushed: LogOffset  # everything below was durable when the checkpoint was written (storage.C1)
    state: DerivedState
    writer: NodeId | None = NO_NODE  # None: of a time when a log had one node

    def is_of(self, node_id: NodeId) -> bool:
        """Is the flushed mark about the files of this node?"""
        return self.writer is None or self.writer == node_id


def encode_checkpoint(checkpoint: Checkpoint, now_ms: int) -> list[Record]:
    state, writer = checkpoint.state, checkpoint.writer
    assert writer is not None, checkpoint.name
    assert state.log_start_offset >= 0, checkpoint.name
    assert checkpoint.flushed >= 0, checkpoint.name
    log = _LOG.pack(checkpoint.topic_id.bytes, state.log_start_offset, checkpoint.flushed)
    records = [
        Record(b"log", log + checkpoint.name.encode(), (("writer", _WRITER.pack(writer)),),
               timestamp=now_ms),
        Record(b"starts", state.epochs.encode(), timestamp=now_ms),
        Record(b"producers", state.producers.encode(), timestamp=now_ms),
    ]
    return records if state.tiered.offset < 0 else records + encode_tiered(state.tiered, now_ms)


def decode_checkpoint(stored: memoryview) -> Checkpoint:
    """Read a stored CHECKPOINT batch; raises `MalformedBytes`."""
    records = {record.key or b"": record for record in decode_records(
        stored[PREFIX_SIZE:], size_max=STATE_SIZE_MAX)}
    values = _values(records.values())
    log = values.get(b"log", b"")
    if len(log) < _LOG.size:
        raise MalformedBytes("checkpoint without its log record")
    topic_id, log_start_offset, flushed = _LOG.unpack_from(log)
    state = DerivedState(
        Offset(log_start_offset),
        _epochs(values),
        ProducerStates.decode(values.get(b"producers", b"")),
        unpack_tiered(values.get(b"tiered", b"")),
    )
    name = log[_LOG.size :].decode(errors="replace")
    return Checkpoint(name, UUID(bytes=topic_id) if any(topic_id) else ZERO_UUID,
                      LogOffset(flushed), state, _writer(records[b"log"]))


def _epochs(values: dict[bytes, bytes]) -> EpochHistory:
    starts = values.get(b"starts")
    if starts is None:
        return EpochHistory.decode_old(values.get(b"epochs", b""))
    return EpochHistory.decode(starts)


def _writer(record: Record) -> NodeId | None:
    writer = dict(record.headers).get("writer")
    if writer is None:
        return None
    if len(writer) != _WRITER.size:
        raise MalformedBytes(f"writer of {len(writer)} bytes")
    return NodeId(_WRITER.unpack(writer)[0])


def encode_log_start(offset: Offset, now_ms: int) -> list[Record]:
    """The record of a LOG_START batch."""
    assert offset >= 0, offset
    return [Record(b"log_start", _OFFSET.pack(offset), timestamp=now_ms)]


def decode_log_start(stored: memoryview) -> Offset:
    """Read a stored LOG_START batch; raises `MalformedBytes`."""
    values = _values(decode_records(stored[PREFIX_SIZE:], size_max=STATE_SIZE_MAX))
    value = values.get(b"log_start", b"")
    if len(value) != _OFFSET.size:
        raise MalformedBytes(f"log start of {len(value)} bytes")
    return Offset(_OFFSET.unpack(value)[0])


def encode_tiered(tiered: Tiered, now_ms: int) -> list[Record]:
    """The record of a TIERED batch."""
    assert tiered.offset >= -1, tiered
    return [Record(b"tiered", pack_tiered(tiered), timestamp=now_ms)]


def decode_tiered(stored: memoryview) -> Tiered:
    """Read a stored TIERED batch; raises `MalformedBytes`."""
    values = _values(decode_records(stored[PREFIX_SIZE:], size_max=STATE_SIZE_MAX))
    value = values.get(b"tiered")
    if value is None:
        raise MalformedBytes("tiered batch without its record")
    return unpack_tiered(value)


def pack_tiered(tiered: Tiered) -> bytes:
    return _TIERED.pack(tiered.offset, tiered.epoch)


def unpack_tiered(value: bytes) -> Tiered:
    """The opposite of `pack_tiered`; nothing is tiered if there is no value."""
    if not value:
        return NOT_TIERED
    if len(value) != _TIERED.size:
        raise MalformedBytes(f"tiered offset of {len(value)} bytes")
    offset, epoch = _TIERED.unpack(value)
    if offset < -1 or epoch < NO_EPOCH:
        raise MalformedBytes(f"tiered offset {offset} of epoch {epoch}")
    return Tiered(Offset(offset), Epoch(epoch))


def _values(records: Iterable[Record]) -> dict[bytes, bytes]:
    return {record.key or b"": record.value or b"" for record in records}
