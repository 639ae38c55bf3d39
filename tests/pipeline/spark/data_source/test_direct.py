"""A topic most of which is only in the remote tier, read by Spark."""

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from quipu.client.admin.topics import create_topic
from quipu.client.cluster import Cluster
from quipu.client.ranges import Range
from quipu.client.remote_log import describe_remote_log
from quipu.client.settings import client_settings
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import Workbench

COUNT = 300
TIERED = {"remote.storage.enable": "true", "segment.bytes": "16384",
          "local.retention.bytes": "16384"}


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node whose topic `t` has COUNT rows, of which most are only in the tier."""
    directory = tmp_path_factory.mktemp("tiered") / "data"
    settings = {"remote.log.storage.system.enable": "true", "log.retention.ms": "-1",
                "remote.log.manager.task.interval.ms": "50",
                "log.retention.check.interval.ms": "100"}
    with (RunningNode(directory, settings=settings) as node,
          Cluster(client_settings({"bootstrap.servers": node.bootstrap})) as cluster):
        create_topic(cluster, "t", partitions=1, settings=TIERED)
        sender = Broker(node.bootstrap)
        for number in range(0, COUNT, 10):  # a batch for each: one batch is never cut
            sender.send("t", *(f"k{each}:{each:01000d}" for each in range(number, number + 10)))

        def moved() -> bool:
            (part,) = describe_remote_log(cluster, [Range("t", 0, 0, COUNT)]).values()
            return part.local_start > COUNT // 2

        wait_for(moved)
        yield node


def test_executors_read_objects(spark: SparkSession, tiered: RunningNode) -> None:
    """I17: both tiers are one topic; without the objects, only brokers can be read from."""
    def numbers(mode: str) -> list[tuple[int, int]]:
        frame = spark.read.format("quipu").options(**{
            "kafka.bootstrap.servers": tiered.bootstrap, "subscribe": "t", "directRead": mode,
            "minPartitions": "3"}).load()
        return sorted((row.offset, int(bytes(row.value)))
                      for row in frame.select("offset", "value").collect())

    rows = [(number, number) for number in range(COUNT)]
    assert numbers("always") == rows
    assert numbers("never") == rows
    store = tiered.directory / "remote"
    away = store.with_name("away")
    store.rename(away)
    try:
        with pytest.raises(PySparkException, match=r"directRead=always.*not a directory"):
            numbers("always")
    finally:
        away.rename(store)
    assert numbers("auto") == rows


def test_sources_of_sql_read_objects(work: Workbench, tiered: RunningNode) -> None:
    """I17: DIRECT READ of CREATE SOURCE."""
    name = work.name()
    work.do(
        f"CREATE SOURCE {name} FROM KAFKA BROKER '{tiered.bootstrap}' TOPIC 't' FORMAT TEXT "
        "WITH (DIRECT READ = 'always')")
    (row,) = work.rows(
        f"SELECT count(*) AS n, sum(CAST(text AS bigint)) AS total FROM {name}")
    assert row == (COUNT, COUNT * (COUNT - 1) // 2)
