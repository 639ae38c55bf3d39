"""What a node records of its logs, in a log of its own: `__node-0`, batches of type NODE.

    key "started"          the node began to serve
    key "stopped"          it was shut down cleanly, if this is the last record
    key "log:" name        one log: value null if it was deleted, else
                           topic id 16 bytes | flushed log offset i64
        header "clean"     if it was closed: base_log, active_size, size_bytes, end_offset,
                           log_end, log_start_offset, oldest_ms, i64 each
        header "starts", "producers"   then also: its state, as in a checkpoint; "epochs" in
                           place of "starts" before there were replicas
        header "tiered"    if it differs from those before: log start offset as its batches say,
                           local start offset, i64 each | `tiered` as in a checkpoint
        header "committed" i64: log offsets below were on every serving replica; none: 0
    key "removing:" topic id in hex   a topic was deleted, and its logs are being removed: value
                           empty; null when all are
All big endian; the last record of a name counts.

Losing this log loses no data: without it every log is checked at the start, and a torn tail can
no longer be distinguished from damage in a segment that was being written.

When it has grown, a new segment is begun with all that is known, and the older ones go.  A crash
in between leaves both, which say the same.
"""

import logging
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.batch_types import NODE
from quipu.model.errors import MalformedBytes, QuipuError
from quipu.model.ids import ZERO_UUID, Epoch, LogOffset
from quipu.runtime.clock import Clock
from quipu.storage.config import LogConfig
from quipu.storage.derived.epochs import EpochHistory
from quipu.storage.log import Log
from quipu.storage.log_directory import CleanShutdown, RecoveryPoint
from quipu.wire.record_batch import Record, decode_records

NODE_LOG_NAME: Final = "__node-0"
NODE_LOG_CONFIG: Final = LogConfig(retention_ms=-1, segment_bytes=256 << 20)
SIZE_MIN: Final = 4 << 20  # bytes below which it is left to grow
GROWTH_MAX: Final = 4  # and times the size of what is known
RECORDS_MAX: Final = 1_000  # in one batch
BATCH_SIZE_MAX: Final = 256 << 20  # decoded

_MARK: Final = Struct(">16sq")
_CLEAN: Final = Struct(">7q")
_COMMITTED: Final = Struct(">q")
_STARTS: Final = Struct(">qq")
_STARTED: Final = b"started"
_STOPPED: Final = b"stopped"
_LOG_PREFIX: Final = b"log:"
_REMOVING_PREFIX: Final = b"removing:"

_log = logging.getLogger(__name__)


class KnownLog(NamedTuple):
    """What the node log has of one log."""

    topic_id: UUID
    recovery: RecoveryPoint


class NodeLog:
    """The log in which a node records what it knows of the others; `logs` is that, now."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self.logs: dict[str, KnownLog] = {}
        self.removing: dict[UUID, None] = {}  # topics whose logs are being removed
        self.was_stopped = False  # was the node shut down cleanly?
        self.log = log
        self._clock = clock
        self._live_size = 0  # bytes of the records of all that is known
        self._replay()

    def _replay(self) -> None:
        for stored in self.log.read_stored(self.log.first_log):
            if stored.header.batch_type != NODE:
                continue
            for record in decode_records(stored.batch, size_max=BATCH_SIZE_MAX):
                self._apply(record)

    def _apply(self, record: Record) -> None:
        key = record.key or b""
        self.was_stopped = key == _STOPPED
        if key.startswith(_REMOVING_PREFIX):
            self._apply_removing(key, is_over=record.value is None)
            return
        if not key.startswith(_LOG_PREFIX):
            return
        name = key.removeprefix(_LOG_PREFIX).decode(errors="replace")
        if record.value is None:
            self.logs.pop(name, None)
            return
        try:
            self.logs[name] = _decode(record)
        except (MalformedBytes, ValueError) as error:
            _log.warning("what is recorded of %s cannot be read: %s", name, error)
            self.logs.pop(name, None)

    def _apply_removing(self, key: bytes, *, is_over: bool) -> None:
        try:
            topic_id = UUID(hex=key.removeprefix(_REMOVING_PREFIX).decode())
        except ValueError:
            _log.warning("a topic whose logs are being removed cannot be read: %r", key)
            return
        if is_over:
            self.removing.pop(topic_id, None)
        else:
            self.removing[topic_id] = None

    @property
    def failure(self) -> QuipuError | None:
        """Why nothing can be recorded any more, if so."""
        return self.log.failure

    def started(self) -> None:
        """Record that from now on logs may differ from what is recorded; durable on return."""
        self._append([Record(_STARTED, b"")])
        self.log.flusher.flush_now()
        assert not self.log.flusher.is_dirty, self.log.name

    def stopped(self) -> None:
        """Record that all logs are as recorded: a clean shutdown; durable on return."""
        self._append([Record(_STOPPED, b"")])
        self.log.flusher.flush_now()
        assert not self.log.flusher.is_dirty, self.log.name  # storage.N2

    def remember(self, logs: Mapping[str, KnownLog | None], *, durable: bool = False) -> None:
        """Record the flushed marks and clean shutdowns of `logs`; None forgets a log."""
        for name, known in logs.items():
            if known is None:
                self.logs.pop(name, None)
            else:
                point = known.recovery
                assert point.committed_log >= 0, (name, point)
                assert point.committed_log <= point.flushed_log, (name, point)  # storage.N3
                self.logs[name] = known
        self._append(_encode(name, known) for name, known in logs.items())
        self._shrink()
        if durable:
            self.log.flusher.flush_now()

    def begin_removal(self, topic_id: UUID) -> None:
        """All logs of a topic are to be removed; durable on return."""
        self._append([_removing(topic_id, b"")])
        self.log.flusher.flush_now()
        assert not self.log.flusher.is_dirty, topic_id  # storage.N7
        self.removing[topic_id] = None

    def end_removal(self, topic_id: UUID) -> None:
        """All logs of a topic are removed."""
        if topic_id in self.removing:
            self._append([_removing(topic_id, None)])
            del self.removing[topic_id]

    def _append(self, records: Iterable[Record]) -> None:
        now_ms = self._clock.now_ms()
        pending: list[Record] = []
        for record in records:
            pending.append(record)
            if len(pending) == RECORDS_MAX:
                self.log.append_records(NODE, pending, epoch=Epoch(0), now_ms=now_ms)
                pending = []
        if pending:
            self.log.append_records(NODE, pending, epoch=Epoch(0), now_ms=now_ms)

    def _shrink(self) -> None:
        if self.log.size_bytes >= max(SIZE_MIN, GROWTH_MAX * self._live_size):
            self.rewrite()

    def rewrite(self) -> None:
        """Write all that is known to a new segment, durably; the others go."""
        self.log.roll(self._clock.now_ms())
        start = self.log.segments[-1].base_log
        self._append([Record(_STARTED, b"")])
        self._append(_removing(topic_id, b"") for topic_id in self.removing)
        self._append(_encode(name, known) for name, known in sorted(self.logs.items()))
        self.log.flusher.flush_now()
        self.log.drop_segments_before(LogOffset(start))
        assert self.log.first_log == start, (self.log.name, self.log.first_log, start)
        self._live_size = self.log.size_bytes
        assert self._live_size > 0, self.log.name

    def close(self) -> None:
        self.log.close()

    def discard(self) -> None:
        self.log.discard()


def _removing(topic_id: UUID, value: bytes | None) -> Record:
    return Record(_REMOVING_PREFIX + topic_id.hex.encode(), value)


def _encode(name: str, known: KnownLog | None) -> Record:
    key = _LOG_PREFIX + name.encode()
    if known is None:
        return Record(key, None)
    value = _MARK.pack(known.topic_id.bytes, known.recovery.flushed_log)
    clean, committed = known.recovery.clean, known.recovery.committed_log
    headers = [("committed", _COMMITTED.pack(committed))] if committed else []
    if clean is not None:
        *numbers, epochs, producers, stated, local, tiered = clean
        headers += [("clean", _CLEAN.pack(*numbers)), ("starts", epochs), ("producers", producers)]
        if (stated, local, tiered) != (-1, -1, b""):
            headers.append(("tiered", _STARTS.pack(stated, local) + tiered))
    return Record(key, value, tuple(headers))


def _decode(record: Record) -> KnownLog:
    value, headers = record.value or b"", dict(record.headers)
    if len(value) != _MARK.size:
        raise MalformedBytes(f"mark of {len(value)} bytes")
    topic_id, flushed = _MARK.unpack(value)
    committed = headers.get("committed") or _COMMITTED.pack(0)
    if len(committed) != _COMMITTED.size:
        raise MalformedBytes(f"committed mark of {len(committed)} bytes")
    numbers = headers.get("clean")
    clean = None
    if numbers is not None:
        if len(numbers) != _CLEAN.size:
            raise MalformedBytes(f"clean stop of {len(numbers)} bytes")
        tier = headers.get("tiered") or _STARTS.pack(-1, -1)
        if len(tier) < _STARTS.size:
            raise MalformedBytes(f"tiered header of {len(tier)} bytes")
        clean = CleanShutdown._make((
            *_CLEAN.unpack(numbers), _epochs(headers), headers.get("producers") or b"",
            *_STARTS.unpack_from(tier), tier[_STARTS.size :]))
    known_id = UUID(bytes=topic_id) if any(topic_id) else ZERO_UUID
    return KnownLog(known_id, RecoveryPoint(
        flushed, clean, committed_log=_COMMITTED.unpack(committed)[0]))


def _epochs(headers: dict[str, bytes | None]) -> bytes:
    starts = headers.get("starts")
    if starts is None:
        return EpochHistory.decode_old(headers.get("epochs") or b"").encode()
    return starts
