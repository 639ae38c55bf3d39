"""Where a stream begins and goes on, over a log that changes as the test says."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from quipu.client.errors import DataLost, TopicRecreated, UnknownTopic
from quipu.client.fetch import raise_loss
from quipu.client.ranges import Range
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import (
    BadOption,
    Bound,
    Edge,
    TopicSelection,
    batch_options,
    stream_options,
)
from quipu.pipeline.reading.patterns import Matching
from quipu.pipeline.reading.positions import BadPositions, Positions, Reached, ranges_between
from quipu.pipeline.reading.stream import Pace, Stream, beginning, snapshot
from quipu.pipeline.source import OnRecreated

A0, A1, A2, B0 = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))


class FakeLog:
    """Partitions with a first and a next offset; the record at offset n has the time 10 n."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.ids: dict[str, UUID] = {}
        self.parts: dict[TopicPartition, tuple[int, int]] = {}
        for name, bounds in topics.items():
            self.make(name, *bounds)

    def make(self, topic: str, *bounds: tuple[int, int]) -> None:
        """Make a topic, maybe anew."""
        self.delete(topic)
        self.ids[topic] = UUID(int=self.ids[topic].int + 1 if topic in self.ids else 1)
        self.parts |= {TopicPartition(topic, index): each for index, each in enumerate(bounds)}

    def delete(self, topic: str) -> None:
        self.parts = {part: each for part, each in self.parts.items() if part.topic != topic}

    def topics(self, matching: Matching | None = None) -> list[str]:
        names = sorted({part.topic for part in self.parts})
        return names if matching is None else matching(names)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        names = list(topics)
        for name in names:
            if name not in self.topics():
                raise UnknownTopic(f"there is no topic {name}")
        return [part for name in names for part in self.parts if part.topic == name]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return {name: self.ids[name] for name in topics}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Positions:
        return {part: self.parts[part][0] for part in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> Positions:
        return {part: self.parts[part][1] for part in partitions}

    def at_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        found = {}
        for part, time_ms in times_ms.items():
            first, end = self.parts[part]
            offset = max(first, -(-time_ms // 10))
            found[part] = offset if offset < end else None
        return found


class Run:
    """A stream, its clock, and what it warned of."""

    def __init__(self, log: FakeLog, **options: str) -> None:
        given = {"kafka.bootstrap.servers": "h:1", "startingOffsets": "earliest", **options}
        if not {"assign", "subscribePattern", "subscribe"} & given.keys():
            given["subscribe"] = "a"
        self.now = 0.0
        self.lost: list[str] = []
        self.stream = Stream(
            log, stream_options(given), lambda: self.now,
            warn=lambda loss: self.lost.append(str(loss)), cores=2)

    def initial(self) -> Positions:
        return self.stream.initial().positions

    def steps(
        self, start: Positions | Reached, pace: Pace = Pace.LIMITED
    ) -> list[Positions]:
        """The ends of the next batches, until there is nothing to do."""
        found: list[Positions] = []
        reached = start if isinstance(start, Reached) else Reached(start, {})
        for _ in range(10):
            end = self.stream.latest(reached, pace)
            if end.positions == reached.positions:
                return found
            found.append(end.positions)
            reached = end
        return found


@pytest.mark.parametrize(("options", "start", "end"), [
    ({}, {A0: 2, A1: 0}, {A0: 9, A1: 4}),
    ({"startingOffsets": '{"a": {"0": 5}}'}, {A0: 5, A1: 0}, {A0: 9, A1: 4}),
    ({"startingOffsets": '{"a": {"0": -2, "1": 3}}', "endingOffsets": '{"a": {"0": 4}}'},
     {A0: 2, A1: 3}, {A0: 4, A1: 4}),
    ({"startingTimestamp": "25", "endingTimestamp": "50"}, {A0: 3, A1: 3}, {A0: 5, A1: 4}),
    ({"startingTimestamp": "60", "startingOffsetsByTimestampStrategy": "latest"},
     {A0: 6, A1: 4}, {A0: 9, A1: 4}),
    ({"startingOffsetsByTimestamp": '{"a": {"0": 30}}',
      "endingOffsetsByTimestamp": '{"a": {"1": 20}}'}, {A0: 3, A1: 0}, {A0: 9, A1: 2}),
])
def test_a_snapshot(options: dict[str, str], start: Positions, end: Positions) -> None:
    """I12, I14: what a batch read reads."""
    log = FakeLog(a=[(2, 9), (0, 4)])
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options}
    tasks = snapshot(log, batch_options(given), 1, raise_loss)
    assert [each for task in tasks for each in task] == [
        Range(*part, start[part], end[part], log.ids["a"])
        for part in start if start[part] < end[part]]


def test_a_time_that_nothing_is_as_young_as() -> None:
    run = Run(FakeLog(a=[(0, 5)]), startingTimestamp="1000")
    with pytest.raises(BadOption, match=r"a-0 has no record of 1000 ms or later; .*=latest"):
        run.stream.initial()


def test_an_offset_of_something_that_is_not_read() -> None:
    run = Run(FakeLog(a=[(0, 5)]), startingOffsets='{"b": {"0": 1}}')
    with pytest.raises(BadOption, match="given for b-0, which is not being read"):
        run.stream.initial()


def test_assigned_partitions_alone() -> None:
    """I14: those that are named, and no others."""
    log = FakeLog(a=[(0, 5), (0, 6)], b=[(0, 7)])
    run = Run(log, assign='{"a": [1], "b": [0]}')
    assert run.initial() == {A1: 0, B0: 0}
    assert run.steps({A1: 0, B0: 0}) == [{A1: 6, B0: 7}]
    with pytest.raises(UnknownTopic, match="there is no partition a-7"):
        Run(log, assign='{"a": [7]}').stream.initial()


def test_a_stream_goes_on() -> None:
    """pipeline.P1."""
    log = FakeLog(a=[(0, 5), (0, 0)])
    run = Run(log, startingOffsets="latest")
    start = run.initial()
    assert start == {A0: 5, A1: 0}
    assert run.steps(start) == []
    log.parts[A1] = (0, 3)
    assert run.steps(start) == [{A0: 5, A1: 3}]
    assert run.stream.newest() == {A0: 5, A1: 3}
    assert run.stream.tasks(Reached(start, {}), Reached({A0: 5, A1: 3}, log.ids)) == [
        (Range("a", 1, 0, 3, log.ids["a"]),)]


def test_no_more_than_the_limit() -> None:
    """A limit is shared by what there is; a trigger may ask for all."""
    log = FakeLog(a=[(0, 90), (0, 10)])
    run = Run(log, maxOffsetsPerTrigger="50")
    assert run.steps({A0: 0, A1: 0}) == [{A0: 45, A1: 5}, {A0: 90, A1: 10}]
    assert run.steps({A0: 0, A1: 0}, Pace.ALL) == [{A0: 90, A1: 10}]


def test_no_less_than_the_least_for_a_while() -> None:
    log = FakeLog(a=[(0, 3)])
    run = Run(log, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    assert run.steps({A0: 0}) == []
    log.parts[A0] = (0, 6)
    assert run.steps({A0: 0}) == [{A0: 6}]
    log.parts[A0] = (0, 8)
    run.now = 9.0
    assert run.steps({A0: 6}) == []
    run.now = 10.5
    assert run.steps({A0: 6}) == [{A0: 8}]
    assert run.steps({A0: 6}, Pace.ALL) == [{A0: 8}]


def test_available_now_ends() -> None:
    """pipeline.P3: what is written after the beginning is not read, in however many batches."""
    log = FakeLog(a=[(0, 6)])
    run = Run(log, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    run.stream.prepare()
    log.parts[A0] = (0, 100)
    log.parts[A1] = (0, 7)
    assert run.steps({A0: 0}) == [{A0: 4}, {A0: 6}]
    again = Run(log, maxOffsetsPerTrigger="80")
    again.stream.prepare()
    assert again.steps({A0: 6})[-1] == {A0: 100, A1: 7}


def test_partitions_that_appear_are_read_from_the_earliest() -> None:
    """pipeline.P1, pipeline.P2: they enter with nothing to read, so that what a batch reads
    stays the same for ever.
    """
    log = FakeLog(a=[(0, 5)])
    run = Run(log, subscribePattern="a|b")
    log.parts[A1] = (0, 3)
    log.make("b", (0, 2))
    assert run.steps({A0: 5}) == [{A0: 5, A1: 0, B0: 0}, {A0: 5, A1: 3, B0: 2}]
    assert run.stream.tasks(Reached({A0: 5}, {}), Reached({A0: 5, A1: 0, B0: 0}, {})) == []
    log.parts[A2] = (4, 6)
    with pytest.raises(DataLost, match=r"a-2: offsets 0 to 4 .* the partition is new"):
        run.steps({A0: 5, A1: 3, B0: 2})
    lax = Run(log, subscribePattern="a|b", failOnDataLoss="false")
    assert lax.steps({A0: 5, A1: 3, B0: 2})[-1] == {A0: 5, A1: 3, A2: 6, B0: 2}
    assert len(lax.lost) == 1


def both(
    log: FakeLog, start: Positions, change: Callable[[], None], **options: str
) -> tuple[str, list[Positions]]:
    """What fails if data may not be lost, and what is read if it may."""
    strict, lax = Run(log, **options), Run(log, failOnDataLoss="false", **options)
    for run in (strict, lax):
        assert run.steps(start) == []
    change()
    with pytest.raises((DataLost, UnknownTopic)) as failed:
        strict.steps(start)
    steps = lax.steps(start)
    assert lax.lost == [str(failed.value)] or isinstance(failed.value, UnknownTopic)
    return str(failed.value), steps


BOUNDS = [
    pytest.param([(0, 3), (0, 3)], id="shorter"), pytest.param([(0, 500), (0, 500)], id="longer"),
    pytest.param([(0, 50), (0, 40)], id="just as long"), pytest.param([(0, 500)], id="narrower"),
    pytest.param([(0, 90), (0, 90), (0, 9)], id="wider"),
    pytest.param([(70, 90), (80, 90)], id="late")]


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_topic_that_was_created_anew_is_never_read_from_the_old_positions(
    bounds: list[tuple[int, int]], *, is_running: bool
) -> None:
    """I13, I15: pipeline.P5: while a stream runs, or while it is down: an error that says what to
    do, or the new topic from its first record.
    """
    log = FakeLog(a=[(0, 50), (0, 40)])
    strict, lax = Run(log), Run(log, onTopicRecreated="earliest")
    reached = strict.stream.latest(Reached({A0: 50, A1: 40}, {}), Pace.ALL)
    assert reached == ({A0: 50, A1: 40}, log.ids)
    assert lax.steps(reached) == []
    log.make("a", *bounds)
    if not is_running:
        reached = Reached.from_json(json.loads(json.dumps(reached.to_json())))
        strict, lax = Run(log), Run(log, onTopicRecreated="earliest")
    for _ in range(3):  # it stays an error
        with pytest.raises(TopicRecreated, match=r"a-0: .* created anew .*onTopicRecreated=earl"):
            strict.stream.latest(reached, Pace.ALL)

    first = {TopicPartition("a", index): each[0] for index, each in enumerate(bounds)}
    last = {TopicPartition("a", index): each[1] for index, each in enumerate(bounds)}
    begun = lax.stream.latest(reached, Pace.ALL)
    assert begun == (first, log.ids)
    assert ranges_between(reached, begun) == []  # also where the new one begins behind the old
    assert lax.steps(begun) == [last]
    assert [each.topic_id for each in ranges_between(begun, Reached(last, log.ids))] == [
        log.ids["a"]] * len(bounds)
    assert len(lax.lost) == 1
    assert Run(log, failOnDataLoss="false").steps(reached) == [first, last]


def test_a_checkpoint_without_ids_goes_on_and_learns_them() -> None:
    """I13: as older versions have written it; from then on a new topic is noticed."""
    log = FakeLog(a=[(0, 50)])
    old = Reached.from_json({"a": {"0": 30}})
    assert old == ({A0: 30}, {})
    reached = Run(log).stream.latest(old, Pace.ALL)
    assert reached == ({A0: 50}, log.ids)
    assert reached.to_json() == {"a": {"0": 50}, "#topic_ids": {"a": str(log.ids["a"])}}
    assert ranges_between(old, reached) == [Range("a", 0, 30, 50, log.ids["a"])]
    quiet = Run(log).stream.latest(Reached({A0: 50}, {}), Pace.ALL)
    assert quiet.to_json() != {"a": {"0": 50}}  # a batch without messages keeps the ids
    log.make("a", (0, 500))
    with pytest.raises(TopicRecreated):
        Run(log).stream.latest(reached, Pace.ALL)


def test_a_broker_that_tells_no_ids() -> None:
    """I18: what holds is that a log which ends before a position is noticed."""
    log = FakeLog(a=[(0, 50)])
    log.ids["a"] = UUID(int=0)
    run = Run(log)
    reached = run.stream.latest(Reached({A0: 30}, {}), Pace.ALL)
    assert reached == ({A0: 50}, {})
    log.make("a", (0, 3))
    log.ids["a"] = UUID(int=0)
    with pytest.raises(DataLost, match="created anew, or its log truncated"):
        run.stream.latest(reached, Pace.ALL)
    assert Run(log, failOnDataLoss="false").steps(reached) == [{A0: 0}, {A0: 3}]
    # One that tells none for a while does not make us forget.
    known = Reached({A0: 3}, {"a": UUID(int=7)})
    assert run.stream.latest(known, Pace.ALL) == known


def test_a_topic_that_has_fewer_partitions_is_not_passed_over() -> None:
    """I15: pipeline.P4: Kafka never takes partitions away; whatever does is told."""
    log = FakeLog(a=[(0, 50), (0, 40)])
    reached = Run(log).stream.latest(Reached({A0: 50, A1: 40}, {}), Pace.ALL)
    del log.parts[A1]
    with pytest.raises(DataLost, match="a-1: no more data: the partition was deleted"):
        Run(log).stream.latest(reached, Pace.ALL)
    lax = Run(log, failOnDataLoss="false")
    assert lax.steps(reached) == [{A0: 50}]
    assert len(lax.lost) == 1


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("selection", [TopicSelection(("a", "b")), TopicSelection(pattern="a|b")])
def test_offsets_to_begin_with_are_not_used_in_a_topic_that_was_created_anew(
    selection: TopicSelection, bounds: list[tuple[int, int]]
) -> None:
    """I14, I15: START OFFSET and START TIMESTAMP, resolved before the topic was created anew.

    Whoever begins is told so, or reads the new topic from its first record: streams, views and
    batch reads alike.
    """
    log = FakeLog(a=[(0, 50), (0, 40)], b=[(0, 7)])
    strict = replace(
        batch_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a"}), selection=selection,
        start=Bound(Edge.EARLIEST, {A0: 20, A1: 30, B0: 5}, dict(log.ids)))
    lax = replace(strict, on_recreated=OnRecreated.EARLIEST)
    warned: list[DataLost] = []
    for options in (strict, lax):
        assert beginning(log, options, warned.append) == ({A0: 20, A1: 30, B0: 5}, log.ids)
    assert warned == []
    log.make("a", *bounds)
    for begin in (
        lambda: beginning(log, strict, warned.append), lambda: snapshot(log, strict, 1, raise_loss),
        Stream(log, strict, lambda: 0.0, warn=warned.append).initial,
    ):
        with pytest.raises(TopicRecreated, match=r"a-0: .* created anew"):
            begin()

    first = {TopicPartition("a", index): each[0] for index, each in enumerate(bounds)}
    assert beginning(log, lax, warned.append) == ({**first, B0: 5}, log.ids)
    assert [each.partition for each in warned] == [A0]
    assert {(each.topic, each.topic_id) for task in snapshot(log, lax, 1, warned.append)
            for each in task} == set(log.ids.items())


def test_offsets_to_begin_with_whose_topic_is_not_known_are_used() -> None:
    """I14, I18: those of a catalog of Quipu 0.3, or of a broker that tells no ids."""
    log = FakeLog(a=[(0, 50)])
    options = stream_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    for start, id_now in ((Bound(Edge.EARLIEST, {A0: 20}), 5),
                          (Bound(Edge.EARLIEST, {A0: 20}, dict(log.ids)), 0)):
        log.ids["a"] = UUID(int=id_now)
        found = beginning(log, replace(options, start=start), raise_loss)
        assert found.positions == {A0: 20}


def test_a_topic_that_is_gone_has_nothing_to_begin_with() -> None:
    """I14: of the topics of a pattern; those that are there begin where they were to."""
    log = FakeLog(a=[(0, 50)], b=[(0, 7)])
    options = replace(
        stream_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "a|b"}),
        start=Bound(Edge.EARLIEST, {A0: 20, B0: 5}, dict(log.ids)))
    log.delete("a")
    assert beginning(log, options, raise_loss).positions == {B0: 5}


@pytest.mark.parametrize("given", [
    {"a": {"0": 1}, "#topic_ids": 5}, {"a": {"0": 1}, "#topic_ids": {"a": "x"}},
    {"a": {"0": 1}, "#topic_ids": {"a": 5}}, [], {"#ids": {"a": "x"}}])
def test_what_is_no_checkpoint_is_refused(given: object) -> None:
    """K8."""
    with pytest.raises(BadPositions):
        Reached.from_json(given)


def test_a_topic_that_is_deleted() -> None:
    log = FakeLog(a=[(0, 5)], b=[(0, 2)])
    start = {A0: 5, B0: 2}
    message, steps = both(log, start, lambda: log.delete("b"), subscribe="a,b")
    assert (message, steps) == ("there is no topic b", [{A0: 5}])
    log.make("b", (0, 2))
    message, steps = both(log, start, lambda: log.delete("b"), subscribePattern="a|b")
    assert (message, steps) == ("b-0: no more data: the partition was deleted", [{A0: 5}])
    log.make("b", (0, 2))
    message, steps = both(log, start, lambda: log.delete("b"), assign='{"a": [0], "b": [0]}')
    assert (message, steps) == ("there is no topic b", [{A0: 5}])
