"""What a pipeline writes is for its owner alone, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quipu.pipeline.spark.statements.pipeline import connect
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import catch_up


@pytest.fixture(autouse=True)
def lax_umask() -> Iterator[None]:
    """As most machines have it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def readable_by_others(top: Path) -> list[Path]:
    """The files below a directory that others get at, if they get at the directory itself."""
    return [path for path in top.rglob("*") if path.is_file() and is_open(path)
            and all(is_open(top / each) for each in path.relative_to(top).parents)]


def test_tables_checkpoints_and_catalogs_are_the_owners(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """K8: also in a directory that was made beforehand, for all to read."""
    topic = broker.topic()
    broker.send(topic, "a:1", "b:2", "a:3")
    state = tmp_path / "state"
    state.mkdir(0o755)
    with connect(spark, state=state) as pipeline:
        pipeline.execute(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' TOPIC '{topic}' "
                         "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY ENVELOPE UPSERT")
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s GROUP BY key")
        pipeline.execute(f"CREATE SINK k FROM v INTO PARQUET '{tmp_path / 'out'}'")
        catch_up(pipeline)
    files = [path for path in state.rglob("*") if path.is_file()]
    assert {"catalog.json", "metadata"} <= {path.name for path in files}
    assert readable_by_others(state) == []


def test_what_spark_writes_on_the_way_is_the_owners(
    spark: SparkSession, spark_folder: Path
) -> None:
    """K8: shuffles and spilled rows lie in directories that all users of a machine share."""
    assert spark.range(1000).repartition(4, "id").groupBy("id").count().count() == 1000
    folders = [*(spark_folder / "local").glob("blockmgr-*")]
    assert folders
    for folder in folders:
        assert not is_open(folder)
    logs = list(spark_folder.glob("*.log"))
    assert logs
    assert not any(map(is_open, logs))
