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
    P5  positions are never used in another topic than they are of: one that was deleted and created
        anew is an error, or is read from its earliest record, as onTopicRecreated says

`log` is a `quipu.client.cluster.Cluster`, or whatever answers like one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Protocol
from uuid import UUID

from quipu.client.errors import DataLost, TopicRecreated, UnknownTopic
from quipu.client.fetch import OnLoss, raise_loss, recreated
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import BadOption, Bound, Edge, ReadOptions, Selection
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


class Log(Protocol):
    """What is asked of a cluster."""

    def topics(self, matching: Matching | None = None) -> list[str]: ...
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
        return log.partitions(log.topics(matching(selection.pattern)))
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


def ids_of(log: Log, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
    """The ids of the topics of some partitions, where they are told."""
    return known_ids(log.topic_ids(dict.fromkeys(each.topic for each in partitions)))


def beginning(log: Log, options: ReadOptions, warn: Warn) -> Reached:
    """Where a reader begins that has not run before."""
    return begun(log, options, selected(log, options.selection), warn)


def begun(
    log: Log, options: ReadOptions, partitions: Iterable[TopicPartition], warn: Warn,
) -> Reached:
    """Where a reader of some partitions begins.

    Offsets that are known to be of topics which are gone by now are left aside.
    """
    there = list(partitions)
    ids = ids_of(log, there)
    start = options.start
    given = Reached(dict(start.offsets), dict(start.topic_ids))
    gone = tell_recreated(given, ids, options, warn) | (
        given.topic_ids.keys() - {each.topic for each in there})
    offsets = {each: offset for each, offset in start.offsets.items() if each.topic not in gone}
    return Reached(resolved(log, replace(start, offsets=offsets), there), ids)


def ends_of(log: Log, options: ReadOptions) -> Reached:
    """Where all partitions end now."""
    partitions = selected(log, options.selection)
    ids = ids_of(log, partitions)
    return Reached(log.latest(partitions), ids)


def snapshot(log: Log, options: ReadOptions, cores: int, warn: Warn) -> list[Task]:
    """What a batch read reads."""
    partitions = selected(log, options.selection)
    start = begun(log, options, partitions, warn)
    end = resolved(log, options.end, partitions)
    return tasks_between(start, Reached(end, start.topic_ids), options, cores)


def tell_recreated(
    before: Reached, topic_ids: Mapping[str, UUID], options: ReadOptions, warn: Warn,
) -> set[str]:
    """The topics that are other ones now than `before` is about: an error, or warned of (P5)."""
    anew = recreated_topics(before, topic_ids)
    for name in sorted(anew):
        first = min((each for each in before.positions if each.topic == name),
                    default=TopicPartition(name, 0))
        offset = before.positions.get(first, 0)
        on_loss(options, warn)(TopicRecreated(
            first, offset, offset, f"{recreated(before.topic_ids[name], topic_ids[name])}; "
            f"positions in the old one say nothing about the new one: {options.recreated_hint}"))
    return anew


def on_loss(options: ReadOptions, warn: Warn) -> OnLoss:
    """What a stream's tasks do about records that are gone."""
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
        self._batch_time = clock()

    def initial(self) -> Reached:
        """Where a stream begins that has not run before."""
        return begun(self._log, self._options, self._partitions(), self._warn)

    def prepare(self) -> None:
        """Read what there is now, and no more (P3)."""
        self._target = self._log.latest(self._partitions())

    def newest(self) -> Positions | None:
        """The ends of all partitions, as last seen; for whoever shows how far behind we are."""
        return self._newest

    def latest(self, reached: Reached, pace: Pace) -> Reached:
        """What the next batch reads up to; what was given if there is nothing to do."""
        start = reached.positions
        there = self._partitions()
        ids = ids_of(self._log, there)
        anew = tell_recreated(reached, ids, self._options, self._warn)
        self._newest = self._log.latest(there)
        ends = dict(self._newest)
        if self._target is not None:
            ends = {each: min(end, self._target[each]) for each, end in ends.items()
                    if each in self._target}
        self._check_deleted({each for each in start if each.topic not in anew}, start, there)
        entered = self._entered(start, ends, anew)
        back = self._gone_back(start, anew)
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

    def _entered(
        self, start: Positions, ends: Positions, anew: Iterable[str],
    ) -> Positions:
        """Partitions that are new: at their earliest (P2)."""
        new = [each for each in ends if each not in start]
        entered = self._log.earliest(new) if new else {}
        for each, first in entered.items():
            if first > 0 and each.topic not in anew:
                self._lose(DataLost(each, 0, first, "the partition is new, and does not begin at "
                                    "its first record"))
        return entered

    def _gone_back(self, start: Positions, anew: Iterable[str]) -> Positions:
        """Partitions that are not what was read before: read again from the earliest.

        Where a broker tells no ids, only a log that ends before a position gives it away.
        """
        assert self._newest is not None
        back = [each for each, end in self._newest.items()
                if each in start and (end < start[each] or each.topic in anew)]
        for each in back:
            if each.topic not in anew:
                self._lose(DataLost(each, self._newest[each], start[each],
                                    "the topic was deleted and created anew, or its log was cut"))
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
        self._warn(loss)  # P4


def _topics(selection: Selection) -> list[str]:
    return list(dict.fromkeys([*selection.topics, *(each.topic for each in selection.assigned)]))
