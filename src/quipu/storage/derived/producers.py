"""Idempotent producers: which of their batches a log has seen.

A producer numbers its records per partition.  The log accepts a batch only if it continues its
producer's numbers; for a batch that it has seen it returns the offsets of the first time.

Invariants
    storage.P1  sequences run 0, 1, ... 2^31 - 1, 0, ...; a batch is accepted if it starts right
        after the last accepted one, or at 0 in a new producer epoch
    storage.P2  of each producer the last `BATCHES_KEPT` batches are known, as many as a client may
        have in flight; a repeat of one of them is a duplicate, whatever was written since (where
        earlier ones may be repeated, the log itself is searched: repeats.py)
    storage.P3  the state is a function of the batches in the log, except for when a producer was
        last seen, which decides only when it is forgotten
    storage.P4  an append admits at most so many producers (`admit`): a new one takes the place of
        those that have been silent for longer than any batch is retried, and is refused if there
        are none, so that no producer is forgotten because of a new one.  What was admitted by
        another node is taken; at `PRODUCERS_MAX`, a bound for memory alone, those unseen the
        longest go

A producer that the log does not know may start at any sequence, as in Kafka since 2.5: its state
may have expired, or gone with the records that retention removed, and refusing it would stop a
healthy client for good.  What that costs: a duplicate sent after the expiry is not recognised.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 the library's own name is too short to read
from typing import Final, NamedTuple

from quipu.model.errors import Code, ErrorKind, MalformedBytes, RequestError
from quipu.model.ids import Offset, ProducerId, TimestampMs
from quipu.model.partition_log import ProducerInfo
from quipu.wire import scan_run
from quipu.wire.record_batch import BatchHeader
from quipu.wire.scan_run import RunProducer

BATCHES_KEPT: Final = 5
PRODUCERS_MAX: Final = 100_000  # the highest max.producer.ids.per.partition (storage.P4)
SEQUENCE_COUNT: Final = 1 << 31

# Else `note_run` would know less than `note` (storage.P2).
assert scan_run.BATCHES_KEPT >= BATCHES_KEPT
assert scan_run.PRODUCERS_MAX <= PRODUCERS_MAX // 10  # one eviction makes room for a run

_STATE: Final = Struct(">qhqB")  # producer id, epoch, last seen, number of batches
_BATCH: Final = Struct(">iiq")  # first sequence, last sequence, base offset
_new_tuple = tuple.__new__


class ProducerBatch(NamedTuple):
    """One batch of a producer: its sequences and the offset it was given."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class _Producer:
    __slots__ = ("batches", "epoch", "last_seen_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_seen_ms = 0
        self.batches: list[ProducerBatch] = []  # no deque: one takes 700 bytes when empty


class ProducerStates:
    """The producers of one log."""

    __slots__ = ("_producers", "_room_ms")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._room_ms = 0  # before this time no producer can be forgotten for another

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader, log: str) -> Offset | None:
        """None if the batch may be appended; its first offset if it was before (storage.P2).

        Raises `RequestError` with Kafka's code if it does neither.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        first = header.base_sequence
        if header.producer_epoch != producer.epoch:
            _check_epoch(header, producer, log)
            return None
        assert producer.batches, log  # storage.P2
        last_known = producer.batches[-1].last_sequence
        if first == (last_known + 1) % SEQUENCE_COUNT:  # storage.P1
            return None
        last = (first + header.last_offset_delta) % SEQUENCE_COUNT
        for seen in producer.batches:
            if seen.first_sequence == first and seen.last_sequence == last:
                return Offset(seen.base_offset)
        raise _out_of_order(log, header, (last_known + 1) % SEQUENCE_COUNT)

    def is_full(self, limit: int) -> bool:
        """Are there `limit` producers, so that a new one must be admitted?"""
        return len(self._producers) >= limit

    def admit(
        self, header: BatchHeader, log: str, *, limit: int, retry_ms: int, now_ms: int
    ) -> None:
        """Make room for the producer of a batch that `check` let pass, if it is new (storage.P4).

        Raises `RequestError` if there is none.
        """
        known = self._producers
        if header.producer_id in known:
            return
        if now_ms >= self._room_ms:
            for producer_id in [each for each, producer in known.items()
                                if now_ms - producer.last_seen_ms >= retry_ms]:
                del known[producer_id]
            self._room_ms = retry_ms + min(
                (producer.last_seen_ms for producer in known.values()), default=now_ms)
        if len(known) >= limit:
            raise RequestError(
                f"{log}: {len(known)} idempotent producers were active within "
                f"{retry_ms} ms (producer.id.retry.ms), and no more are taken "
                "(max.producer.ids.per.partition): use fewer producers, or send again later",
                code=Code.THROTTLING_QUOTA_EXCEEDED, kind=ErrorKind.RETRY)
        assert len(known) < limit, (log, len(known))  # storage.P4

    def skips(self, header: BatchHeader) -> bool:
        """Would the batch leave out sequences of its producer, as far as this log knows?"""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch > producer.epoch:
            return header.base_sequence != 0
        if header.producer_epoch < producer.epoch:
            return False
        assert producer.batches, header.producer_id  # storage.P2
        expected = producer.batches[-1].last_sequence + 1
        return 0 < (header.base_sequence - expected) % SEQUENCE_COUNT < SEQUENCE_COUNT // 2

    def note(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Take in a batch that is in the log at `base_offset` (storage.P3)."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if len(self._producers) >= PRODUCERS_MAX:
                self._evict()
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        first = header.base_sequence
        last = (first + header.last_offset_delta) % SEQUENCE_COUNT
        producer.last_seen_ms = now_ms
        batches = producer.batches
        batches.append(ProducerBatch(first, last, base_offset))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        assert len(batches) <= BATCHES_KEPT, header.producer_id  # storage.P2
        assert batches[-1].base_offset == base_offset, header.producer_id

    def note_run(self, run: Sequence[RunProducer], now_ms: int) -> None:
        """The last batches of each producer in a run were appended: as `note` for each batch.

        Room for all of them is made first, so no batch of the run is forgotten (storage.P4).
        """
        known = self._producers
        count_known = 0
        for producer_id, _, _ in run:
            if (producer := known.get(producer_id)) is not None:
                producer.last_seen_ms = now_ms
                count_known += 1
        if len(known) + len(run) - count_known > PRODUCERS_MAX:
            self._evict()
        for producer_id, epoch, batches in run:
            producer = known.get(producer_id)
            if producer is None:
                producer = known[producer_id] = _Producer(epoch)
            elif producer.epoch != epoch:
                producer.epoch = epoch
                producer.batches.clear()
            producer.last_seen_ms = now_ms
            producer.batches.extend([
                _new_tuple(ProducerBatch, (first, (first + delta) % SEQUENCE_COUNT, base_offset))
                for first, delta, base_offset in batches])
            del producer.batches[:-BATCHES_KEPT]
            assert producer.batches, producer_id  # storage.P2

    def _evict(self) -> None:
        """Make room by a tenth, so that the search is rare (storage.P4)."""
        known = self._producers
        by_age = sorted(known, key=lambda each: (  # what a scan found was all seen at one time
            known[each].last_seen_ms, known[each].batches[-1].base_offset))
        for producer_id in by_age[: max(1, PRODUCERS_MAX // 10)]:
            del self._producers[producer_id]
        assert len(known) < PRODUCERS_MAX, len(known)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers unseen for `expiration_ms`; returns how many."""
        expired = [producer_id for producer_id, producer in self._producers.items()
                   if now_ms - producer.last_seen_ms >= expiration_ms]
        before = len(self._producers)
        for producer_id in expired:
            del self._producers[producer_id]
        assert len(self._producers) == before - len(expired), expired
        return len(expired)

    def infos(self) -> list[ProducerInfo]:
        return [
            ProducerInfo(ProducerId(producer_id), producer.epoch,
                         producer.batches[-1].last_sequence, TimestampMs(producer.last_seen_ms))
            for producer_id, producer in sorted(self._producers.items())
        ]

    def histories(self) -> list[tuple[int, int, int, tuple[ProducerBatch, ...]]]:
        """Id, epoch, when it was last seen and the last batches of every producer."""
        return [(producer_id, producer.epoch, producer.last_seen_ms, tuple(producer.batches))
                for producer_id, producer in sorted(self._producers.items())]

    def last_bases(self) -> list[int]:
        """The base offset of each producer's last batch."""
        return sorted(producer.batches[-1].base_offset for producer in self._producers.values())

    def seen(self, producer_id: int) -> tuple[ProducerBatch, ...]:
        """The batches known of one producer, oldest first."""
        producer = self._producers.get(producer_id)
        return tuple(producer.batches) if producer is not None else ()

    def epoch_of(self, producer_id: int) -> int:
        """The epoch of a producer's newest batch; -1 if none is known."""
        producer = self._producers.get(producer_id)
        return producer.epoch if producer is not None else -1

    def encode(self) -> bytes:
        parts = []
        for producer_id, producer in sorted(self._producers.items()):
            parts.append(_STATE.pack(producer_id, producer.epoch, producer.last_seen_ms,
                                     len(producer.batches)))
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> "ProducerStates":
        states = cls()
        for producer_id, producer in _decode_producers(data):
            states._producers[producer_id] = producer
        return states


def _decode_producers(data: bytes) -> Iterator[tuple[int, _Producer]]:
    position = 0
    try:
        while position < len(data):
            producer_id, epoch, last_seen_ms, count = _STATE.unpack_from(data, position)
            position += _STATE.size
            if not 1 <= count <= BATCHES_KEPT:
                raise MalformedBytes(f"producer {producer_id} with {count} batches")
            producer = _Producer(epoch)
            producer.last_seen_ms = last_seen_ms
            for _ in range(count):
                producer.batches.append(ProducerBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            yield producer_id, producer
    except StructError:
        raise MalformedBytes(f"producer states end early, at byte {len(data)}") from None


def _check_epoch(header: BatchHeader, producer: _Producer, log: str) -> None:
    if header.producer_epoch < producer.epoch:
        raise RequestError(
            f"{log}: producer {header.producer_id} has epoch {producer.epoch} now; a batch "
            f"of epoch {header.producer_epoch} is too late: ask for a new producer id",
            code=Code.INVALID_PRODUCER_EPOCH)
    if header.base_sequence != 0:
        raise _out_of_order(log, header, 0)


def _out_of_order(log: str, header: BatchHeader, wanted: int) -> RequestError:
    return RequestError(
        f"{log}: producer {header.producer_id} sent sequence {header.base_sequence}, "
        f"{wanted} comes next: a batch before it was lost or arrived late",
        code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
