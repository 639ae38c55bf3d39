"""Many consumers at the end of one log: each batch that is produced goes to all of them.

Rounds in lock-step: a batch is produced, every consumer gets it through the long poll that it
has waiting, and only then comes the next one.  So every read is one of the tail, none is old.
"""

from quipu.cli.bench.closed_loop import Fetcher, Meter, Producer, Window, drive
from quipu.cli.bench.control import Address
from quipu.cli.bench.frames import Fetched, FetchFrame, ProduceFrame
from quipu.cli.bench.measured import Measured


class _Round:
    """Who has what was produced last."""

    def __init__(self, consumer_count: int) -> None:
        self.consumer_count = consumer_count
        self.got = 0
        self.acknowledged = False


class _Source(Producer):
    """Produces the next batch when the last one has reached everybody."""

    def __init__(
        self, address: Address, frame: ProduceFrame, shared: _Round
    ) -> None:
        super().__init__(address, [frame], 1, Meter())  # what counts is what consumers get
        self._shared = shared

    def readable(self, now: float) -> None:
        self._stopped, stopped = True, self._stopped  # an answer alone starts no new round
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


class _Follower(Fetcher):
    """Reads at the end of the log, and waits there."""

    def __init__(
        self, address: Address, frame: FetchFrame, source: _Source, size_max: int, meter: Meter
    ) -> None:
        super().__init__(address, frame, size_max, meter)
        self._source = source

    def took(self, found: Fetched, offset: int, now: float) -> int:
        if found.records_size:
            self._source._shared.got += 1  # noqa: SLF001 the two are halves of one thing
            self._source.next_round(now)
        assert found.next_offset >= 0
        return max(offset, found.next_offset)

    @property
    def awaited(self) -> int:
        return 0  # at the end a poll waits for data that will never come


def run_tail(
    address: Address, produce: ProduceFrame, fetch: FetchFrame, consumer_count: int, window: Window
) -> Measured:
    """Size, records and requests of what consumers got; latency is how long their polls waited."""
    meter = Meter()
    source = _Source(address, produce, _Round(consumer_count))
    size_max = produce.batch_size
    followers = [
        _Follower(address, fetch, source, size_max, meter) for _ in range(consumer_count)
    ]
    return drive([source, *followers], meter, window)
