"""Starts Spark sessions with the pipeline's settings: little memory, no console output, UTC.

    spark = session()                                  # this machine, all its cores
    spark = session("spark://host:7077", settings={"spark.executor.memory": "4g"})

A setting of the caller overrides the pipeline's.  `tuned` makes, from any session, another one on
the same Spark with the settings of the pipeline's streaming queries.
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
from quipu.pipeline.spark.session import java

LOCAL = "local[*]"

# Without these settings a query waits for fsyncs and renames that protect nothing.
_RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # there are no watermarks
    # Options that Spark hides in plans, logs and its pages: `inputs` has passwords of sources.
    "spark.sql.redaction.options.regex":
        "(?i)url|inputs|password|secret|token|jaas|credential|user[.]info|key[.]?pem|ssl[.]key",
}
_START = {
    "spark.app.name": "quipu",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "quipu.pipeline.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP a response takes 40 ms longer
}
# When a stream of a data source starts, Spark sets these variables in the environment of the
# source's workers, in one Java map and without a lock.  Two streams that add them at the same time
# break the map, and no task of the source can be sent any more.  So they are added beforehand:
# replacing an existing variable is safe.
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

    Spark's warnings are written to `log`; the output of its Python workers to a file beside it.
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
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised anyway
    spark = builder.getOrCreate()
    if "spark.sql.shuffle.partitions" not in given:
        _set_partitions(spark)
    if log is not None:
        _redirect_errors(spark, log.with_name(f"{log.stem}-workers{log.suffix}"))
    return spark


def _redirect_errors(spark: SparkSession, path: Path) -> None:
    """Write Spark's standard error, which includes the output of its workers, to a file."""
    jvm: Any = spark._jvm  # noqa: SLF001 Java's objects have no types here
    file = jvm.java.io.FileOutputStream(str(path.resolve()))
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(file, True))  # noqa: FBT003 to flush


def tuned(spark: SparkSession) -> SparkSession:
    """Another session on the same Spark, with the settings of the pipeline's queries."""
    beside = spark.newSession()
    for name, value in _RUNTIME.items():
        beside.conf.set(name, value)
    _set_partitions(beside)
    return beside


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows.

    Spark's createDataFrame is not used: it makes the session the active one of the thread.
    """
    made = spark._jsparkSession  # noqa: SLF001 see above
    nothing = spark.sparkContext._jsc.emptyRDD()  # noqa: SLF001
    return ClassicDataFrame(made.createDataFrame(nothing, made.parseDataType(schema.json())), spark)


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session.

    Spark checks whether the name is taken in the thread's active session, so that is set meanwhile.
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
    """Set as many shuffle partitions as cores: a Python task takes tens of milliseconds."""
    spark.conf.set("spark.sql.shuffle.partitions", str(parallelism(spark)))


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that run at once."""
    return max(int(spark.sparkContext.defaultParallelism), 1)


def _network(master: str) -> dict[str, str]:
    """The settings that bind a local Spark to 127.0.0.1."""
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _imports(master: str) -> dict[str, str]:
    """The settings by which executors import this package if it is not installed."""
    root = Path(quipu.__file__).resolve().parents[1]
    if master.startswith("local") or root.name == "site-packages":
        return {}
    return {"spark.executorEnv.PYTHONPATH": str(root)}


def _logging(folder: Path, log: Path | None) -> Path:
    """Write the file that configures Spark's logging: to a file, and never to the console."""
    path = folder / "log4j2.properties"
    text = _LOGGING.format(level="fatal", path=folder / "spark.log")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        text = _LOGGING.format(level="warn", path=log.resolve())
    path.write_text(text)
    return path
