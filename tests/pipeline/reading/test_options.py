"""Options of a reader: what is read out of them, and every mistake."""

import contextlib
import pickle
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.options import (
    COLUMNS,
    EARLIEST,
    LATEST,
    BadOption,
    Bound,
    Edge,
    Limits,
    ReadOptions,
    TopicSelection,
    batch_options,
    columns_option,
    stream_options,
)
from quipu.pipeline.reading.planned_options import planned_options
from quipu.pipeline.source import Start, TopicLocation

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT = {"kafka.bootstrap.servers": "h:1"}


def batch(**options: str) -> ReadOptions:
    return batch_options({**AT, "subscribe": "t", **options})


def stream(**options: str) -> ReadOptions:
    return stream_options({**AT, "subscribe": "t", **options})


def test_defaults_are_sparks() -> None:
    """I12: a batch reads all there is, a stream what comes."""
    read = batch()
    assert (read.start, read.end, read.selection) == (EARLIEST, LATEST, TopicSelection(("t",)))
    assert read.columns == COLUMNS[:-1]
    assert (read.fail_on_loss, read.client.read_committed) == (True, False)
    assert (read.client.bootstrap_servers, read.limits) == ("h:1", Limits())
    assert stream().start == LATEST
    assert pickle.loads(pickle.dumps(read)) == read


def test_names_are_not_case_sensitive() -> None:
    given = {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBEPATTERN": "a.*", "INCLUDEHEADERS": "True"}
    read = batch_options(given)
    assert (read.selection, read.columns) == (TopicSelection(pattern="a.*"), COLUMNS)


def test_topics() -> None:
    """I14: several topics, a pattern, or partitions."""
    assert batch(subscribe=" a , b,a,").selection.topics == ("a", "b")
    assigned = batch_options({**AT, "assign": '{"t": [1, 0], "s": [2]}'}).selection.assigned
    assert assigned == (TopicPartition("s", 2), T0, T1)


def test_where_reading_begins_and_ends() -> None:
    """I14: by words, by JSON, by times; times win."""
    assert batch(startingOffsets=" Earliest ").start == EARLIEST
    assert batch(startingOffsets='{"t": {"0": 23, "1": -2}}').start == Bound(
        Edge.EARLIEST, {T0: 23, T1: -2})
    assert batch(endingOffsets='{"t": {"1": -1}}').end == Bound(Edge.LATEST, {T1: -1})
    assert stream(startingOffsets="latest").start == LATEST
    timed = batch(startingTimestamp="5", startingOffsetsByTimestamp='{"t": {"0": 6}}',
                  startingOffsets="earliest", endingTimestamp="9")
    assert timed.start == Bound(Edge.EARLIEST, time_ms=5)
    assert timed.end == Bound(Edge.LATEST, time_ms=9, or_latest=True)
    by_partition = stream(startingOffsetsByTimestamp='{"t": {"0": 6}}', startingOffsets="latest",
                          startingOffsetsByTimestampStrategy="LATEST").start
    assert by_partition == Bound(Edge.EARLIEST, times_ms={T0: 6}, or_latest=True)


def test_limits_and_columns() -> None:
    read = stream(maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="2 min",
                  minPartitions="4", maxRecordsPerPartition="50", tasksPerBatch="3",
                  failOnDataLoss="false", columns="offset, VALUE,timestamptype",
                  **{"kafka.isolation.level": "read_committed", "groupIdPrefix": "x"})
    assert read.limits == Limits(100, 10, 120_000)
    assert (read.tasks_min, read.task_offsets_max, read.tasks) == (4, 50, 3)
    assert (read.fail_on_loss, read.client.read_committed) == (False, True)
    assert read.columns == ("value", "offset", "timestampType")
    assert columns_option({"columns": "headers"}) == ("headers",)


@pytest.mark.parametrize(("options", "words"), [
    ({"subscribe": "a", "assign": "{}"}, "exactly one of subscribe, .* found subscribe and assign"),
    ({"startingOfsets": "earliest"}, "unknown option startingOfsets; did you mean startingOffs"),
    ({"wat": "x"}, "unknown option wat$"),
    ({"kafka.fetch.max.byte": "1"}, "kafka.unknown setting fetch.max.byte; did you mean"),
    ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set"),
    ({"subscribe": ","}, "subscribe: no topic is named"),
    ({"subscribe": "a b"}, "subscribe: topic name 'a b' may hold only"),
    ({"startingOffsets": "middle"}, "startingOffsets: no JSON"),
    ({"startingOffsets": "{}" * 2}, "startingOffsets: no JSON"),
    ({"startingOffsets": "[1]"}, "startingOffsets: must be JSON such as"),
    ({"startingOffsets": '{"t": {"0": -3}}'}, "t-0: -3 must be a number from -2"),
    ({"startingOffsets": '{"t": {"0": 1.5}}'}, "t-0: 1.5 must be a number"),
    ({"startingOffsets": '{"t": {"0": true}}'}, "t-0: True must be a number"),
    ({"startingOffsets": '{"t": {"x": 1}}'}, "t: 'x' is no number of a partition"),
    ({"startingOffsets": '{"t": {"100000": 1}}'}, "t: '100000' is no number of a partition"),
    ({"startingOffsets": "latest"}, "of a batch read cannot be the latest"),
    ({"startingOffsets": '{"t": {"0": -1}}'}, "of a batch read cannot be the latest"),
    ({"endingOffsets": "earliest"}, "endingOffsets cannot be the earliest"),
    ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets cannot be the earliest"),
    ({"startingTimestamp": "-5"}, "startingTimestamp=-5: must be a number from 0"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
    ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger cannot be given here: it is for streams"),
    ({"minPartitions": "0"}, "minPartitions=0: must be a number from 1"),
    ({"minPartitions": "9" * 30}, "must be a number from 1 to 2147483647"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss=maybe: must be true or false"),
    ({"columns": "valu"}, "columns: there is no 'valu'; there are key, value"),
])
def test_mistakes(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        batch_options({**AT, "subscribe": "t", **options})


@pytest.mark.parametrize(("options", "words"), [
    ({}, "found none"),
    ({"subscribePattern": "("}, "subscribePattern: no regular expression"),
    ({"subscribePattern": "a{99999999999}"}, "subscribePattern: no regular expression"),
    ({"subscribePattern": ""}, "the pattern is empty"),
    ({"assign": "[]"}, "assign: must be JSON such as"),
    ({"assign": '{"t": []}'}, "assign: must be JSON such as"),
    ({"assign": '{"t": ["x"]}'}, "assign: t: 'x' is no number"),
    ({"subscribe": "t", "endingOffsets": "latest"}, "endingOffsets cannot be given here: a stream"),
    ({"subscribe": "t", "endingTimestamp": "1"}, "endingTimestamp cannot be given here"),
    ({"subscribe": "t", "maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: must be a time such"),
    ({"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than"),
])
def test_mistakes_of_streams(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        stream_options({**AT, **options})


def test_a_cluster_must_be_named() -> None:
    with pytest.raises(BadOption, match=r"kafka.bootstrap.servers is missing"):
        batch_options({"subscribe": "t"})


@settings(max_examples=60)
@given(st.text(max_size=30))
def test_any_text_is_taken_or_refused(text: str) -> None:
    """Never anything but an answer or a `BadOption`."""
    for name in ("startingOffsets", "startingOffsetsByTimestamp", "maxTriggerDelay", "columns",
                 "startingTimestamp", "minPartitions", "failOnDataLoss"):
        with contextlib.suppress(BadOption):
            assert isinstance(stream(**{name: text}), ReadOptions)


def test_options_of_a_planned_source() -> None:
    location = TopicLocation("h:1", ("t",), options={"client.id": "me"})
    read = planned_options(location, Start({"t": {1: 5}}, {"t": UUID(int=7)}))
    assert read.selection == TopicSelection(("t",))
    assert read.start == Bound(Edge.EARLIEST, {T1: 5}, {"t": UUID(int=7)})
    assert (read.client.client_id, read.client.read_committed) == ("me", True)
    pattern = planned_options(TopicLocation("h:1", pattern="a.*"), Start(), read_committed=False)
    assert (pattern.selection.pattern, pattern.client.read_committed) == ("a.*", False)
