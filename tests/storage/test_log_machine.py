"""The log against a list that knows how much of it is safe, through everything that may happen."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.runtime.rng import SeededRng
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.derived.producers import BATCHES_KEPT
from quipu.storage.log_directory import NO_RECOVERY_POINT, RecoveryPoint
from quipu.wire.record_batch import Record
from tests.storage.builders import NOW_MS, append, data_disk, open_log, read_all

Batch = tuple[int, list[bytes], int, int]  # offset, values, log offset after it, producer id or -1


class LogMachine(RuleBasedStateMachine):
    """T5, T12, V1, V13, K2: flushed records survive; of the others any prefix may.

    The model is a list of batches.  `start` is the log start, `flushed` the log offset below which
    nothing may be lost, `memory` what the node wrote down.
    """

    @initialize(
        segment_bytes=st.sampled_from([500, 1000, 5000]),
        interval=st.sampled_from([1, 200, 4096]),
        flush_messages=st.sampled_from([1, 3, NEVER]),
        is_deferred=st.booleans(),
    )
    def begin(
        self, segment_bytes: int, interval: int, flush_messages: int, is_deferred: bool
    ) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval,
                                flush_messages=flush_messages, retention_ms=-1)
        self.disk = data_disk()
        self.disk.is_deferred = is_deferred
        self.log = open_log(self.disk, self.config)
        self.batches: list[Batch] = []
        self.start = 0
        self.starts: list[tuple[int, int]] = []  # log offset after a deletion, start since then
        self.sequences: dict[int, int] = {}
        self.recovery = NO_RECOVERY_POINT

    # --- what clients do

    def _end(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else 0

    @rule(values=st.lists(st.binary(max_size=40), min_size=1, max_size=4))
    def append(self, values: list[bytes]) -> None:
        end = self._end()
        appended = append(self.log, values)
        assert (appended.base_offset, appended.last_offset) == (end, end + len(values) - 1)
        self.batches.append((end, values, int(self.log.log_end), -1))

    @rule(producer_id=st.integers(0, 2),
          values=st.lists(st.binary(max_size=9), min_size=1, max_size=5))
    def append_idempotent(self, producer_id: int, values: list[bytes]) -> None:
        sequence = self.sequences.get(producer_id, 0)
        end = self._end()
        appended = append(self.log, values, producer=(producer_id, 0, sequence))
        assert not appended.duplicate
        assert appended.base_offset == end
        self.sequences[producer_id] = sequence + len(values)
        self.batches.append((end, values, int(self.log.log_end), producer_id))

    @rule(producer_id=st.integers(0, 2), back=st.integers(1, BATCHES_KEPT))
    def append_again(self, producer_id: int, back: int) -> None:
        mine = [batch for batch in self.batches if batch[3] == producer_id]
        if len(mine) < back:
            return
        sequence = self.sequences[producer_id] - sum(len(batch[1]) for batch in mine[-back:])
        offset, values, _, _ = mine[-back]
        appended = append(self.log, values, producer=(producer_id, 0, sequence))
        assert appended.duplicate
        assert appended.base_offset == offset

    @rule(producer_id=st.integers(0, 2))
    def append_out_of_sequence(self, producer_id: int) -> None:
        if producer_id not in self.sequences:
            return
        with pytest.raises(RequestError) as caught:
            append(self.log, [b"x"], producer=(producer_id, 0, self.sequences[producer_id] + 7))
        assert caught.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(count=st.integers(1, 3))
    def append_internal(self, count: int) -> None:
        before = self.log.log_end
        appended = self.log.append_records(
            CONFIGURATION, [Record(None, b"c")] * count, epoch=Epoch(0), now_ms=NOW_MS)
        assert appended.log_offset >= before
        assert self.log.log_end == appended.log_offset + count
        assert appended.base_offset == self.log.end_offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(0, int(self.log.high_watermark)))
        self.start = max(self.start, before)
        assert self.log.delete_records(Offset(before), NOW_MS) == self.start
        self.starts.append((int(self.log.log_end), self.start))

    # --- what the node does

    @rule()
    def flush(self) -> None:
        self.log.flusher.flush_now()
        assert self.log.flusher.flushed_log == self.log.log_end

    @rule()
    def syncs_end(self) -> None:
        self.disk.run_pending()

    @rule()
    def remember(self) -> None:
        self.recovery = RecoveryPoint(self.log.flusher.flushed_log)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def retain(self) -> None:
        """Only whole segments below the log start go; the model keeps their batches, for they
        may come back with a crash, as long as nothing that says otherwise is durable.
        """
        self.log.apply_retention(NOW_MS)
        assert self.log.segments[0].base_offset <= self.start

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.log.flusher.flush_now()
        keep = data.draw(st.integers(0, len(self.batches)))
        if keep == 0 or self.batches[keep - 1][2] <= self.log.first_log + 3:
            return  # the first checkpoint stays
        log_offset = self.batches[keep - 1][2]
        cut = self._end() if keep == len(self.batches) else self.batches[keep][0]
        if cut < self.start:
            return
        self.recovery = NO_RECOVERY_POINT  # as the data directory writes it down
        self.log.truncate(LogOffset(log_offset), NOW_MS)
        self.batches = self.batches[:keep]
        self._restart()
        self._recount()

    def _restart(self) -> None:
        """The log starts where the last deletion that is left says, or the first file begins."""
        self.starts = [item for item in self.starts if item[0] <= self.log.log_end]
        first = int(self.log.segments[0].base_offset)
        self.start = max([first, *(start for _, start in self.starts)])

    def _recount(self) -> None:
        """Sequences after batches were lost: what the log knows is the truth to go on from."""
        self.sequences = {info.producer_id: info.last_sequence + 1
                          for info in self.log.producers.infos()}

    @rule()
    def close_and_open(self) -> None:
        clean = self.log.close()
        assert clean is not None
        self.disk.bytes_read.clear()
        recovery = RecoveryPoint(clean.log_end, clean, is_current=True)
        self.log = open_log(self.disk, self.config, recovery)
        assert self.log.end_offset == self._end()
        assert self.log.segments
        scanned = sum(size for path, size in self.disk.bytes_read.items()
                      if path.endswith(".log"))
        assert scanned == 0, "a clean stop must not be followed by a scan"
        self.recovery = RecoveryPoint(clean.log_end)

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        """Any state between the flushed one and the last one may come back."""
        flushed, flushed_offset = self.log.flusher.flushed_log, self.log.flusher.flushed_offset
        before, before_start = list(self.batches), self.start
        self.disk.crash(SeededRng(seed))
        self.log = open_log(self.disk, self.config, self.recovery)
        assert self.log.failure is None, self.log.failure
        assert self.log.log_end >= flushed
        assert flushed_offset <= self.log.end_offset <= self._end()
        self.batches = [batch for batch in before if batch[2] <= self.log.log_end]
        self._restart()
        assert self.start <= before_start
        assert self._end() == self.log.end_offset
        self._recount()

    # --- what always holds

    @invariant()
    def reads_back_what_was_written(self) -> None:
        if not hasattr(self, "log"):
            return
        want = [(offset + index, value) for offset, values, _, _ in self.batches
                for index, value in enumerate(values) if offset + index >= self.start]
        assert read_all(self.log, max_bytes=300) == want

    @invariant()
    def offsets_and_sizes_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_start_offset == self.start
        assert log.end_offset == self._end()
        assert log.flusher.flushed_offset <= log.end_offset
        assert log.flusher.flushed_log <= log.log_end
        assert log.size_bytes == sum(segment.size for segment in log.segments)

    @invariant()
    def producers_are_those_of_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        assert {info.producer_id: info.last_sequence + 1
                for info in self.log.producers.infos()} == self.sequences


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=25)
