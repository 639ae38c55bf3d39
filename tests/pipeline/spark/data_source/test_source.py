"""`format("quipu")` on a real Spark and a real node: batch reads, streams, writes."""

import json
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quipu.pipeline.reading.options import stream_options
from quipu.pipeline.spark.data_source.register import register
from quipu.pipeline.spark.data_source.source import RawStreamReader
from tests.harness.progress import FINAL_SECONDS, wait_for
from tests.pipeline.spark.broker import Broker


@pytest.fixture(scope="module")
def mock() -> Iterator[tuple[Producer, str]]:
    """Two brokers that share no code with ours; topics are made by producing to them."""
    producer = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "none", "log_level": 0})
    told = producer.list_topics(timeout=30).brokers.values()
    yield producer, ",".join(f"{each.host}:{each.port}" for each in told)
    producer.flush(5)


def reader(spark: SparkSession, broker: Broker, **options: str) -> Any:
    return spark.read.format("quipu").option(
        "kafka.bootstrap.servers", broker.bootstrap).options(**options)


def stream(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **options}
    return spark.readStream.format("quipu").options(**given).load()


def test_readers_travel_with_nothing_but_options(broker: Broker) -> None:
    """I11: pipeline.D1: a reader that has asked a broker is sent on without its connection."""
    options = stream_options({"kafka.bootstrap.servers": broker.bootstrap,
                              "subscribe": broker.topic(), "startingOffsets": "earliest"})
    made = RawStreamReader(options, ("value",))
    start = made.initialOffset()
    sent = pickle.loads(pickle.dumps(made))
    assert sent.__dict__ == {**made.__dict__, "_made": None}
    assert sent.initialOffset() == start
    made.stop()


def values(frame: DataFrame) -> list[str]:
    """The values of a frame, sorted."""
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def test_a_batch_read_has_the_columns_of_sparks_source(
    spark: SparkSession, broker: Broker
) -> None:
    """I12: found without registration, with headers, nulls and timestamps as they are."""
    topic = broker.topic(partitions=2)
    broker.record(topic, key=b"k", value=b"v", headers=[("h", b"1"), ("n", None)],
                  timestamp=1_700_000_000_123)
    broker.record(topic, key=None, value=None, timestamp=1_700_000_000_456, partition=1)
    frame = reader(spark, broker, subscribe=topic, includeHeaders="true").load()

    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>")
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition").collect()
    first, second = rows
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert (first.ms, first.timestampType) == (1_700_000_000_123, 0)
    assert [tuple(each) for each in first.headers] == [("h", bytearray(b"1")), ("n", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert (second.partition, second.ms) == (1, 1_700_000_000_456)


def test_batch_reads_by_selection_offsets_and_times(spark: SparkSession, broker: Broker) -> None:
    """I12, I14: several topics, a pattern, partitions; between offsets, and between times."""
    one, two = broker.topic(partitions=2, name="select-1"), broker.topic(name="select-2")
    for number in range(6):
        broker.record(one, value=b"%d" % number, timestamp=1_000 * (number + 1),
                      partition=number % 2)
    broker.record(two, value=b"x", timestamp=9_000)

    def got(**options: str) -> list[str]:
        return values(reader(spark, broker, **options).load())

    assert got(subscribe=f"{one},{two}") == ["0", "1", "2", "3", "4", "5", "x"]
    assert got(subscribePattern="select-[0-9]", columns="value") == [*"012345", "x"]
    assert got(assign=json.dumps({one: [1], two: [0]})) == ["1", "3", "5", "x"]
    assert got(subscribe=one, startingOffsets=json.dumps({one: {"0": 1, "1": 2}}),
               endingOffsets=json.dumps({one: {"0": 2, "1": -1}})) == ["2", "5"]
    assert got(subscribe=one, startingTimestamp="2500", endingTimestamp="4500") == ["2", "3"]
    assert got(subscribe="select-1", startingOffsetsByTimestamp=json.dumps(
        {one: {"0": 5_000, "1": 99_000}}), startingOffsetsByTimestampStrategy="latest") == ["4"]
    empty = reader(spark, broker, subscribe=two, endingOffsets=json.dumps({two: {"0": 0}})).load()
    assert empty.count() == 0


def test_columns_and_tasks(spark: SparkSession, broker: Broker) -> None:
    """I4: what is not asked for is not read; and a batch has as many tasks as are wanted."""
    topic = broker.topic(partitions=2)
    for partition in range(2):
        broker.send(topic, *(f"k:{number}" for number in range(50)), partition=partition)
    few = reader(spark, broker, subscribe=topic, columns="partition,offset").load()
    assert few.columns == ["partition", "offset"]
    assert few.rdd.getNumPartitions() == 1
    asked = reader(spark, broker, subscribe=topic).schema("offset bigint, value binary").load()
    assert asked.columns == ["offset", "value"]
    assert asked.selectExpr("sum(offset)").first()[0] == 2 * sum(range(50))
    topic_only = reader(spark, broker, subscribe=topic, columns="topic").load()
    assert [tuple(row) for row in topic_only.groupBy("topic").count().collect()] == [(topic, 100)]
    for option, count in (("minPartitions", "5"), ("maxRecordsPerPartition", "20")):
        split = reader(spark, broker, subscribe=topic, **{option: count}).load()
        assert split.rdd.getNumPartitions() == 5
        assert split.groupBy("partition").agg({"offset": "sum"}).collect() == [
            (0, sum(range(50))), (1, sum(range(50)))]


@pytest.mark.parametrize(("options", "words"), [
    ({"subscribe": "nowhere-at-all"}, "there is no topic nowhere-at-all"),
    ({"subscribe": "t", "startingOfset": "1"}, "unknown option startingofset; did you mean starti"),
    ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "auto.offset.reset cannot be set"),
])
def test_mistakes_are_told(
    spark: SparkSession, broker: Broker, options: dict[str, str], words: str
) -> None:
    """I12: before anything is read."""
    with pytest.raises(PySparkException, match=words):
        reader(spark, broker, **options).load().collect()


def run_now(frame: DataFrame, checkpoint: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Read what there is: the values that this run added, sorted, and what Spark says of it."""
    found: list[str] = []
    query = (
        frame.selectExpr("CAST(value AS STRING) AS value").writeStream
        .foreachBatch(lambda rows, _number: found.extend(row.value for row in rows.collect()))
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())
    assert query.awaitTermination(FINAL_SECONDS)
    return sorted(found), [json.loads(each.json) for each in query.recentProgress]


def test_a_stream_in_steps(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """I11, I12, I14, I20: limits, what there is now, restarts, and partitions that appear."""
    topic = broker.topic(name="steps-1")
    broker.send(topic, *(f":{number}" for number in range(10)))
    frame = stream(spark, broker, subscribePattern="steps-.*", maxOffsetsPerTrigger="4",
                   **{"kafka.group.id": "steps"})

    rows, batches = run_now(frame, tmp_path)
    assert rows == [*"0123456789"]
    assert [each["numInputRows"] for each in batches] == [4, 4, 2]
    assert batches[0]["sources"][0]["latestOffset"] == {topic: {"0": 10}}
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "steps"}) as consumer:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    assert committed.offset == 8  # Spark commits a batch when it plans the next one
    broker.grow(topic, 2)
    broker.send(topic, ":new", partition=1)
    broker.send(topic, ":more")
    broker.send(broker.topic(name="steps-2"), ":other")
    assert run_now(frame, tmp_path)[0] == ["more", "new", "other"]
    assert run_now(frame, tmp_path)[0] == []


def test_a_stream_that_keeps_running(
    spark: SparkSession, broker: Broker, mock: tuple[Producer, str], tmp_path: Path
) -> None:
    """I9, I18: from now on, of two clusters at once, one of which is none of ours."""
    topic = broker.topic()
    broker.send(topic, ":before")
    producer, other = mock
    producer.produce("elsewhere", "before", partition=0)
    producer.flush(20)
    here = stream(spark, broker, subscribe=topic, startingOffsets="latest")
    there = stream(spark, broker, subscribe="elsewhere", startingOffsets="latest",
                   **{"kafka.bootstrap.servers": other})
    found: list[tuple[str, str]] = []
    query = here.union(there).writeStream.foreachBatch(
        lambda rows, _number: found.extend(
            (row.topic, bytes(row.value).decode()) for row in rows.collect())
    ).option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_for(lambda: bool(query.lastProgress))
        for number in range(3):
            broker.send(topic, f":{number}")
            producer.produce("elsewhere", f"{number}", partition=number)
            producer.flush(20)
        wait_for(lambda: len(found) >= 6 or not query.isActive, progress=lambda: len(found))
    finally:
        query.stop()
    assert sorted(found) == sorted(
        (name, str(number)) for name in (topic, "elsewhere") for number in range(3))


def test_lost_data_is_an_error_or_a_warning(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I14: a topic that is created anew is noticed; without failOnDataLoss it is read anew."""
    topic = broker.topic(name="lost")
    broker.send(topic, *(f":{number}" for number in range(5)))
    strict, lax = (stream(spark, broker, subscribe=topic, failOnDataLoss=fail)
                   for fail in ("true", "false"))
    assert run_now(strict, tmp_path / "strict")[0] == [*"01234"]
    shutil.copytree(tmp_path / "strict", tmp_path / "lax")
    broker.delete(topic)
    broker.topic(name=topic)
    broker.send(topic, ":anew")
    with pytest.raises(PySparkException, match="the topic was deleted and created anew"):
        run_now(strict, tmp_path / "strict")
    assert run_now(lax, tmp_path / "lax")[0] == ["anew"]


def test_a_topic_that_has_grown_beyond_the_old_positions_is_not_taken_for_the_old_one(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I12, I13, I15: while the query is down the topic is created anew, and is longer now."""
    topic = broker.topic(name="regrown")
    broker.send(topic, *(f":{number}" for number in range(3)))
    strict = stream(spark, broker, subscribe=topic)
    again = stream(spark, broker, subscribe=topic, onTopicRecreated="earliest")
    assert run_now(strict, tmp_path / "strict")[0] == [*"012"]
    offsets = max((tmp_path / "strict" / "offsets").iterdir()).read_text()
    assert "#topic_ids" in offsets
    shutil.copytree(tmp_path / "strict", tmp_path / "again")

    broker.delete(topic)
    broker.topic(name=topic)
    broker.send(topic, *(f":{letter}" for letter in "abcdefg"))
    for _ in range(2):
        with pytest.raises(PySparkException, match=r"created anew .*onTopicRecreated=earliest"):
            run_now(strict, tmp_path / "strict")
    assert run_now(again, tmp_path / "again")[0] == [*"abcdefg"]
    assert run_now(again, tmp_path / "again")[0] == []


def test_a_checkpoint_of_old_goes_on(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I12: without ids of topics, as versions before wrote it; afterwards it has them."""
    topic = broker.topic(name="old-checkpoint")
    broker.send(topic, *(f":{number}" for number in range(3)))
    query = stream(spark, broker, subscribe=topic)
    assert run_now(query, tmp_path / "c")[0] == [*"012"]
    for path in (tmp_path / "c" / "offsets").iterdir():
        if not path.name.startswith("."):
            path.write_text(re.sub(r',\s*"#topic_ids":\s*\{[^}]*\}', "", path.read_text()))
            assert "#topic_ids" not in path.read_text()
        else:
            path.unlink()  # its checksum
    broker.send(topic, ":3")
    assert run_now(query, tmp_path / "c")[0] == ["3"]
    kept = [each for each in (tmp_path / "c" / "offsets").iterdir() if each.name.isdigit()]
    assert "#topic_ids" in max(kept, key=lambda each: int(each.name)).read_text()


def test_rows_are_written(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """I12: key, value, headers, topic and partition, from a batch and from a stream."""
    one, two = broker.topic(partitions=3), broker.topic()
    frame = spark.sql(f"""
        SELECT * FROM VALUES
        ('k', 'v', '{one}', 2, array(named_struct('key', 'h', 'value', X'01'),
                                     named_struct('key', 'n', 'value', null))),
        (null, null, '{one}', 1, null), ('k', 'w', '{two}', null, null)
        AS t(key, value, topic, partition, headers)""")
    write = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format("quipu").options(**write).mode("append").save()

    rows = reader(spark, broker, subscribe=f"{one},{two}", includeHeaders="true").load()
    found = {(row.topic, row.partition): row for row in rows.collect()}
    first, second, third = found[one, 2], found[one, 1], found[two, 0]
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert [tuple(each) for each in first.headers] == [("h", bytearray(b"\1")), ("n", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert bytes(third.value) == b"w"

    many = broker.topic()
    spark.range(5_000).selectExpr("CAST(id AS STRING) AS value").write.format("quipu").options(
        **write, topic=many).mode("append").save()
    assert values(reader(spark, broker, subscribe=many).load()) == sorted(map(str, range(5_000)))

    copy = broker.topic()
    frame = stream(spark, broker, subscribe=f"{one},{two}").drop("partition")
    query = frame.writeStream.format("quipu").options(
        **write, topic=copy, checkpointLocation=str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(FINAL_SECONDS)
    rows = reader(spark, broker, subscribe=copy).load()
    assert sorted(str(row.value) for row in rows.collect()) == sorted(
        str(row.value) for row in found.values())


@pytest.mark.parametrize(("query", "options", "words"), [
    ("SELECT 'v' AS value", {"topic": "t", "kafka.no.such": "x"}, "No such configuration"),
    ("SELECT 'v' AS value, CAST(null AS STRING) AS topic", {}, "a row has no topic"),
    ("SELECT 'v' AS value", {"topic": "not-there", "kafka.delivery.timeout.ms": "2000",
                             "kafka.allow.auto.create.topics": "false"}, "not-there: "),
])
def test_rows_that_cannot_be_written(
    spark: SparkSession, broker: Broker, query: str, options: dict[str, str], words: str
) -> None:
    """I12: the task fails, and says why."""
    frame = spark.sql(query).write.format("quipu").mode("append").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, **options})
    with pytest.raises(PySparkException, match=words):
        frame.save()


def test_registration(spark: SparkSession, broker: Broker) -> None:
    """A session can be told, too."""
    beside = spark.newSession()
    register(beside)
    assert reader(beside, broker, subscribe="t", columns="value").load().columns == ["value"]
