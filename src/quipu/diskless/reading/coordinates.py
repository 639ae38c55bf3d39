"""What a reader knows of logs: their bounds, and where some of their batches are.  Pure.

Which object holds an offset never changes, except that a run may move to another object, or go.
So runs are remembered in any order and with gaps between them, whoever wrote them: what is not
known is asked for.  A run is forgotten after `seconds_max`, before its object could be deleted.

Invariants
    diskless.R1  bounds never get lower, whatever the order in which they are learnt
    diskless.R2  the runs known of a log do not overlap: a run that is learnt replaces those that
                 it overlaps; a run is returned only until its time is over
    diskless.R3  at most `runs_max` runs are known, of all logs together
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from quipu.diskless.values import BatchRun, LogBounds, LogKey
from quipu.model.ids import Offset

HOT_SECONDS: Final = 20.0  # records are recent for at least this long
RUNS_MAX: Final = 200_000
LAG_SECONDS_MAX: Final = 60.0  # after which a lag that was found is history


class KnownRun(NamedTuple):
    """A run, and until when it may be used."""

    run: BatchRun
    until: float  # monotonic seconds


class LogKnowledge:
    """What is known of one log."""

    __slots__ = ("_ahead", "_hot_from", "_lag", "_lag_until", "_next_hot_from", "_rotated_at",
                 "bases", "bounds", "runs")

    def __init__(self, bounds: LogBounds, now: float) -> None:
        self.bounds = bounds
        self.bases: list[int] = []  # of the runs, for bisection
        self.runs: list[KnownRun] = []
        self._hot_from = self._next_hot_from = bounds.high_watermark
        self._rotated_at = now
        self._ahead = (0, 0)  # a reader between these offsets has enough read ahead of it
        self._lag = 0  # offsets that were not known when the control plane was last asked
        self._lag_until = now

    def learn_bounds(self, bounds: LogBounds, now: float) -> bool:
        """Take over newer bounds; whether the high watermark has grown (diskless.R1)."""
        old = self.bounds
        if now - self._rotated_at >= HOT_SECONDS:
            self._hot_from, self._next_hot_from = self._next_hot_from, old.high_watermark
            self._rotated_at = now
        is_newer = bounds.high_watermark >= old.high_watermark
        self.bounds = LogBounds(
            max(old.log_start_offset, bounds.log_start_offset),
            max(old.diskless_start_offset, bounds.diskless_start_offset),
            max(old.high_watermark, bounds.high_watermark),
            bounds.size if is_newer else old.size)
        return bounds.high_watermark > old.high_watermark

    def note_answer(self, high_watermark: Offset, now: float) -> None:
        """Note how far this node was behind an answer of the control plane, before it is learnt."""
        self._lag = max(0, high_watermark - self.bounds.high_watermark)
        self._lag_until = now + LAG_SECONDS_MAX

    def note_notice(self, high_watermark: Offset) -> None:
        """Note that a notification came: if it is up to date, this node is, too."""
        if high_watermark >= self.bounds.high_watermark:
            self._lag = 0

    def lag(self, now: float) -> int:
        """How far this node was behind when it was last found out; 0 if that is long ago."""
        return self._lag if now < self._lag_until else 0

    def is_hot(self, offset: Offset) -> bool:
        """Whether the record was written a short time ago, or is not yet."""
        return offset >= self._hot_from

    def is_ahead(self, offset: Offset) -> bool:
        """Whether enough was read ahead of a reader at `offset`."""
        start, end = self._ahead
        return start <= offset < end

    def note_ahead(self, start: Offset, end: Offset) -> None:
        """Say that for readers from `start` up to `end` nothing need be read ahead."""
        self._ahead = start, end

    def find(self, offset: Offset, now: float) -> BatchRun | None:
        """The run that holds an offset, if it is known."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0:
            return None
        run, until = self.runs[index]
        return run if offset < run.end_offset and now < until else None  # diskless.R2

    def until(self, run: BatchRun) -> float | None:
        """Until when a run may be used; None if it is not known."""
        index = bisect_right(self.bases, run.base_offset) - 1
        known = self.runs[index] if index >= 0 else None
        return None if known is None or known.run != run else known.until

    def add(self, run: BatchRun, until: float) -> int:
        """Remember a run, instead of those that it overlaps (diskless.R2); how many more it are."""
        bases, runs = self.bases, self.runs
        if not bases or run.base_offset >= runs[-1].run.end_offset:  # the usual case
            bases.append(run.base_offset)
            runs.append(KnownRun(run, until))
            return 1
        start = bisect_right(bases, run.base_offset) - 1
        if start < 0 or runs[start].run.end_offset <= run.base_offset:
            start += 1
        end = bisect_left(bases, run.end_offset)
        bases[start:end] = [run.base_offset]
        runs[start:end] = [KnownRun(run, until)]
        return 1 - (end - start)

    def forget(self, key: str) -> int:
        """Forget the runs in one object; how many they were."""
        kept = [known for known in self.runs if known.run.key != key]
        gone = len(self.runs) - len(kept)
        if gone:
            self.runs = kept
            self.bases = [known.run.base_offset for known in kept]
        return gone

    def drop_oldest(self) -> int:
        """Forget the runs of the older half of what is known; how many they were."""
        count = (len(self.runs) + 1) // 2
        del self.runs[:count], self.bases[:count]
        return count


class Coordinates:
    """What is known of all logs."""

    def __init__(self, *, seconds_max: float, runs_max: int = RUNS_MAX) -> None:
        self._seconds_max = seconds_max
        self._runs_max = runs_max
        self._logs: dict[LogKey, LogKnowledge] = {}
        self._with_runs: OrderedDict[LogKey, LogKnowledge] = OrderedDict()  # oldest first
        self.run_count = 0

    def log(self, log: LogKey) -> LogKnowledge | None:
        """What is known of a log; None if nothing is."""
        return self._logs.get(log)

    def logs(self) -> list[LogKey]:
        """Every log of which something is known."""
        return list(self._logs)

    def learn_bounds(self, log: LogKey, bounds: LogBounds, now: float) -> bool:
        """Take over newer bounds; whether the high watermark has grown."""
        known = self._logs.get(log)
        if known is None:
            self._logs[log] = LogKnowledge(bounds, now)
            return True
        return known.learn_bounds(bounds, now)

    def learn_runs(self, log: LogKey, runs: Iterable[BatchRun], now: float) -> None:
        """Remember where batches are, as of `now`; the bounds of the log are known already."""
        known = self._logs[log]
        until = now + self._seconds_max
        for run in runs:
            self.run_count += known.add(run, until)
        self._with_runs[log] = known
        self._with_runs.move_to_end(log)
        while self.run_count > self._runs_max:  # diskless.R3
            oldest = next(iter(self._with_runs))
            known = self._with_runs[oldest]
            self.run_count -= known.drop_oldest()
            if not known.runs:
                del self._with_runs[oldest]

    def learn_parts(self, log: LogKey, run: BatchRun, rest: BatchRun) -> None:
        """Know a run by two parts, of which `rest` is the second, as long as it was known."""
        known = self._logs.get(log)
        if known is None or (until := known.until(run)) is None:
            return
        first = run._replace(end_offset=rest.base_offset, size=run.size - rest.size,
                             batch_count=run.batch_count - rest.batch_count)
        self.run_count += known.add(first, until)
        self.run_count += known.add(rest, until)

    def forget_object(self, log: LogKey, key: str) -> None:
        """Forget which batches of a log an object has: it may not be there any more."""
        known = self._logs.get(log)
        if known is not None:
            self.run_count -= known.forget(key)

    def forget_log(self, log: LogKey) -> None:
        """Forget a log: it is deleted."""
        known = self._logs.pop(log, None)
        self._with_runs.pop(log, None)
        if known is not None:
            self.run_count -= len(known.runs)

    def invariants(self) -> None:
        """Assert what holds between two calls."""
        assert self.run_count == sum(len(known.runs) for known in self._logs.values())
        assert self.run_count <= self._runs_max, self.run_count  # diskless.R3
        for known in self._logs.values():
            assert known.bases == [each.run.base_offset for each in known.runs]
            for (before, _), (after, _) in zip(known.runs, known.runs[1:], strict=False):
                assert before.end_offset <= after.base_offset, (before, after)  # diskless.R2
