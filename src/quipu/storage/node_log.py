"""What a node remembers of its own logs, in a log of its own: `__node-0`, batches of type NODE.

    key "started"          the node began to serve
    key "stopped"          it stopped in order; nothing after it means that it did
    key "log:" name        one log: value null if it was deleted, else
                           topic id 16 bytes | flushed log offset i64
        header "clean"     if it was closed: base_log, active_size, size_bytes, end_offset,
                           log_end, log_start_offset, oldest_ms, i64 each
        header "starts", "producers"   then also: its state, as in a checkpoint; "epochs" in
                           place of "starts" before there were replicas
        header "committed" i64: log offsets below were on every serving replica; none: 0
    key "removing:" topic id in hex   a topic was deleted, and its logs are being removed: value
                           empty; null when all are
All big endian; the last record of a name counts.

Losing this log loses no data: without it every log is checked at the start, and a torn tail can
no longer be told from damage in a segment that was being written.

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
from quipu.storage.epochs import EpochHistory
from quipu.storage.log import Log
from quipu.storage.place import CleanStop, Memory
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
_STARTED: Final = b"started"
_STOPPED: Final = b"stopped"
_LOG_PREFIX: Final = b"log:"
_REMOVING_PREFIX: Final = b"removing:"

_log = logging.getLogger(__name__)


class Remembered(NamedTuple):
    """What is known of one log."""

    topic_id: UUID
    memory: Memory


class NodeLog:
    """The node's memory; `logs` is what it holds now."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self.logs: dict[str, Remembered] = {}
        self.removing: dict[UUID, None] = {}  # topics whose logs are being removed
        self.was_stopped = False  # did the node stop in order?
        self.log = log
        self._clock = clock
        self._live_size = 0  # bytes of one full account
        self._replay()

    def _replay(self) -> None:
        for stored in self.log.read_stored(self.log.log_start_log_offset):
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
            _log.warning("what is remembered of %s cannot be read: %s", name, error)
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
        """Why nothing can be remembered any more, if so."""
        return self.log.failure

    def started(self) -> None:
        """Say that from now on logs may differ from what is remembered; durable on return."""
        self._append([Record(_STARTED, b"")])
        self.log.flush_now()

    def stopped(self) -> None:
        """Say that they do not; durable on return."""
        self._append([Record(_STOPPED, b"")])
        self.log.flush_now()

    def remember(self, logs: Mapping[str, Remembered | None], *, durable: bool = False) -> None:
        """Keep the flushed marks and clean stops of `logs`; None forgets one."""
        for name, known in logs.items():
            if known is None:
                self.logs.pop(name, None)
            else:
                self.logs[name] = known
        self._append(_encode(name, known) for name, known in logs.items())
        self._shrink()
        if durable:
            self.log.flush_now()

    def begin_removal(self, topic_id: UUID) -> None:
        """All logs of a topic are to be removed; durable on return."""
        self._append([_removing(topic_id, b"")])
        self.log.flush_now()
        self.removing[topic_id] = None

    def end_removal(self, topic_id: UUID) -> None:
        """They are."""
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
        self.log.flush_now()
        self.log.drop_segments_before(LogOffset(start))
        self._live_size = self.log.size_bytes

    def close(self) -> None:
        self.log.close()

    def discard(self) -> None:
        self.log.discard()


def _removing(topic_id: UUID, value: bytes | None) -> Record:
    return Record(_REMOVING_PREFIX + topic_id.hex.encode(), value)


def _encode(name: str, known: Remembered | None) -> Record:
    key = _LOG_PREFIX + name.encode()
    if known is None:
        return Record(key, None)
    value = _MARK.pack(known.topic_id.bytes, known.memory.flushed)
    clean, committed = known.memory.clean, known.memory.committed
    headers = [("committed", _COMMITTED.pack(committed))] if committed else []
    if clean is not None:
        *numbers, epochs, producers = clean
        headers += [("clean", _CLEAN.pack(*numbers)), ("starts", epochs), ("producers", producers)]
    return Record(key, value, tuple(headers))


def _decode(record: Record) -> Remembered:
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
        clean = CleanStop._make((*_CLEAN.unpack(numbers), _epochs(headers),
                                 headers.get("producers") or b""))
    known_id = UUID(bytes=topic_id) if any(topic_id) else ZERO_UUID
    return Remembered(known_id, Memory(flushed, clean, committed=_COMMITTED.unpack(committed)[0]))


def _epochs(headers: dict[str, bytes | None]) -> bytes:
    starts = headers.get("starts")
    if starts is None:
        return EpochHistory.decode_old(headers.get("epochs") or b"").encode()
    return starts
