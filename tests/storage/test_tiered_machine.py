"""A log with a remote tier against a list, through everything that may happen to it."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from quipu.model.ids import Offset
from quipu.storage.log import Log
from tests.storage.builders import NOW_MS, split
from tests.storage.test_log_machine import LogMachine


class TieredLogMachine(LogMachine):
    """R13, V13: every record is where the log says that it is: here, or copied before it went.

    Shows storage.L6, storage.W1, storage.W2.
    """

    copied = -1  # the last offset that the tier has

    truncate = None  # of what is committed nothing is cut

    @rule(data=st.data(), retains=st.booleans())
    def copy(self, data: st.DataObject, retains: bool) -> None:
        """From the first copy on, the log keeps nothing locally that the tier has."""
        self.config = replace(self.config, is_tiered=True, local_retention_ms=0)
        self.log.configure(self.config)
        self.log.roll(NOW_MS)
        self.log.flusher.flush_now()
        found = self.log.tierable_segments(self.log.high_watermark, 100)
        if not found:
            return
        segment = data.draw(st.sampled_from(found))
        source = self.log.open_segment(segment)
        source.check()
        source.release()
        self.copied = max(self.copied, segment.end_offset - 1)
        self.log.note_tiered(Offset(segment.end_offset - 1), NOW_MS,
                             stable_end=self.log.high_watermark)
        assert self.log.tiered.offset == segment.end_offset - 1
        self.starts.append((int(self.log.log_end), self.start))
        if retains:
            self.retain()

    @rule()
    def retain(self) -> None:
        local = self.log.local_start_offset
        self.log.apply_retention(NOW_MS + 1)
        assert self.log.local_start_offset >= local

    def _restart(self) -> None:
        self.starts = [item for item in self.starts if item[0] <= self.log.log_end]
        first = int(self.log.segments[0].base_offset)
        stated = max([0, *(start for _, start in self.starts)])
        self.start = stated if first <= self.log.tiered.end_offset else max(stated, first)

    @invariant()
    def reads_back_what_was_written(self) -> None:
        if not hasattr(self, "log"):
            return
        local = self.log.local_start_offset
        assert local == self.start or local <= self.copied + 1
        want = [(offset, values) for offset, values, _, _ in self.batches
                if offset + len(values) > local]
        assert read_local(self.log) == [offset for offset, _ in want]

    @invariant()
    def what_is_tiered_was_copied(self) -> None:
        if hasattr(self, "log"):
            assert self.log.tiered.offset <= self.copied


def read_local(log: Log) -> list[int]:
    """The first offset of every batch that the log has itself."""
    offset, found = log.local_start_offset, list[int]()
    while offset < log.end_offset:
        for batch in split(log.read(offset, 300, end=log.end_offset, min_one=True)):
            base = int.from_bytes(batch[:8], "big")
            found.append(base)
            offset = Offset(base + int.from_bytes(batch[23:27], "big") + 1)
    return found


TestTieredLogMachine = TieredLogMachine.TestCase
TestTieredLogMachine.settings = settings(max_examples=60, stateful_step_count=25)
