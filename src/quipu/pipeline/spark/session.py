"""Spark sessions as the pipeline likes them: small, quiet, in UTC.

    spark = session()                                  # this machine, all its cores
    spark = session("spark://host:7077", settings={"spark.executor.memory": "4g"})

A setting that the caller gives wins over ours.  `tuned` makes, from anybody's session, one that
shares its Spark and has the settings that our streaming queries want.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

import quipu
from quipu.pipeline.spark import java

LOCAL = "local[*]"

# Without these a query waits for fsyncs and renames that protect nothing: see `_START`.
_RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # no watermark is waited for
    # Options of sources that plans, logs and Spark's pages do not show: `feed` is all of a source.
    "spark.sql.redaction.options.regex":
        "(?i)url|feed|password|secret|token|jaas|credential|user[.]info|key[.]?pem|ssl[.]key",
}
_START = {
    "spark.app.name": "quipu",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "quipu.pipeline.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",  # answers over TCP are 40 ms late
}
# Every stream of a source sets these in the environment of the source's workers when it starts, in
# one Java map and without a lock.  Two that add them at once break the map, and no task of the
# source can be sent any more; what is there already is only replaced, and that is safe.
_STREAMS_SET = (
    "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME",
)
_LOGGING = """
status = fatal
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def session(
    master: str | None = None, *, settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The process's Spark session, started if there is none.

    `log` gets Spark's warnings; what its Python workers print goes to a file beside it.
    """
    given = dict(settings or {})
    master = master or given.pop("spark.master", LOCAL)
    home = java.prepared(java.found())
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = {**_START, **_RUNTIME, **_network(master), **_imports(master), **given}
    options = [f"-Dlog4j2.configurationFile={_logging(home, log)}"]
    if ours := chosen.get("spark.driver.extraJavaOptions"):
        options.append(ours)
    chosen["spark.driver.extraJavaOptions"] = " ".join(options)
    builder = SparkSession.builder.master(master)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised, once
    spark = builder.getOrCreate()
    if "spark.sql.shuffle.partitions" not in given:
        _set_partitions(spark)
    if log is not None:
        _redirect_errors(spark, log.with_name(f"{log.stem}-workers{log.suffix}"))
    return spark


def _redirect_errors(spark: SparkSession, path: Path) -> None:
    """Spark hands on what workers print, such as how they were stopped, to its standard error."""
    jvm: Any = spark._jvm  # noqa: SLF001 Java's objects have no types here
    file = jvm.java.io.FileOutputStream(str(path.resolve()))
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(file, True))  # noqa: FBT003 to flush


def tuned(spark: SparkSession) -> SparkSession:
    """A session beside this one, on the same Spark, with the settings of our queries."""
    beside = spark.newSession()
    for name, value in _RUNTIME.items():
        beside.conf.set(name, value)
    _set_partitions(beside)
    return beside


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows.

    Spark's own way (createDataFrame) makes the session the active one of the caller's thread,
    which is none of our business.
    """
    made = spark._jsparkSession  # noqa: SLF001 see above
    nothing = spark.sparkContext._jsc.emptyRDD()  # noqa: SLF001
    return ClassicDataFrame(made.createDataFrame(nothing, made.parseDataType(schema.json())), spark)


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Let a session know a data source of ours.

    Spark looks whether the name is taken in the thread's active session, whichever that is.
    """
    context = spark.sparkContext
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001 no other way
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    known = context.environment
    context.environment = {**dict.fromkeys(_STREAMS_SET, ""), **known}
    try:
        spark.dataSource.register(source)
    finally:
        context.environment = known
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def _set_partitions(spark: SparkSession) -> None:
    """A Python task takes tens of milliseconds: as many as there are cores, and no more."""
    spark.conf.set("spark.sql.shuffle.partitions", str(parallelism(spark)))


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    return max(int(spark.sparkContext.defaultParallelism), 1)


def _network(master: str) -> dict[str, str]:
    """A local Spark talks to itself, and to nobody else."""
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _imports(master: str) -> dict[str, str]:
    """Executors import this very package, where it is not installed with its Python."""
    root = Path(quipu.__file__).resolve().parents[1]
    if master.startswith("local") or root.name == "site-packages":
        return {}
    return {"spark.executorEnv.PYTHONPATH": str(root)}


def _logging(folder: Path, log: Path | None) -> Path:
    """Spark's messages go to a file or nowhere: users meet errors as exceptions."""
    path = folder / "log4j2.properties"
    text = _LOGGING.format(level="fatal", path=folder / "spark.log")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        text = _LOGGING.format(level="warn", path=log.resolve())
    path.write_text(text)
    return path
