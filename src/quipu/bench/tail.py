"""A load with many consumers at the end of one log: each batch produced goes to all of them.

It runs in rounds: a batch is produced, every consumer gets it by its waiting Fetch, and only then
the next batch is produced.  So every read is at the tail of the log, none is of old data.
"""

from quipu.bench.closed_loop import Fetcher, LoadCounter, Producer, Window, drive
from quipu.bench.frames import FetchFrame, FetchSummary, ProduceFrame
from quipu.bench.measured import Measured
from quipu.model.settings_types import Address


class _Round:
    """The state of a round: how many consumers have the batch, and whether it is acknowledged."""

    def __init__(self, consumer_count: int) -> None:
        self.consumer_count = consumer_count
        self.got = 0
        self.acknowledged = False


class _Source(Producer):
    """Produces the next batch when all consumers have the last one."""

    def __init__(
        self, address: Address, frame: ProduceFrame, shared: _Round
    ) -> None:
        super().__init__(address, [frame], 1, LoadCounter())  # unused: only fetches are counted
        self._shared = shared

    def readable(self, now: float) -> None:
        self._stopped, stopped = True, self._stopped  # the base class must send no request here
        super().readable(now)
        self._stopped = stopped
        if self.in_flight == 0:
            self._shared.acknowledged = True
            self.next_round(now)

    def next_round(self, now: float) -> None:
        shared = self._shared
        if shared.acknowledged and shared.got == shared.consumer_count and not self._stopped:
            shared.got = 0
            shared.acknowledged = False
            self.request(1, now)


class _TailConsumer(Fetcher):
    """A consumer that waits at the end of the log."""

    def __init__(
        self, address: Address, frame: FetchFrame, source: _Source, size_max: int,
        counter: LoadCounter,
    ) -> None:
        super().__init__(address, frame, size_max, counter)
        self._source = source

    def handle_fetched(self, found: FetchSummary, offset: int, now: float) -> int:
        if found.records_size:
            self._source._shared.got += 1  # noqa: SLF001 a class of this module
            self._source.next_round(now)
        assert found.next_offset >= 0
        return max(offset, found.next_offset)

    @property
    def awaited(self) -> int:
        return 0  # the last Fetch waits for data that never comes


def run_tail(
    address: Address, produce: ProduceFrame, fetch: FetchFrame, consumer_count: int, window: Window
) -> Measured:
    """Measure what the consumers fetch; latency is the time that a Fetch takes."""
    counter = LoadCounter()
    source = _Source(address, produce, _Round(consumer_count))
    size_max = produce.batch_size
    consumers = [
        _TailConsumer(address, fetch, source, size_max, counter) for _ in range(consumer_count)
    ]
    return drive([source, *consumers], counter, window)
