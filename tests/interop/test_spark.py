"""Spark's own Kafka connector on Kafka and on Quipu; our pipeline on a real Kafka."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from quipu.cli.main import main
from quipu.cli.sql import spark_engine
from quipu.pipeline.spark.data_source.register import register
from quipu.pipeline.spark.session.sessions import session
from tests.interop.brokers import Broker
from tests.interop.conftest import Running
from tests.interop.software import folder_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

ROWS = 200


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with its own Kafka connector beside `format("quipu")`."""
    jars = sorted((folder_of("spark") / "jars").glob("*.jar"))
    scratch = tmp_path_factory.mktemp("spark")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # workers would compile everything anew
    started = session("local[2]", log=scratch / "spark.log", settings={
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local")})
    yield started
    started.stop()


@pytest.fixture
def quipu_sql(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[[str], list[str]]:
    """`quipu sql --json -e SCRIPT` in this process and on this Spark; the lines that it prints."""
    monkeypatch.setattr(spark_engine, "SparkEngine", partial(spark_engine.SparkEngine, spark=spark))

    def run(script: str) -> list[str]:
        code = main(["sql", "--state", str(tmp_path / "state"), "--json", "-e", script])
        told = capfd.readouterr()
        assert code == 0, told.err
        return told.out.splitlines()

    return run


def create(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result(30)


def options(broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic,
            "startingOffsets": "earliest"}


def rows(frame: DataFrame) -> list[tuple[str, str, int, int]]:
    """Keys, values and where they are, by partition and offset."""
    found = frame.selectExpr("CAST(key AS STRING) k", "CAST(value AS STRING) v", "partition",
                             "offset").collect()
    return sorted((row.k, row.v, row.partition, row.offset) for row in found)


def follow(spark: SparkSession, broker: Broker, topic: str, scratch: Path) -> None:
    """Take what is new in a topic into Parquet files, by a stream that ends with it."""
    query = (spark.readStream.format("kafka").options(**options(broker, topic))
             .option("includeHeaders", "true").load().writeStream.format("parquet")
             .option("path", str(scratch / "rows"))
             .option("checkpointLocation", str(scratch / "checkpoint"))
             .trigger(availableNow=True).start())
    assert query.awaitTermination(300)


def test_sparks_own_connector(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """K1, K2: it writes a frame with headers and reads it in a batch; a stream that is ended and
    started again has every row once.
    """
    create(broker, topic)
    frame = spark.range(ROWS).selectExpr(
        "CAST(id AS STRING) key", "concat('value ', id) value",
        "array(struct('from' AS key, CAST('spark' AS BINARY) AS value)) headers")
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "includeHeaders": "true"}
    frame.where("id < 150").write.format("kafka").options(**sink).save()
    follow(spark, broker, topic, tmp_path)
    frame.where("id >= 150").write.format("kafka").options(**sink).save()
    follow(spark, broker, topic, tmp_path)

    batch = spark.read.format("kafka").options(**options(broker, topic)).load()
    read = rows(batch)
    assert sorted(row[:2] for row in read) == sorted(
        (str(number), f"value {number}") for number in range(ROWS))
    assert rows(spark.read.parquet(str(tmp_path / "rows"))) == read
    headers = spark.read.parquet(str(tmp_path / "rows")).select("headers").distinct().collect()
    assert [[(each.key, bytes(each.value)) for each in row.headers] for row in headers] == [
        [("from", b"spark")]]
    later = batch.where("offset >= 50").count()
    by_offset = spark.read.format("kafka").options(**options(broker, topic)).option(
        "startingOffsets", f'{{"{topic}": {{"0": 50, "1": 50}}}}').load()
    assert by_offset.count() == later


def test_our_pipeline_reads_a_real_kafka(
    spark: SparkSession, running: Running, topic: str, quipu_sql: Callable[[str], list[str]]
) -> None:
    """K1, I18: `format("quipu")` has the rows that Spark's own connector has; `quipu sql` keeps a
    view of an upsert source on a topic of Kafka.
    """
    kafka = running("kafka", 1)
    create(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "zstd"})
    for number in range(ROWS):
        producer.produce(topic, f'{{"n": {number}}}', key=f"key-{number % 10}")
    assert producer.flush(30) == 0

    register(spark)
    ours = rows(spark.read.format("quipu").options(**options(kafka, topic)).load())
    assert ours == rows(spark.read.format("kafka").options(**options(kafka, topic)).load())
    assert len(ours) == ROWS

    told = quipu_sql(f"""
        CREATE SOURCE latest (n INT) FROM KAFKA BROKER '{kafka.bootstrap}' TOPIC '{topic}'
            KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT;
        CREATE MATERIALIZED VIEW total AS SELECT count(*) AS keys, sum(n) AS n FROM latest;
        SELECT keys, n FROM total;""")
    assert '{"keys": 10, "n": 1945}' in told  # the last of each key: 190 to 199
