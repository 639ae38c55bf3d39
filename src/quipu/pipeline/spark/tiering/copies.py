"""Copies segments in tasks of Spark, one for each.

Spark may run a task again, also at the same time: both make the same object, and nothing refers to
it before the driver says so.
"""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from quipu.diskless.tiering.executor import CopyResult, CopyTask, copy_task
from quipu.diskless.tiering.job import CopyAll


def spark_copies(spark: SparkSession) -> CopyAll:
    """What copies segments on the executors of `spark`, and waits for them."""

    def copy_all(tasks: Sequence[CopyTask]) -> list[CopyResult]:
        return spark.sparkContext.parallelize(tasks, len(tasks)).map(copy_task).collect()

    return copy_all
