"""Whether an idempotent batch may have been sent behind one that was refused.

A client sends up to five batches without waiting for answers.  If the first of them is refused for
a while (the chain changes, a disk is full, nodes are missing) and the next one arrives when all is
well again, the log sees a gap that is not there: the client will send the first one again.

    told OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka begins a new producer epoch and sends everything
    again that it has not heard of; what of it had been written is written twice
    taken, from a producer that the log does not know, the batch stands before the one it follows

So for as long as such a batch can arrive, it is answered with an error that clients retry, in
order and with the same sequences.  Whose batch was in order since the last refusal has begun again
from the first one that is not acknowledged, as clients do; a gap after that, or at any other time,
is the client's own (ADR 18).
"""

from collections.abc import Callable
from typing import Final

from quipu.storage.producers import ProducerStates
from quipu.wire.record_batch import BatchHeader

# A client gives up a connection on which a request was unanswered for so long: what it had sent
# behind a batch that was refused has arrived by then, or never will.
IN_FLIGHT_SECONDS_MAX: Final = 60.0
IN_ORDER_MAX: Final = 10_000  # producers that are remembered; of more, gaps are retried for longer


class SequenceGuard:
    """Remembers of one partition when a batch was last refused, or its fate left open."""

    __slots__ = ("_in_order", "_monotonic", "_until", "is_on")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.is_on = False
        self._monotonic = monotonic
        self._until = 0.0  # monotonic seconds
        self._in_order: set[int] = set()  # producers with a batch in order since the last refusal

    def refused(self) -> None:
        """A batch was refused, or its producer was told that it may not be kept."""
        self._until = self._monotonic() + IN_FLIGHT_SECONDS_MAX
        self.is_on = True
        self._in_order.clear()

    def forbids(self, header: BatchHeader, producers: ProducerStates) -> bool:
        """Does the batch skip sequences that one refused here may have had?"""
        if self._monotonic() >= self._until:
            self.is_on = False
            self._in_order.clear()
            return False
        if producers.skips(header):
            return header.producer_id not in self._in_order
        if len(self._in_order) < IN_ORDER_MAX:
            self._in_order.add(header.producer_id)
        return False
