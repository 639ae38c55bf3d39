"""`format("quipu")` on a real Spark and a real node: batch reads, streams, writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quipu.pipeline.spark.sources import register
from tests.pipeline.spark.broker import Broker


def reader(spark: SparkSession, broker: Broker, **options: str) -> Any:
    return spark.read.format("quipu").option(
        "kafka.bootstrap.servers", broker.bootstrap).options(**options)


def stream(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **options}
    return spark.readStream.format("quipu").options(**given).load()


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
