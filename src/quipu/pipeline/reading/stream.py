"""`Stream`: where a stream of batches begins, and the end of each batch.

    stream = Stream(log, options, clock)
    start = stream.initial()
    end = stream.latest(start, Pace.LIMITED)      # the end of the next batch
    for task in stream.tasks(start, end): ...     # ranges for `loop.read_ranges`
    start = end

Positions are the only state that has to be stored: another `Stream` can continue from them.

Invariants
    pipeline.P1  the records between two positions are the same at any time and for any reader
    pipeline.P2  a partition that appears while the stream runs is read from its earliest record: it
                 is added to the positions there, with nothing to read, and read from the next batch
                 on
    pipeline.P3  after `prepare`, nothing that was written later is read, and the end is reached
    pipeline.P4  lost data is never skipped silently: it is an error, or a warning if
                 failOnDataLoss is false
    pipeline.P5  positions are only used in the topic that they belong to: a topic that was deleted
                 and created again is an error, or is read from its earliest record, as
                 onTopicRecreated says

`log` is a `quipu.client.cluster.Cluster`, or has the same methods.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Protocol
from uuid import UUID

from quipu.client.errors import DataLost, TopicRecreated, UnknownTopic
from quipu.client.fetch import OnLoss, raise_loss, recreated_reason
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import BadOption, Bound, Edge, ReadOptions, TopicSelection
from quipu.pipeline.reading.patterns import Matching, matching
from quipu.pipeline.reading.positions import (
    Positions,
    Reached,
    known_ids,
    ranges_between,
    recreated_topics,
)
from quipu.pipeline.reading.ranges import Sharing, Task, limited, shared_out
from quipu.pipeline.source import OnRecreated


class ClusterOffsets(Protocol):
    """The methods of a cluster that a stream uses."""

    def topics(self, matching: Matching | None = None) -> list[str]: ...
    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]: ...
    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]: ...
    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def at_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]: ...


class Pace(Enum):
    """How many of the available records a batch takes."""

    ALL = "all"
    LIMITED = "limited"  # as the options say


Warn = Callable[[DataLost], None]


def selected(log: ClusterOffsets, selection: TopicSelection) -> list[TopicPartition]:
    """The partitions of a selection that exist now."""
    if selection.assigned:
        existing = set(log.partitions(dict.fromkeys(each.topic for each in selection.assigned)))
        for each in selection.assigned:
            if each not in existing:
                raise UnknownTopic(f"there is no partition {each}")
        return list(selection.assigned)
    if selection.pattern is not None:
        return log.partitions(log.topics(matching(selection.pattern)))
    return log.partitions(selection.topics)


def resolved(log: ClusterOffsets, bound: Bound, partitions: Iterable[TopicPartition]) -> Positions:
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


def ids_of(log: ClusterOffsets, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
    """The ids of the topics of some partitions; topics that have no id are left out."""
    return known_ids(log.topic_ids(dict.fromkeys(each.topic for each in partitions)))


def beginning(log: ClusterOffsets, options: ReadOptions, warn: Warn) -> Reached:
    """The first positions of a reader that has not run before."""
    return begun(log, options, selected(log, options.selection), warn)


def begun(
    log: ClusterOffsets, options: ReadOptions, partitions: Iterable[TopicPartition], warn: Warn,
) -> Reached:
    """The first positions of a reader of some partitions.

    Start offsets of topics that were deleted since are ignored.
    """
    there = list(partitions)
    ids = ids_of(log, there)
    start = options.start
    given = Reached(dict(start.offsets), dict(start.topic_ids))
    gone = refuse_recreated(given, ids, options, warn) | (
        given.topic_ids.keys() - {each.topic for each in there})
    offsets = {each: offset for each, offset in start.offsets.items() if each.topic not in gone}
    return Reached(resolved(log, replace(start, offsets=offsets), there), ids)


def ends_of(log: ClusterOffsets, options: ReadOptions) -> Reached:
    """The positions of the current ends of all partitions."""
    partitions = selected(log, options.selection)
    ids = ids_of(log, partitions)
    return Reached(log.latest(partitions), ids)


def snapshot(log: ClusterOffsets, options: ReadOptions, cores: int, warn: Warn) -> list[Task]:
    """The tasks of a batch read."""
    partitions = selected(log, options.selection)
    start = begun(log, options, partitions, warn)
    end = resolved(log, options.end, partitions)
    return tasks_between(start, Reached(end, start.topic_ids), options, cores)


def refuse_recreated(
    before: Reached, topic_ids: Mapping[str, UUID], options: ReadOptions, warn: Warn,
) -> set[str]:
    """The topics that were recreated since `before`: raises or warns for each (pipeline.P5)."""
    recreated = recreated_topics(before, topic_ids)
    for name in sorted(recreated):
        first = min((each for each in before.positions if each.topic == name),
                    default=TopicPartition(name, 0))
        offset = before.positions.get(first, 0)
        on_loss(options, warn)(TopicRecreated(
            first, offset, offset, f"{recreated_reason(before.topic_ids[name], topic_ids[name])}; "
            f"positions in the old one say nothing about the new one: {options.recreated_hint}"))
    return recreated


def on_loss(options: ReadOptions, warn: Warn) -> OnLoss:
    """The handler of lost records for a stream's tasks: raises or warns, by the options."""
    def lose(loss: DataLost) -> None:
        is_error = (options.on_recreated is OnRecreated.FAIL if isinstance(loss, TopicRecreated)
                    else options.fail_on_loss)
        if is_error:
            raise_loss(loss)
        warn(loss)

    return lose


def tasks_between(
    start: Reached, end: Reached, options: ReadOptions, cores: int,
) -> list[Task]:
    """The ranges between two positions, divided into tasks."""
    return shared_out(ranges_between(start, end), Sharing(
        cores=options.tasks or cores, tasks_min=options.tasks_min,
        task_offsets_max=options.task_offsets_max))


class Stream:
    """The batches of one stream: where it begins, and the end of each batch."""

    def __init__(
        self, log: ClusterOffsets, options: ReadOptions, clock: Callable[[], float], *,
        warn: Warn, cores: int = 1,
    ) -> None:
        self._log = log
        self._options = options
        self._clock = clock  # in seconds
        self._warn = warn
        self._cores = cores
        self._target: Positions | None = None  # pipeline.P3
        self._newest: Positions | None = None  # the ends of partitions at the last `latest`
        self._batch_time = clock()

    def initial(self) -> Reached:
        """The first positions of a stream that has not run before."""
        return begun(self._log, self._options, self._partitions(), self._warn)

    def prepare(self) -> None:
        """Read no records that are written after this call (pipeline.P3)."""
        self._target = self._log.latest(self._partitions())

    def newest(self) -> Positions | None:
        """The ends of all partitions at the last call of `latest`, to show the lag."""
        return self._newest

    def latest(self, reached: Reached, pace: Pace) -> Reached:
        """The end of the next batch; equal to `reached` if there is nothing to read."""
        start = reached.positions
        there = self._partitions()
        ids = ids_of(self._log, there)
        recreated = refuse_recreated(reached, ids, self._options, self._warn)
        self._newest = self._log.latest(there)
        ends = dict(self._newest)
        if self._target is not None:
            ends = {each: min(end, self._target[each]) for each, end in ends.items()
                    if each in self._target}
        self._check_deleted({each for each in start if each.topic not in recreated}, start, there)
        entered = self._entered(start, ends, recreated)
        back = self._gone_back(start, recreated)
        ahead = {each: max(end, start[each]) for each, end in ends.items()
                 if each in start and each not in back}
        if pace is Pace.LIMITED:
            ahead = self._paced(start, ahead)
        end = dict(sorted({**ahead, **entered, **back}.items()))
        if end != start:
            self._batch_time = self._clock()
        names = {each.topic for each in end}
        kept = {name: each for name, each in reached.topic_ids.items() if name in names}
        return Reached(end, {**kept, **ids})

    def tasks(self, start: Reached, end: Reached) -> list[Task]:
        """The tasks of the batch between two positions (pipeline.P1)."""
        return tasks_between(start, end, self._options, self._cores)

    def _partitions(self) -> list[TopicPartition]:
        selection = self._options.selection
        try:
            return selected(self._log, selection)
        except UnknownTopic:
            if self._options.fail_on_loss:
                raise
        known = set(self._log.topics())  # continue with the topics that exist
        there = self._log.partitions(name for name in _topics(selection) if name in known)
        wanted = selection.assigned
        return [each for each in there if not wanted or each in wanted]

    def _entered(
        self, start: Positions, ends: Positions, recreated: Iterable[str],
    ) -> Positions:
        """The earliest offsets of new partitions (pipeline.P2)."""
        new = [each for each in ends if each not in start]
        entered = self._log.earliest(new) if new else {}
        for each, first in entered.items():
            if first > 0 and each.topic not in recreated:
                self._lose(DataLost(each, 0, first, "the partition is new, and does not begin at "
                                    "its first record"))
        return entered

    def _gone_back(self, start: Positions, recreated: Iterable[str]) -> Positions:
        """The earliest offsets of recreated or truncated partitions, which are read again.

        If the broker sends no topic ids, they are known only by a log that ends before a position.
        """
        assert self._newest is not None
        back = [each for each, end in self._newest.items()
                if each in start and (end < start[each] or each.topic in recreated)]
        for each in back:
            if each.topic not in recreated:
                self._lose(DataLost(each, self._newest[each], start[each],
                                    "the topic was deleted and created anew, or its log truncated"))
        return self._log.earliest(back) if back else {}

    def _check_deleted(
        self, known: set[TopicPartition], start: Positions, there: list[TopicPartition],
    ) -> None:
        for each in sorted(known - set(there)):
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
        self._warn(loss)  # pipeline.P4


def _topics(selection: TopicSelection) -> list[str]:
    return list(dict.fromkeys([*selection.topics, *(each.topic for each in selection.assigned)]))
