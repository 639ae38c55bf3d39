"""Decides which batches of idempotent producers may follow after a batch of theirs has failed.

A client sends several batches without waiting for answers.  If one of them fails for a passing
reason and the next one were committed, the log would have a gap, which the control plane calls out
of order; or, of a producer that the log does not know, the later batch would come first.  ADR 18
says what clients do then, and why they must be told to try again instead.

So after a failure the writer awaits the batch that failed first: later sequences of that producer
are refused with an error that clients retry, until it comes again, or the producer begins a new
epoch.  Batches that the writer had accepted by then are refused by the writer itself (buffer.py).

A batch that was refused before the writer saw it counts as well: tell the guard of it.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from quipu.diskless.values import LogKey
from quipu.wire.record_batch import BatchHeader

# A client closes a connection on which a request had no answer for this long: the batches that it
# sent after a failed one have arrived by then, or never will.
IN_FLIGHT_SECONDS_MAX: Final = 60.0
AWAITED_MAX: Final = 100_000  # producers of logs; above it, all others are refused as well
SEQUENCES: Final = 1 << 31


class _Awaited(NamedTuple):
    """The batch that a producer must send again first."""

    epoch: int
    sequence: int
    until: float  # monotonic seconds


class ProducerGuard:
    """Remembers, for each producer in a log, the first batch that failed."""

    __slots__ = ("_awaited", "_closed_until", "_monotonic")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._awaited: dict[tuple[LogKey, int], _Awaited] = {}  # in the order of `until`
        self._closed_until = 0.0  # some failures are not remembered: every producer is suspected

    @property
    def is_on(self) -> bool:
        """Whether any producer may be refused; if not, `forbids` need not be called."""
        return bool(self._awaited) or self._closed_until > 0

    def failed(self, log: LogKey, header: BatchHeader) -> None:
        """Note that a batch got an error, or that its outcome is unknown."""
        if header.producer_id < 0:
            return
        now = self._monotonic()
        key = log, header.producer_id
        until = now + IN_FLIGHT_SECONDS_MAX
        sequence = header.base_sequence
        before = self._awaited.pop(key, None)
        if before is not None and before.epoch == header.producer_epoch and now < before.until and (
                not _is_before(sequence, before.sequence)):
            sequence = before.sequence
        if len(self._awaited) >= AWAITED_MAX:
            self._forget_expired(now)
            if len(self._awaited) >= AWAITED_MAX:
                self._closed_until = until
                return
        self._awaited[key] = _Awaited(header.producer_epoch, sequence, until)

    def forbids(self, log: LogKey, header: BatchHeader) -> bool:
        """Whether the batch comes after one that failed and was not sent again (diskless.W4)."""
        key = log, header.producer_id
        awaited = self._awaited.get(key)
        now = self._monotonic()
        if awaited is None:
            if self._closed_until > now:
                return True
            self._closed_until = 0.0
            return False
        epoch, sequence, until = awaited
        if now >= until or header.producer_epoch > epoch or (
                header.producer_epoch == epoch and header.base_sequence == sequence):
            del self._awaited[key]
            return False
        return header.producer_epoch == epoch and not _is_before(header.base_sequence, sequence)

    def _forget_expired(self, now: float) -> None:
        for key in list(self._expired(now)):
            del self._awaited[key]

    def _expired(self, now: float) -> Iterator[tuple[LogKey, int]]:
        for key, awaited in self._awaited.items():
            if awaited.until > now:
                return
            yield key


def _is_before(sequence: int, other: int) -> bool:
    """Whether `sequence` comes before `other`; after 2^31 - 1 comes 0."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
