"""Decides whether an idempotent batch may have been sent after one that was refused.

A client sends up to five batches without waiting for responses.  If the first of them is refused
for a passing reason (the chain changes, a disk is full, too few replicas serve) and the second one
arrives when the reason is gone, the log sees a gap in the sequences, although the client will send
the first batch again.

    If the second batch were refused with OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka would begin a new
    producer epoch and send every batch again that was not acknowledged; those of them that had been
    written would be written twice.
    If it were appended, as the first batch of a producer that the log does not know, it would come
    before the batch that it follows.

So while such a batch can arrive, it gets an error that clients retry, in order and with the same
sequences.  A producer with a batch in order after the last refusal has begun to send again from its
first unacknowledged batch, as clients do; a gap after that, or at any other time, is the client's
own error (ADR 18).
"""

from collections.abc import Callable
from typing import Final

from quipu.storage.derived.producers import ProducerStates
from quipu.wire.record_batch import BatchHeader

# A client closes a connection on which a request had no response for this long: the batches that it
# sent after a refused one have arrived by then, or never will.
IN_FLIGHT_SECONDS_MAX: Final = 60.0
IN_ORDER_MAX: Final = 10_000  # producers remembered; of others, gaps are retried for longer


class SequenceGuard:
    """Remembers when a batch of one partition was last refused, or its outcome unknown."""

    __slots__ = ("_in_order", "_monotonic", "_until", "is_on")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.is_on = False
        self._monotonic = monotonic
        self._until = 0.0  # monotonic seconds
        self._in_order: set[int] = set()  # producers with a batch in order since the last refusal

    def refused(self) -> None:
        """Note that a batch was refused, or that its producer got an error after the append."""
        self._until = self._monotonic() + IN_FLIGHT_SECONDS_MAX
        self.is_on = True
        self._in_order.clear()

    def forbids(self, header: BatchHeader, producers: ProducerStates) -> bool:
        """Whether the batch skips sequences that a refused batch may have had."""
        if self._monotonic() >= self._until:
            self.is_on = False
            self._in_order.clear()
            return False
        if producers.skips(header):
            return header.producer_id not in self._in_order
        if len(self._in_order) < IN_ORDER_MAX:
            self._in_order.add(header.producer_id)
        return False
