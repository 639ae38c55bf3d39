"""Where a stream of batches begins and goes on: a state machine over what the log says of itself.

    stream = Stream(log, options, clock)
    start = stream.initial()
    end = stream.latest(start, Pace.LIMITED)      # what the next batch reads up to
    for task in stream.tasks(start, end): ...     # ranges for `loop.read_ranges`
    start = end

Positions are the only state that has to be kept: any other `Stream` goes on from them.

Invariants
    P1  what lies between two positions is the same whenever and by whomever it is asked
    P2  a partition that appears while the stream runs is read from its earliest record: it enters
        the positions there, with nothing to read, and is read from the next batch on
    P3  after `prepare`, nothing that was written later is read, and the end is reached
    P4  data that is gone is never passed over in silence: it is an error, or a warning if
        failOnDataLoss is false

`log` is a `quipu.client.cluster.Cluster`, or whatever answers like one.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Protocol
from uuid import UUID

from quipu.client.errors import DataLost, UnknownTopic
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import BadOption, Bound, Edge, ReadOptions, Selection
from quipu.pipeline.reading.positions import Positions, ranges_between
from quipu.pipeline.reading.ranges import Sharing, Task, limited, shared_out


class Log(Protocol):
    """What is asked of a cluster."""

    def topics(self, pattern: str | None = None) -> list[str]: ...
    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]: ...
    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]: ...
    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def at_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]: ...


class Pace(Enum):
    """How much of what there is a batch takes."""

    ALL = "all"
    LIMITED = "limited"  # as the options say


Warn = Callable[[DataLost], None]


def selected(log: Log, selection: Selection) -> list[TopicPartition]:
    """The partitions that there are now."""
    if selection.assigned:
        there = set(log.partitions(dict.fromkeys(each.topic for each in selection.assigned)))
        for each in selection.assigned:
            if each not in there:
                raise UnknownTopic(f"there is no partition {each}")
        return list(selection.assigned)
    if selection.pattern is not None:
        return log.partitions(log.topics(selection.pattern))
    return log.partitions(selection.topics)


def resolved(log: Log, bound: Bound, partitions: Iterable[TopicPartition]) -> Positions:
    """The offsets that a bound means."""
    there = list(partitions)
    for name in (*bound.offsets, *bound.times_ms):
        if name not in there:
            raise BadOption(f"an offset or time is given for {name}, which is not being read")
    edges = {each: bound.offsets.get(each, bound.edge.value) for each in there}
    times = {each: bound.times_ms[each] if bound.time_ms is None else bound.time_ms
             for each in there if bound.time_ms is not None or each in bound.times_ms}
    found: Positions = {each: offset for each, offset in edges.items() if offset >= 0}
    found |= log.earliest([each for each, edge in edges.items()
                           if edge == Edge.EARLIEST.value and each not in times])
    late = [each for each, edge in edges.items()
            if edge == Edge.LATEST.value and each not in times]
    for each, offset in log.at_times(times).items() if times else ():
        if offset is not None:
            found[each] = offset
        elif bound.or_latest:
            late.append(each)
        else:
            raise BadOption(
                f"{each} has no record of {times[each]} ms or later; "
                "startingOffsetsByTimestampStrategy=latest begins with the next one")
    found |= log.latest(late)
    return {each: found[each] for each in there}


def snapshot(log: Log, options: ReadOptions, cores: int) -> list[Task]:
    """What a batch read reads."""
    partitions = selected(log, options.selection)
    start = resolved(log, options.start, partitions)
    end = resolved(log, options.end, partitions)
    return tasks_between(start, end, options, cores)


def tasks_between(
    start: Positions, end: Positions, options: ReadOptions, cores: int,
) -> list[Task]:
    """What lies between two positions, shared out."""
    return shared_out(ranges_between(start, end), Sharing(
        cores=options.tasks or cores, tasks_min=options.tasks_min,
        task_offsets_max=options.task_offsets_max))


class Stream:
    """See above."""

    def __init__(
        self, log: Log, options: ReadOptions, clock: Callable[[], float], *,
        warn: Warn, cores: int = 1,
    ) -> None:
        self._log = log
        self._options = options
        self._clock = clock  # in seconds
        self._warn = warn
        self._cores = cores
        self._target: Positions | None = None  # P3
        self._newest: Positions | None = None  # when it was last asked
        self._ids: dict[str, UUID] = {}  # of topics, to know one that was made anew
        self._batch_time = clock()

    def initial(self) -> Positions:
        """Where a stream begins that has not run before."""
        return resolved(self._log, self._options.start, self._partitions())

    def prepare(self) -> None:
        """Read what there is now, and no more (P3)."""
        self._target = self._log.latest(self._partitions())

    def newest(self) -> Positions | None:
        """The ends of all partitions, as last seen; for whoever shows how far behind we are."""
        return self._newest

    def latest(self, start: Positions, pace: Pace) -> Positions:
        """What the batch after `start` reads up to; `start` if there is nothing to do."""
        there = self._partitions()
        self._newest = self._log.latest(there)
        ends = dict(self._newest)
        if self._target is not None:
            ends = {each: min(end, self._target[each]) for each, end in ends.items()
                    if each in self._target}
        self._check_deleted(start, there)
        entered = self._entered(start, ends)
        back = self._gone_back(start)
        ahead = {each: max(end, start[each]) for each, end in ends.items()
                 if each in start and each not in back}
        if pace is Pace.LIMITED:
            ahead = self._paced(start, ahead)
        end = dict(sorted({**ahead, **entered, **back}.items()))
        if end != start:
            self._batch_time = self._clock()
        return end

    def tasks(self, start: Positions, end: Positions) -> list[Task]:
        """What lies between two positions, for each task of the batch."""
        return tasks_between(start, end, self._options, self._cores)

    def _partitions(self) -> list[TopicPartition]:
        selection = self._options.selection
        try:
            return selected(self._log, selection)
        except UnknownTopic:
            if self._options.fail_on_loss:
                raise
        known = set(self._log.topics())  # go on with those that there are
        there = self._log.partitions(name for name in _topics(selection) if name in known)
        wanted = selection.assigned
        return [each for each in there if not wanted or each in wanted]

    def _entered(self, start: Positions, ends: Positions) -> Positions:
        """Partitions that are new: at their earliest (P2)."""
        new = [each for each in ends if each not in start]
        entered = self._log.earliest(new) if new else {}
        for each, first in entered.items():
            if first > 0:
                self._lose(DataLost(each, 0, first, "the partition is new, and does not begin at "
                                    "its first record"))
        return entered

    def _gone_back(self, start: Positions) -> Positions:
        """Partitions that are not what was read before: read again from the earliest."""
        assert self._newest is not None
        ids = self._log.topic_ids(dict.fromkeys(each.topic for each in self._newest))
        anew = {name for name, topic_id in ids.items() if self._ids.get(name, topic_id) != topic_id}
        self._ids |= ids
        back = [each for each, end in self._newest.items()
                if each in start and (end < start[each] or each.topic in anew)]
        for each in back:
            self._lose(DataLost(
                each, min(self._newest[each], start[each]), start[each],
                "the topic was deleted and made anew, or its log was cut"))
        return self._log.earliest(back) if back else {}

    def _check_deleted(self, start: Positions, there: list[TopicPartition]) -> None:
        for each in start.keys() - set(there):
            self._lose(DataLost(each, start[each], start[each], "the partition was deleted"))

    def _paced(self, start: Positions, ahead: Positions) -> Positions:
        limits = self._options.limits
        available = sum(end - start[each] for each, end in ahead.items())
        if (limits.offsets_min is not None and available < limits.offsets_min
                and self._target is None
                and self._clock() - self._batch_time < limits.delay_max_ms / 1000):
            return {each: start[each] for each in ahead}
        if limits.offsets_max is not None:
            return limited(start, ahead, limits.offsets_max)
        return ahead

    def _lose(self, loss: DataLost) -> None:
        if self._options.fail_on_loss:
            raise loss
        self._warn(loss)  # P4


def _topics(selection: Selection) -> list[str]:
    return list(dict.fromkeys([*selection.topics, *(each.topic for each in selection.assigned)]))
